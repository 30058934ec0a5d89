"""The table of DiffusionGemma: what each stage takes and gives, how close, and why. Nothing here but declarations.

B batch, T prompt tokens, C canvas tokens, D hidden, H query heads, G key-value heads, S keys, d head size, N tokens of
a batch laid flat, E experts, K experts a token, V vocabulary, L layers, P named rows; of pictures: c colours, y x
pixels, P patches, W the tower's hidden size, N soft tokens. Occurrences: `encoder/layer=5`,
`encoder/chunk=1/...`, `canvas=1/encoder/...` (the cache extended by the finished canvas), `canvas=0/step=2/...`,
`image=0/layer=1` (of the tower).
"""

from . import diffusion_gemma_engine as engine
from . import text_cases, vision_cases
from .gates import KL, Agreement, Exact, Within
from .spec import Out, Stage, Table

SAME = Exact(because="no arithmetic: the same bytes on every backend")
RESIZED = Exact(because="Pillow resamples in integers, and one float32 product is the same wherever floats are IEEE's")
DECIDED = Agreement(
    0, scores="scores", because="decided on the oracle's own floats, so no rounding can excuse another choice"
)
ONE_OP = Within(
    3, because="one rounding chain as long as the oracle's: another backend's order of sums may cost as much again"
)
COMPOSED = Within(4, because="several rounded operations in sequence, each free to round the other way")
STACKED = Within(
    6, because="whole stacks of layers, where an expert near a tie may be chosen otherwise on another backend"
)

MOVED = Within(
    6, because="moved, not computed: what arrives must leave; only what a free run brought may differ, as there"
)

MASK = {"mask": "B 1 Q S", "mask_kind": ""}
PAST = {"past_keys": "B G S d", "past_values": "B G S d", "cursor": "I"}
PASTS = {"past_keys.*": "B G S d", "past_values.*": "B G S d", "cursors": "L I"}
TABLE_ROWS = {"names": Out("P byte", portable=SAME), "values": Out("P byte", portable=SAME, label="names")}
MASKS = {"full": Out("B one Q S", portable=SAME), "sliding": Out("B one Q S", portable=SAME)}

