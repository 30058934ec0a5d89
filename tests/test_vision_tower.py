"""The tower beside the reference's own, in shapes and forms that no committed golden has."""

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from towers import BOUNDS, both, pixels, same

from port.diffusion_gemma.vision_attention import fused_width
from port.errors import PictureError

DTYPES = (mx.bfloat16, mx.float32)
SMALL = {"default_output_length": 12}  # room for 108 patches: the reference computes all of it, filled or not
TRUE = {
    "hidden_size": 1152, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72, "num_hidden_layers": 1,
    "intermediate_size": 4304, "position_embedding_size": 64,
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_layer_at_the_true_shape(dtype: mx.Dtype) -> None:
    ours, theirs = both(dtype, **TRUE, default_output_length=4)
    shown = pixels(3, 6)
    grid = ours.grid(3, 6)
    h = ours.patch_embedder(shown, grid)
    places, padding, count = theirs._patch_positions_single(48, 96)
    assert count == 18
    assert same(h, theirs.patch_embedder(shown, mx.array(places[None, :count]), mx.array(padding[None, :count])))
    assert same(ours.features(shown), theirs(shown))
    assert ours.features(shown).shape == (1, 2, 1152)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (3, 36), (36, 3), (6, 9), (9, 6), (9, 12)])
def test_every_shape_of_picture(shape: tuple[int, int], dtype: mx.Dtype) -> None:
    ours, theirs = both(dtype, **SMALL)
    assert same(ours.features(pixels(*shape)), theirs(pixels(*shape)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_projections_that_clip(dtype: mx.Dtype) -> None:
    ours, theirs = both(dtype, **SMALL, use_clipped_linears=True)
    free, _ = both(dtype, **SMALL)
    shown = pixels(6, 9)
    assert same(ours.features(shown), theirs(shown))
    assert not same(ours.features(shown), free.features(shown))
    held = ours.layers[1].mlp.up_proj.bounds
    assert {name: round(float(bound.array), 1) for name, bound in held.items()} == BOUNDS


def test_a_tower_that_does_not_standardize() -> None:
    ours, theirs = both(**SMALL, standardize=False)
    assert same(ours.features(pixels(6, 9)), theirs(pixels(6, 9)))


def test_groups_of_queries_that_share_keys() -> None:
    ours, theirs = both(**SMALL, num_attention_heads=4, num_key_value_heads=2, head_dim=48)
    assert same(ours.features(pixels(6, 9)), theirs(pixels(6, 9)))


def test_places_beyond_the_tables_have_no_embedding() -> None:
    ours, theirs = both(**SMALL, position_embedding_size=7)
    assert same(ours.features(pixels(3, 12)), theirs(pixels(3, 12)))
    assert not np.array(ours.patch_embedder.places(ours.grid(9, 9)).astype(mx.float32))[-1].any()


def test_a_stack_is_looked_at_as_its_pictures_are() -> None:
    ours, theirs = both(**SMALL)
    stack = pixels(6, 9, batch=3)
    alone = mx.concatenate([ours.features(stack[i : i + 1]) for i in range(3)], axis=1)
    assert same(alone, theirs(stack))
    assert same(alone, theirs([stack[i] for i in range(3)]))
    assert same(ours.features(stack).reshape(alone.shape), alone)


def test_the_room_of_published_checkpoints() -> None:
    ours, theirs = both(num_hidden_layers=1)
    shown = pixels(15, 24)
    assert same(ours.features(shown), theirs(shown))


def test_more_patches_than_there_is_room_for_are_refused() -> None:
    ours, _ = both(**SMALL)
    with pytest.raises(PictureError, match=r"12 x 12 patches. Expected: at most 108"):
        ours.features(pixels(12, 12))


def test_padding_never_reaches_a_patch() -> None:
    small, _ = both(default_output_length=6)
    large, _ = both(default_output_length=40)
    narrow, wide = (np.array(tower.features(pixels(6, 9)).astype(mx.float32)) for tower in (small, large))
    # On a CPU they are equal to the bit; a GPU may take another kernel at another length, and this is bfloat16, whose
    # last place is 0.8%, through a stack of layers. A patch that saw padding would be off by its whole size.
    assert np.allclose(narrow, wide, rtol=0.05, atol=0.05)


def test_widths_that_have_a_fused_kernel() -> None:
    assert [fused_width(width) for width in (48, 64, 72, 80, 96, 128, 130)] == [64, 64, 80, 80, 128, 128, 130]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_as_many_layers_as_published_checkpoints_have(dtype: mx.Dtype, record_property: Callable[..., None]) -> None:
    """Not one bit differs after 27 layers; beside that, what bfloat16 costs the reference itself, layer by layer."""
    ours, theirs = both(dtype, **SMALL, num_hidden_layers=27)
    exact, _ = both(mx.float32, **SMALL, num_hidden_layers=27)
    shown = pixels(6, 9)
    grid = ours.grid(6, 9)
    h, wide = (tower.patch_embedder(shown, grid) for tower in (ours, exact))
    own = []
    for layer, widely in zip(ours.layers, exact.layers, strict=True):
        h, wide = layer(h, grid, ours.rope(grid)), widely(wide, grid, exact.rope(grid))
        gap = np.array(h.astype(mx.float32)) - np.array(wide)
        own.append(float(np.sqrt(np.mean(gap**2) / np.mean(np.array(wide) ** 2))))
        record_property(f"relative error of layer {len(own) - 1}", own[-1])
    assert same(ours.features(shown), theirs(shown))
    assert max(own) < (0.1 if dtype == mx.bfloat16 else 1e-6)
    assert dtype == mx.float32 or own[-1] > own[0] > 1e-3
