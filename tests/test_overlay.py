"""Who sees ahead of whom, beside the reference's own function and by definition."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optiq.vlm._mlxvlm.models.diffusion_gemma.language import EncoderModel
from port_files import NANO

from port.diffusion_gemma import model as models
from port.diffusion_gemma.masks import encoder_mask
from port.diffusion_gemma.overlay import picture_blocks

KINDS = st.lists(st.sampled_from([0, 0, 1, 1, 1, 2, 3]), min_size=2, max_size=30)


class Asked:
    """What the reference's method looks at of its encoder."""

    class text_config:  # noqa: N801
        use_bidirectional_attention = "vision"


@settings(deadline=None)  # how busy the machine is decides nothing here
@given(KINDS)
def test_blocks_are_the_references(kinds: list[int]) -> None:
    types = mx.array([kinds], dtype=mx.int32)
    ours, theirs = picture_blocks(types), EncoderModel._vision_block_overlay(Asked(), types, len(kinds))
    assert (ours is None) == (theirs is None)
    if ours is not None:
        assert mx.array_equal(ours, theirs)


@settings(deadline=None)
@given(KINDS, st.sampled_from([None, 1, 4]))
def test_a_token_sees_its_past_within_the_window_and_all_of_its_picture(kinds: list[int], window: int | None) -> None:
    blocks = picture_blocks(mx.array([kinds]))
    mask = encoder_mask(len(kinds), 0, window, None, blocks)
    if blocks is None or not isinstance(mask, mx.array):
        return
    soft = [kind in {1, 2} for kind in kinds]
    for q, row in enumerate(np.array(mask)[0, 0]):
        for k, seen in enumerate(row):
            causal = k <= q and (window is None or q < k + window)
            assert seen == (causal or all(soft[min(q, k) : max(q, k) + 1]))


def test_a_configuration_without_pictures_both_ways_keeps_them_causal(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.load(NANO)
    types = mx.array([[0, 1, 1, 1, 0]])
    assert isinstance(model.encoder_masks(5, 0, None, types)[None], mx.array)
    assert model.encoder_masks(5, 0, None, types * 0)[None] == "causal"
    assert model.encoder_masks(5, 9, None, types)[None] == "causal"
    object.__setattr__(model.config.text_config, "use_bidirectional_attention", None)
    assert model.encoder_masks(5, 0, None, types)[None] == "causal"
