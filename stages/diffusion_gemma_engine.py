"""The engine's rows of DiffusionGemma's table, and its cases. Nothing here but declarations.

B batch, C canvas tokens, V vocabulary, n steps of a canvas, m of them that sample, k that leave a signal, h remembered
steps, T prompt tokens. Occurrences: `canvas=0/step=12`, counting down to 1; `canvas=0/forced` (each step from the
oracle's canvas) and `canvas=0/free`; `whole`; `made/...` on hand-made inputs; after `run=3/` where a case has several.
"""

from .decisions import Decisions, Left, between_best
from .gates import Exact, Unasked, Within
from .margins import of_argmax, of_budget, of_stopping, of_threshold
from .spec import Case, Generation, Out, Stage

SAME = Exact(because="no arithmetic: the same bytes on every backend")
CHOICE = "decided on the oracle's own floats, so no rounding can excuse another choice"
DECIDED = Decisions(0, because=CHOICE)
BEST_TOKEN = Decisions(0, because=CHOICE, margins=of_argmax)
SURE = Decisions(0, because=CHOICE, margins=of_threshold)
CERTAIN = Decisions(0, because=CHOICE, margins=of_budget)
FINISHED = Decisions(0, because=CHOICE, margins=of_stopping)
ONE_OP = Within(
    3, because="one rounding chain as long as the oracle's: another backend's order of sums may cost as much again"
)
DIVIDED = Exact(because="one division, which IEEE 754 rounds one way")
TRAVELLED = Within(
    6,
    apart=True,
    least=0.5,
    because="whole stacks of layers, and what earlier steps rounded otherwise; a few numbers may be rounded luckily",
)
DIGEST = Unasked(because="a digest says nothing of how far another backend's floats are off: some of them are kept too")
FOLLOWS = Decisions(
    0, because="follows from floats and draws; where the oracle's own rounding could have turned it, it was set aside"
)
ALIKE = Exact(because="follows from a trajectory's tokens, and is compared no further than these followed the oracle's")
HISTORY = Left(because="the same operations in the same order on the same numeric backend give the same bits")
BEST_HISTORY = Left(
    margins=between_best,
    because="the same operations in the same order on the same numeric backend give the same bits",
)

LOGITS = {"processed": "B C V"}
CACHES = {"past_keys.*": "B G S d", "past_values.*": "B G S d", "cursors": "L I"}

stages = (
    Stage(
        "temperature",
        {"logits": "B C V", "step": "", "steps": "", "schedule": "I"},
        {"processed": Out("B C V", portable=DIVIDED, free=ONE_OP)},
        after=("logits",),
    ),
    Stage(
        "token_confidence",
        {**LOGITS, "tokens": "B C"},
        {"confidence": Out("B C", portable=ONE_OP)},
        after=("temperature",),
    ),
    Stage("token_entropy", LOGITS, {"entropy": Out("B C", portable=ONE_OP)}, after=("temperature",)),
    Stage(
        "accept_confidence",
        {"confidence": "B C", "unrevealed": "B C", "threshold": "", "last": ""},
        {"accepted": Out("B C", portable=SURE)},
        after=("token_confidence",),
    ),
    Stage(
        "accept_entropy",
        {"entropy": "B C", "bound": ""},
        {"accepted": Out("B C", portable=CERTAIN)},
        after=("token_entropy",),
    ),
    Stage(
        "renoise",
        {"keep": "B C", "tokens": "B C", "noise": "B C"},
        {"canvas": Out("B C", portable=SAME)},
    ),
    Stage(
        "stopping",
        {"argmax": "B C", **LOGITS, "history": "h B C", "stability": "", "confidence": ""},
        {"stop": Out("", portable=FINISHED), "history": Out("h B C", portable=SAME)},
        after=("token_entropy",),
    ),
    Stage(
        "sampler_step",
        {
            **LOGITS,
            "canvas": "B C",
            "draft": "B C",
            "revealed": "B C",
            "noise": "B C",
            "drawn": "B C",
            "options": "byte",
        },
        {
            "argmax": Out("B C", portable=BEST_TOKEN),
            **{name: Out("B C", portable=DECIDED) for name in ("accepted", "canvas", "draft", "revealed")},
        },
        after=("accept_confidence", "accept_entropy", "renoise"),
    ),
    Stage(
        "denoise_canvas",
        {
            **CACHES,
            "tokens": "B C",
            "noise": "m B C",
            "drawn": "m B C",
            "canvases": "n B C",
            "drafts": "n B C",
            "reveals": "n B C",
            "stops": "n",
            "options": "byte",
        },
        {
            "argmax": Out("n B C", portable=FOLLOWS, exact=BEST_HISTORY),
            "accepted": Out("m B C", portable=FOLLOWS, exact=HISTORY),
            "revealed": Out("m B C", portable=FOLLOWS, exact=HISTORY),
            "canvas": Out("m B C", portable=FOLLOWS, exact=HISTORY),
            "stop": Out("n", portable=FOLLOWS, exact=HISTORY),
            "logits": Out("n B C byte", portable=DIGEST, exact=HISTORY),
            "some_logits": Out("n B C V", portable=TRAVELLED, exact=HISTORY),
            "soft": Out("k B C byte", portable=DIGEST, exact=HISTORY),
            "some_soft": Out("k B C D", portable=TRAVELLED, exact=HISTORY),
            "best": Out("n B C", portable=TRAVELLED, exact=HISTORY),
            "margin": Out("n B C", portable=TRAVELLED, exact=HISTORY),
            "measure": Out("m B C", portable=TRAVELLED, exact=HISTORY),
        },
        after=("decoder", "logits", "soft_embeddings", "sampler_step", "stopping"),
    ),
    Stage(
        "generate",
        {"ids": "T", "options": "byte", "seed": "", "said": "byte"},
        {
            "outcome": Out("byte", portable=ALIKE),
            "tokens": Out("token", portable=ALIKE),
            "steps": Out("block", portable=ALIKE),
            "finish": Out("byte", portable=ALIKE),
            "segments": Out("byte", portable=ALIKE),
            "drafts": Out("byte", portable=ALIKE),
            "draws": Out("byte", portable=ALIKE),
        },
        after=("denoise_canvas", "encoder", "tokenize"),
    ),
)

