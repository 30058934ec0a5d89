"""`harness diff --shrink` on what is no prompt: pictures, calls of the experts, canvases and their passes."""

from contextlib import contextmanager
from dataclasses import replace

import mlx.core as mx

from port.diffusion_gemma import cuts, image
from port.diffusion_gemma.conditioning import SelfConditioning
from port.diffusion_gemma.moe import Experts
from stages.asked import table_of
from stages.diff.shrink import Shrinker, recorder

TABLE = table_of("diffusion_gemma")


@contextmanager
def instead(owner, name: str, wrong):
    """What `owner` calls `name` is wrapped in `wrong`, which gets the right one first."""
    right = getattr(owner, name)
    setattr(owner, name, lambda *given, **named: wrong(right, *given, **named))
    try:
        yield
    finally:
        setattr(owner, name, right)


def shrunk(name: str, compute: str, stage: str, **other):
    case = replace(next(one for one in TABLE.cases if one.name == name), **other)
    with recorder(TABLE.model, compute) as record:
        return Shrinker(TABLE, compute, cuts.load, record).shrink(case, stage)


def test_of_two_pictures_the_one_is_left_that_is_read_wrongly():
    def prepare(right, picture, budget):
        found = right(picture, budget)
        return image.Pixels(found.values * 0.5) if picture.height > 2 * picture.width else found

    with instead(image, "prepare", prepare):
        small = shrunk("images", "bfloat16", "image_preprocess", pictures=(("grey", 4), ("tall", 4)))
    assert small.pictures == (("tall", 4),)
    assert (small.blocks, small.ids) == ((), ())


def test_of_three_calls_of_the_experts_the_one_is_left_that_groups_its_rows():
    def visit(right, self, x, experts, weights):
        found = right(self, x, experts, weights)
        return found * 1.5 if experts.size == 64 else found

    with instead(Experts, "__call__", visit):
        small = shrunk("experts", "float32", "moe")
    assert small.assignments == (64,)


def test_of_all_passes_the_one_is_left_whose_signal_goes_wrong_and_no_more_of_the_canvas_than_shows_it():
    def condition(right, self, embeds, signal):
        found = right(self, embeds, signal)
        return found + 1 if found.shape[1] > 2 and mx.any(signal != 0).item() else found

    with instead(SelfConditioning, "__call__", condition):
        small = shrunk("short", "float32", "self_conditioning")
    assert small.blocks == (("none", "logits"),)  # a signal is made of an earlier pass
    assert small.canvas == 4  # of 1, 2, 4, 6: lengths are tried by doubling
    assert len(small.ids) == 1
