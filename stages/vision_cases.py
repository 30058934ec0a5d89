"""Cases of prompts that show pictures. The window w of nano is 24 tokens."""

from typing import Any

from .diffusion_gemma_engine import PER_STEP
from .gates import Exact
from .spec import Case, Generation, Out, Stage

ALIKE = Exact(because="follows from a trajectory's tokens, and is compared no further than these followed the oracle's")
stages = (
    Stage(
        "generate_image",
        {"ids": "T", "types": "T", "features": "B N D", "options": "byte", "seed": "", "said": "byte"},
        {
            "outcome": Out("byte", portable=ALIKE),
            "tokens": Out("token", portable=ALIKE),
            "steps": Out("block", portable=ALIKE),
            "finish": Out("byte", portable=ALIKE),
            "segments": Out("byte", portable=ALIKE),
            "drafts": Out("byte", portable=ALIKE),
            "draws": Out("byte", portable=ALIKE),
        },
        after=("generate", "image_encoder"),
    ),
)

# What the trained nano was taught to see comes first, then what it never heard about a picture.
ONE = (
    "What is this?",
    "What colour is it?",
    "What shape is it?",
    "What is this?",
    "Is it day or night?",
    "What is the capital of France?",
)
OTHER = ("What is this?", "What colour is it?", "What shape is it?")
THREE = (
    "What is the first?",
    "What is the second?",
    "What is the third?",
    "What is this?",
    "How many pictures are there?",
    "Hello!",
)
ENGINE = ("config", "weights", *PER_STEP)
ANSWER = (*ENGINE, "denoise_canvas")


def _asked(question: str, seed: int, tokens: int = 14, steps: int = 4, **more: Any) -> Generation:
    """A short answer; questions take the samplers, best and drawn tokens in turn."""
    sampler = ("confidence-threshold", "entropy-bound")[seed % 2]
    options: dict[str, Any] = {
        "sampler": sampler,
        "max_tokens": tokens,
        "max_canvas": 14,
        "steps": steps,
        "threshold": 0.5,
        **more,
    }
    if seed % 4 > 1:
        options["temperature"] = 0.7
    return Generation(question, tuple(options.items()), seed)


# Budgets are below any that the door offers, so that patches are few and goldens small.
LEFT = ("config", "weights", "rope", "kv_cache", "mlp", "router", "select_experts", "moe")
cases = (
    Case(
        "overlay",
        "who sees ahead: pictures longer than the window, two in one prompt, padding, and none behind other tokens",
        overlays=(
            ("ttiiiittiiitt", 0, 0),
            ("t" + 30 * "i" + "t" + 5 * "i" + 4 * "t", 0, 0),
            ("ttttiiiiivvtt", 0, 3),
            ("ttiiiittiiitt", 12, 0),
            ("iiiitt", 40, 0),
            ("tttttt", 0, 0),
            ("i", 0, 0),
        ),
        computes=("bfloat16",),
    ),
    Case(
        "image",
        "one picture, from its file to the canvas that is asked about it",
        pictures=(("shapes", 12),),
        question="What is this?",
        canvas=6,
        blocks=(("none",),),
        seed=12,
        keep=(0, 1, 5),
        leave=LEFT,
    ),
    Case(
        "images",
        "several pictures of several sizes and formats, one of them twice, one longer than the window",
        pictures=(("shapes", 12), ("strip", 12), ("shapes", 12), ("tall", 36), ("palette", 4), ("grey", 4)),
        question="Which of these are the same?",
        canvas=6,
        blocks=(("none",), ("none",)),
        seed=13,
        keep=(1,),
        leave=(*LEFT, "vision_layer"),
        computes=("bfloat16",),
    ),
    Case(
        "image-inline",
        "the older layout's packed patch projection, which cuts fractions off",
        checkpoint="nano-inline",
        pictures=(("bright", 12),),
        question="What is this?",
        seed=14,
        keep=(0, 1),
        leave=(*LEFT, "attention", "layer"),
    ),
    Case(
        "answers",
        "what is generated about a red square",
        checkpoint="nano-trained",
        pictures=(("red square", 12),),
        generations=tuple(_asked(question, seed) for seed, question in enumerate(ONE)),
        leave=ANSWER,
        computes=("float32",),
    ),
    Case(
        "answers-other",
        "the same questions, seeds and sizes about another picture: other answers",
        checkpoint="nano-trained",
        pictures=(("blue circle", 12),),
        generations=tuple(_asked(question, seed) for seed, question in enumerate(OTHER)),
        leave=ANSWER,
        computes=("float32",),
    ),
    Case(
        "answers-static",
        "buffers of their final length, about a picture; one canvas, as the oracle's are right in the first only",
        checkpoint="nano-trained",
        pictures=(("blue circle", 12),),
        generations=tuple(_asked(THREE[4], seed, tokens=15, static_cache=True) for seed in (0, 1)),
        leave=ANSWER,
        computes=("float32",),
    ),
    Case(
        "answers-three",
        "what is generated about three pictures of two sizes; its canvases too, as bfloat16 leaves many near ties",
        checkpoint="nano-trained",
        pictures=(("green triangle", 6), ("yellow square", 6), ("red circle", 12)),
        generations=tuple(_asked(question, seed) for seed, question in enumerate(THREE)),
        leave=ENGINE,
        computes=("bfloat16",),
    ),
)