LOADED = ("config", "weights")
PER_STEP = tuple(stage.name for stage in stages if stage.name not in ("denoise_canvas", "generate"))
# generation_config.json as it lies beside the weights, which the oracle's public door does not read.
RECOMMENDED = {
    "confidence_threshold": 0.005,
    "stability_threshold": 1,
    "eos_token_id": [1, 106, 50],
    "t_min": 0.4,
    "t_max": 0.8,
    "max_denoising_steps": 48,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
}
STOPPING = {**RECOMMENDED, "confidence_threshold": 1.0, "sampler_config": {"entropy_bound": 1e9}}
CONFIDENCE, ENTROPY = ("sampler", "confidence-threshold"), ("sampler", "entropy-bound")
SMALL = (("max_canvas", 16), ("steps", 5))
# As the chat template writes them, but for the start token.
QUESTION = "<|turn>user\nWhat is the capital of France?<turn|>\n<|turn>model\n<|channel>thought\n<channel|>"
STORY = "<|turn>user\nTell me a long story about a cat.<turn|>\n<|turn>model\n<|channel>thought\n<channel|>"
PROMPT = "What is the capital of France?"  # without its turn, which takes the trained nano several steps


def _run(*options: tuple[str, object], prompt: str | None = PROMPT, seed: int = 0, tokens: int = 0) -> Generation:
    return Generation(prompt, tuple(dict((*SMALL, *options)).items()), seed, tokens)


def _bound(nats: object) -> tuple[str, object]:
    """A generation config that asks the entropy sampler for this bound."""
    return "generation_config", {"sampler_config": {"entropy_bound": nats}}


