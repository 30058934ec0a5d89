"""Cases of prompts that show pictures. The window w of nano is 24 tokens."""

from .spec import Case

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
)
