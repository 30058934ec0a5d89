"""The table of MetaDiffusion: what each stage takes and gives, how close, and why. Nothing here but declarations.

The oracle is PyTorch and the port MLX: no float is the same by construction, so floats are held to the oracle's own
rounding and every decision is made on the oracle's floats.

B batch, T tokens, D hidden, H heads, d head width, W timestep width, V vocabulary with [MASK], P named rows, N steps.
Occurrences: `batch=0/layer=1/q`, `batch=0/layer=1/input` and `/post` (the two norms), `run=0/schedule=seed/step=3`.
"""

from .gates import KL, Agreement, Exact, Within
from .masked import Batch, MaskedCase, Unmasking
from .spec import Out, Stage, Table

SAME = Exact(because="no arithmetic: the same bytes on every backend")
DECIDED = Exact(because="decided on the oracle's own floats, so no rounding can excuse another choice")
ONE_OP = Within(3, because="one rounding chain as long as the oracle's: another framework may cost as much again")
SCALED = Within(
    6,
    because="a row shares one reciprocal root, whose rounding moves all of it alike, while the oracle's is an average",
)
CHANCE = Within(
    8,
    least=0.5,
    because="one number a position: MLX's exponential is good to a few units in the last place, torch's to one",
)
SUMMED = Within(
    8,
    least=2,
    because="a single number, a sum of up to a hundred, that the oracle may round luckily: last places are the unit",
)
COMPOSED = Within(4, because="several rounded operations in sequence, each free to round the other way")
STACKED = Within(6, because="the whole model: the roundings of one layer pass through the next")

stages = (
    Stage(
        "weights",
        {},
        {"names": Out("P byte", portable=SAME), "digests": Out("P byte", portable=SAME, label="names")},
    ),
    Stage(
        "convert_ar",
        {},
        {
            "names": Out("P byte", portable=SAME),
            "digests": Out("P byte", portable=SAME, label="names"),
            "config": Out("byte", portable=SAME),
            "mask_row": Out("D", portable=ONE_OP),
        },
    ),
    Stage("timestep_embedding", {"t": "B"}, {"emb": Out("B W", portable=COMPOSED)}, after=("weights",)),
    Stage("rmsnorm", {"x": "B T D"}, {"h": Out("B T D", portable=SCALED)}, after=("weights",)),
    Stage("rope", {"x": "B H T d"}, {"x": Out("B H T d", portable=ONE_OP)}),
    Stage(
        "attention",
        {"x": "B T D", "padding": "B T"},
        {"h": Out("B T D", portable=COMPOSED)},
        after=("weights", "rope"),
    ),
    Stage("mlp", {"x": "B T D"}, {"h": Out("B T D", portable=COMPOSED)}, after=("weights",)),
    Stage(
        "block",
        {"h": "B T D", "emb": "B W", "padding": "B T"},
        {"h": Out("B T D", portable=COMPOSED)},
        after=("rmsnorm", "attention", "mlp"),
    ),
    Stage(
        "forward",
        {"ids": "B T", "t": "B", "padding": "B T"},
        {
            "logits": Out("B T V", portable=STACKED),
            "distribution": Out(
                "B T V", portable=KL(1e-9, because="float32 throughout: a millionth of what any quantization costs")
            ),
            "best": Out("B T", portable=Agreement(0, because="no two tokens of these cases are within rounding")),
        },
        after=("timestep_embedding", "block"),
    ),
    Stage(
        "corrupt",
        {"ids": "B T", "padding": "B T", "u": "B", "uniform": "B T", "low": "", "high": ""},
        {
            "t": Out("B", portable=DECIDED),
            "masked": Out("B T", portable=DECIDED),
            "noisy": Out("B T", portable=DECIDED),
        },
    ),
    Stage(
        "loss",
        {"logits": "B T V", "labels": "B T", "masked": "B T", "t": "B"},
        {"flat": Out("", portable=SUMMED), "elbo": Out("", portable=SUMMED), "count": Out("", portable=DECIDED)},
    ),
    Stage(
        "grad",
        {"noisy": "B T", "labels": "B T", "masked": "B T", "t": "B", "padding": "B T"},
        {"grads.*": Out("rows columns", portable=STACKED)},
        after=("forward", "loss"),
    ),
    Stage(
        "unmask_step",
        {"logits": "B T V", "ids": "B T", "confidence": "B T", "count": "B"},
        {
            "predicted": Out("B T", portable=DECIDED),
            "confidence": Out("B T", portable=CHANCE),
            "ids": Out("B T", portable=DECIDED),
        },
    ),
    Stage(
        "generate",
        {"start": "B T", "steps": ""},
        {
            "ids": Out("B T", portable=Exact(because="no choice of these runs is within rounding of another")),
            "counts": Out("N B", portable=DECIDED),
        },
        after=("forward", "unmask_step"),
    ),
)

cases = (
    MaskedCase(
        "sentences",
        "sentences without padding, every gradient",
        checkpoint="metadiffusion",
        batches=(Batch(2, 12, low=0.2, high=0.8, grad=True),),
        seed=1,
    ),
    MaskedCase(
        "right-padded",
        "padding on the right, and gradients that must not reach its lookup",
        checkpoint="metadiffusion",
        batches=(Batch(3, 11, padding=3, grad=True),),
        seed=2,
        keep=(1,),
        leave=("weights",),
    ),
    MaskedCase(
        "edges",
        "one token; nothing asked to be masked, everything asked to be",
        checkpoint="metadiffusion",
        batches=(Batch(2, 1), Batch(2, 7, low=0.0, high=0.0), Batch(1, 90, low=1.0, high=1.0)),
        seed=3,
        keep=(0,),
        leave=("weights", "mlp", "block"),
    ),
    MaskedCase(
        "unmask",
        "both schedules: steps fewer and more than masks, a prompt, several texts, a single token",
        checkpoint="metadiffusion",
        unmaskings=(
            Unmasking(2, 13, 4, 5, "corrected"),
            Unmasking(1, 9, 3, 20, "corrected"),
            Unmasking(2, 13, 4, 5, "seed"),
            Unmasking(1, 8, 3, 20, "seed"),
            Unmasking(1, 1, 0, 2, "corrected"),
        ),
        seed=4,
        leave=("weights",),
    ),
    MaskedCase(
        "tied",
        "a Llama with grouped queries, a tied head, wide theta and padding, in shards",
        checkpoint="llama",
        convert=("seed", "corrected"),
        batches=(Batch(2, 40, padding=5),),
        seed=5,
        keep=(0,),
        leave=("weights", "mlp", "rmsnorm", "timestep_embedding"),
    ),
    MaskedCase(
        "untied",
        "a Llama with as many key-value heads as heads, a head of its own and no padding",
        checkpoint="llama-untied",
        convert=("seed", "corrected"),
        batches=(Batch(2, 12),),
        seed=6,
        keep=(1,),
        leave=("weights", "mlp", "rmsnorm", "timestep_embedding"),
    ),
)

TABLE = Table("metadiffusion", stages, cases, exact=False)