cases = (
    Case(
        "decisions",
        "accepting, re-noising and stopping exactly at their thresholds",
        made=True,
        leave=LOADED,
        computes=("float32",),
    ),
    Case(
        "answer",
        "the public defaults: a short answer that is sure at once and ends by the end of its turn",
        checkpoint="nano-trained",
        generations=(_run(CONFIDENCE, ("max_tokens", 512), ("max_canvas", None), ("steps", None), prompt=QUESTION),),
        leave=PER_STEP,
        computes=("float32",),
    ),
    Case(
        "certain",
        "generation_config as it lies beside the weights: the entropy sampler, ended by the stopping rule",
        checkpoint="nano-trained",
        generations=(
            _run(
                ENTROPY,
                ("max_tokens", 32),
                ("max_canvas", 32),
                ("steps", 12),
                ("generation_config", RECOMMENDED),
                prompt=QUESTION,
            ),
        ),
        leave=(*LOADED, *PER_STEP),
        computes=("float32",),
    ),
    Case(
        "confidence",
        "the confidence sampler, best tokens, over three canvases: the random nano never ends by itself",
        generations=(_run(CONFIDENCE, ("max_tokens", 34), ("threshold", 0.5), ("steps", 6)),),
        steps=(5,),
        leave=LOADED,
        computes=("float32",),
    ),
    Case(
        "coarse",
        "the engine on bfloat16 activations",
        checkpoint="nano-trained",
        generations=(
            _run(CONFIDENCE, ("max_tokens", 10), ("max_canvas", 8), ("steps", 3)),
            _run(ENTROPY, ("max_tokens", 6), ("max_canvas", 6), ("steps", 2), ("generation_config", RECOMMENDED)),
        ),
        steps=(2,),
        leave=LOADED,
        computes=("bfloat16",),
    ),
    Case(
        "stops",
        "ends: at token 50 only while generation_config is followed, at once, in the shortest canvas and a short one",
        generations=(
            _run(("max_tokens", 16), ("steps", 1), seed=73),
            _run(("max_tokens", 16), ("steps", 1), ("generation_config", RECOMMENDED), seed=73),
            _run(("max_tokens", 16), ("steps", 1), seed=73),
            _run(("max_tokens", 8), ("max_canvas", 1), ("steps", 1), seed=291),
            _run(("max_tokens", 18), ("min_canvas", 4), ("steps", 1), seed=2),
            _run(("max_tokens", 22), ("min_canvas", 4), ("steps", 1), seed=2),
        ),
        leave=(*LOADED, *PER_STEP, "denoise_canvas"),
        computes=("float32",),
    ),
    Case(
        "static",
        "buffers of their final length, one canvas, as the oracle's are right in the first only; usual steps; no nats",
        checkpoint="nano-trained",
        generations=(
            _run(CONFIDENCE, ("max_tokens", 33), ("static_cache", True), prompt=QUESTION),
            _run(ENTROPY, ("max_tokens", 33), ("static_cache", True), ("steps", 4), prompt=QUESTION),
            _run(ENTROPY, ("max_tokens", 16), ("steps", None), prompt=QUESTION),
            _run(ENTROPY, ("max_tokens", 16), ("steps", 4), ("show", True), _bound(0.0), prompt=QUESTION),
        ),
        leave=(*LOADED, *PER_STEP, "denoise_canvas"),
        computes=("float32",),
    ),
    Case(
        "entropy",
        "the entropy sampler, drawn tokens, three canvases: a draw that is left out shows in the second",
        generations=(_run(ENTROPY, ("max_tokens", 36), ("temperature", 0.7), ("steps", 4), seed=1),),
        steps=(3,),
        leave=LOADED,
        computes=("float32",),
    ),
    Case(
        "converging",
        "the stopping rule fires: the same best tokens twice, and few nats; an entropy bound that accepts everything",
        generations=(
            _run(ENTROPY, ("max_tokens", 6), ("max_canvas", 6), ("steps", 12), ("generation_config", STOPPING), seed=1),
        ),
        steps=(12, 8, 7),
        leave=LOADED,
        computes=("float32",),
    ),
    Case(
        "shown",
        "showing the un-masking: the last step samples too, and draws",
        checkpoint="nano-trained",
        generations=(
            _run(
                CONFIDENCE,
                ("max_tokens", 20),
                ("temperature", 0.7),
                ("steps", 4),
                ("show", True),
                prompt=STORY,
                seed=3,
            ),
        ),
        steps=(1,),
        leave=LOADED,
        computes=("float32",),
    ),
    Case(
        "prefill",
        "prefill in chunks, the last of one token",
        checkpoint="nano-trained",
        generations=(_run(CONFIDENCE, ("max_tokens", 18), ("prefill_step", 7), ("steps", 3), prompt=STORY, seed=4),),
        steps=(3,),
        leave=LOADED,
        computes=("float32",),
    ),
    Case(
        "degenerate",
        "inputs at the end of what is allowed, and beyond where the oracle itself fails",
        generations=(
            _run(CONFIDENCE, ("max_tokens", 1), ("steps", 2)),
            _run(CONFIDENCE, ("max_tokens", 3), ("max_canvas", 1), ("steps", 2)),
            _run(ENTROPY, ("max_tokens", 3), ("max_canvas", 1), ("steps", 2)),
            _run(CONFIDENCE, ("max_tokens", 4), ("steps", 1)),
            _run(ENTROPY, ("max_tokens", 4), ("steps", 1), ("show", True)),
            _run(CONFIDENCE, ("max_tokens", 4), prompt=None, tokens=0),
            _run(CONFIDENCE, ("max_tokens", 4), ("steps", 2), prompt=None, seed=5, tokens=1),
            _run(CONFIDENCE, ("max_tokens", 4), ("steps", 3), ("threshold", 0.0)),
            _run(CONFIDENCE, ("max_tokens", 4), ("steps", 3), ("threshold", 1.0)),
            _run(ENTROPY, ("max_tokens", 4), ("steps", 3), _bound(0.0)),
            _run(ENTROPY, ("max_tokens", 4), ("steps", 3), _bound("inf")),
            _run(CONFIDENCE, ("max_tokens", 4), ("steps", 3), ("threshold", 1.5)),
            _run(("sampler", "greedy"), ("max_tokens", 4)),
            _run(CONFIDENCE, ("max_tokens", 4), ("max_canvas", 0)),
            _run(CONFIDENCE, ("max_tokens", 4), ("prefill_step", 0)),
            _run(CONFIDENCE, ("max_tokens", 4), ("generation_config", {"sampler_config": {"_cls_name": "Other"}})),
        ),
        leave=(*LOADED, *PER_STEP, "denoise_canvas"),
        computes=("float32",),
    ),
)