stages = (
    Stage("config", {}, TABLE_ROWS),
    Stage(
        "weights",
        {},
        {"names": Out("P byte", portable=SAME), "digests": Out("P byte", portable=SAME, label="names")},
        after=("config",),
    ),
    Stage("tokenize", {"text": "byte"}, {"ids": Out("T", portable=SAME)}),
    Stage("chat_template", {"messages": "byte"}, {"text": Out("byte", portable=SAME)}),
    Stage(
        "image_preprocess",
        {"file": "byte", "budget": ""},
        {"pixels": Out("c y x", portable=RESIZED), "soft_tokens": Out("", portable=SAME)},
    ),
    Stage(
        "image_splice",
        {"text": "byte", "soft_tokens": "I"},
        {"ids": Out("T", portable=SAME), "types": Out("T", portable=SAME)},
        after=("tokenize", "chat_template", "image_preprocess"),
    ),
    Stage("patch_embed", {"pixels": "B c y x"}, {"h": Out("B P W", portable=COMPOSED)}, after=("weights",)),
    Stage("vision_layer", {"h": "B P W", "grid": "I"}, {"h": Out("B P W", portable=COMPOSED)}, after=("patch_embed",)),
    Stage("vision_tower", {"pixels": "B c y x"}, {"features": Out("B N W", portable=STACKED)}, after=("vision_layer",)),
    Stage("vision_project", {"features": "B N W"}, {"features": Out("B N D", portable=COMPOSED)}, after=("weights",)),
    Stage("embed", {"ids": "B T"}, {"h": Out("B T D", portable=ONE_OP)}, after=("weights",)),
    Stage(
        "merge_vision",
        {"ids": "B T", "features": "B N D"},
        {"h": Out("B T D", portable=ONE_OP)},
        after=("embed", "vision_project", "image_splice"),
    ),
    Stage("rope", {"x": "B H T d", "offset": ""}, {"x": Out("B H T d", portable=ONE_OP)}, after=("config",)),
    Stage(
        "attention", {"x": "B T D", **MASK, **PAST}, {"h": Out("B T D", portable=COMPOSED)}, after=("weights", "rope")
    ),
    Stage("mlp", {"x": "B T D"}, {"h": Out("B T D", portable=COMPOSED)}, after=("weights",)),
    Stage("router", {"h": "N D"}, {"scores": Out("N E", portable=ONE_OP)}, after=("weights",)),
    Stage(
        "select_experts",
        {"scores": "N E"},
        {"experts": Out("N K", portable=DECIDED), "weights": Out("N K", portable=ONE_OP)},
        after=("router",),
    ),
    Stage(
        "moe",
        {"x": "N D", "experts": "N K", "weights": "N K"},
        {"h": Out("N D", portable=COMPOSED)},
        after=("select_experts",),
    ),
    Stage(
        "layer",
        {"h": "B T D", **MASK, **PAST},
        {"h": Out("B T D", portable=COMPOSED)},
        after=("attention", "mlp", "moe"),
    ),
    Stage("encoder_masks", {"tokens": "", "offset": "", "padding": "B S"}, MASKS, after=("config",)),
    Stage(
        "image_masks",
        {"tokens": "", "offset": "", "padding": "B S", "types": "B T"},
        MASKS,
        after=("encoder_masks",),
    ),
    Stage(
        "kv_cache",
        {**PAST, "keys": "B G T d", "values": "B G T d"},
        {
            "keys": Out("B G S d", portable=MOVED),
            "values": Out("B G S d", portable=MOVED),
            "seen_keys": Out("B G S d", portable=MOVED),
            "seen_values": Out("B G S d", portable=MOVED),
            "cursor": Out("I", portable=SAME),
        },
        after=("config",),
    ),
    Stage(
        "encoder",
        {"ids": "B T", "padding": "B S", **PASTS},
        {
            "h": Out("B T D", portable=STACKED),
            "keys.*": Out("B G S d", portable=STACKED),
            "values.*": Out("B G S d", portable=STACKED),
        },
        after=("embed", "layer", "encoder_masks", "kv_cache"),
    ),
    Stage(
        "image_encoder",
        {"ids": "B T", "types": "B T", "features": "B N D", "padding": "B S", **PASTS},
        {
            "h": Out("B T D", portable=STACKED),
            "keys.*": Out("B G S d", portable=STACKED),
            "values.*": Out("B G S d", portable=STACKED),
        },
        after=("merge_vision", "image_masks", "encoder"),
    ),
    Stage(
        "decoder_masks",
        {"tokens": "", "lengths": "I", "offset": "", "padding": "B S"},
        MASKS,
        after=("config",),
    ),
    Stage("soft_embeddings", {"logits": "B C V"}, {"soft": Out("B C D", portable=ONE_OP)}, after=("embed",)),
    Stage(
        "self_conditioning",
        {"embeds": "B C D", "signal": "B C D"},
        {"h": Out("B C D", portable=COMPOSED)},
        after=("weights",),
    ),
    Stage(
        "decoder",
        {"ids": "B C", "signal": "B C D", "padding": "B S", **PASTS},
        {
            "h": Out("B C D", portable=STACKED),
            # A canvas pass only reads its caches.
            "keys.*": Out("B G S d", portable=MOVED),
            "values.*": Out("B G S d", portable=MOVED),
        },
        after=("embed", "layer", "decoder_masks", "self_conditioning"),
    ),
    Stage(
        "logits",
        {"h": "B C D"},
        {
            "logits": Out(
                "B C V",
                portable=KL(1e-3, because="a tenth of what 8-bit against bfloat16 weights cost at best"),
                free=STACKED,
            )
        },
        after=("embed",),
    ),
)

TABLE = Table(
    "diffusion_gemma",
    (*stages, *engine.stages, *vision_cases.stages),
    (*text_cases.cases, *vision_cases.cases, *engine.cases),
)
