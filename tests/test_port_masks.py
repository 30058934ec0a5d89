"""The port's masks against their definition, position by position."""

from itertools import product

import mlx.core as mx
import numpy as np
import pytest

from port.diffusion_gemma.borders import written_out
from port.diffusion_gemma.masks import decoder_mask, encoder_mask, visible
from port.errors import PortError

W = 6


def keys_of(tokens: int, offset: int, window: int | None) -> list[int]:
    """Positions that a pass is handed: all, or the last window - 1 before it, and its own."""
    oldest = 0 if window is None else max(offset - (window - 1), 0)
    return list(range(oldest, offset + tokens))


@pytest.mark.parametrize("window", [None, W])
@pytest.mark.parametrize("padded", [False, True])
def test_an_encoder_token_sees_real_tokens_up_to_itself_within_the_window(window: int | None, padded: bool) -> None:
    for tokens, offset in product((1, 2, 5, 6, 7, 13), (0, 1, 4, 5, 6, 7, 20)):
        if padded and tokens == 1 and offset >= W and window:
            continue
        real = np.ones((2, offset + tokens), bool)
        real[1, : min(3, offset + tokens - 1)] = False
        mask = encoder_mask(tokens, offset, window, mx.array(real) if padded else None)
        keys = keys_of(tokens, offset, window)
        assert visible(tokens, offset, window) == len(keys)
        got = written_out(mask, tokens, len(keys))
        for row, (q, k) in product(range(got.shape[0]), product(range(tokens), range(len(keys)))):
            distance = offset + q - keys[k]
            expected = distance >= 0 and (window is None or distance < window) and (not padded or real[row, keys[k]])
            assert got[row, 0, q, k] == expected, (tokens, offset, row, q, k)


def test_padding_covers_the_prompt_alone_and_later_tokens_are_real() -> None:
    mask = encoder_mask(3, 4, None, mx.array([[False, True]]))
    assert written_out(mask, 3, 7)[0, 0].astype(int).tolist() == [
        [0, 1, 1, 1, 1, 0, 0],
        [0, 1, 1, 1, 1, 1, 0],
        [0, 1, 1, 1, 1, 1, 1],
    ]


def test_an_encoder_mask_takes_the_cheapest_form_that_says_it() -> None:
    assert encoder_mask(1, 0, None) is None
    assert encoder_mask(1, 50, W) is None
    assert encoder_mask(2, 50, None) == "causal"
    assert encoder_mask(6, 0, W) == "causal"
    assert encoder_mask(4, 2, W) == "causal"
    for tokens, offset in ((7, 0), (5, 2), (2, 50)):
        mask = encoder_mask(tokens, offset, W)
        assert isinstance(mask, mx.array)
        assert mask.shape == (1, 1, tokens, visible(tokens, offset, W))


def test_one_padded_token_behind_a_full_ring_is_refused() -> None:
    padding = mx.array([[False] + [True] * W])
    with pytest.raises(PortError, match="position 6, with padding, behind a window of 6"):
        encoder_mask(1, W, W, padding)
    assert encoder_mask(1, W, None, padding) is not None


@pytest.mark.parametrize("window", [None, 1, W])
@pytest.mark.parametrize("padded", [False, True])
def test_a_canvas_sees_itself_and_the_last_of_the_prompt(window: int | None, padded: bool) -> None:
    canvas = 3
    for cached, ahead in product((0, 1, 4, 5, 6, 7, 20), (0, 5)):
        offset = cached + ahead  # a ring shows only the last of what was seen
        real = np.ones((2, offset), bool)
        real[1, : offset // 2] = False
        mask = decoder_mask(canvas, cached, offset, window, mx.array(real) if padded else None)
        got = written_out(mask, canvas, cached + canvas)
        for row, q, k in product(range(got.shape[0]), range(canvas), range(cached + canvas)):
            near = window is None or k >= cached - (window - 1)
            expected = k >= cached or (near and (not padded or real[row, ahead + k]))
            assert got[row, 0, q, k] == expected, (cached, ahead, row, q, k)


def test_a_canvas_needs_no_mask_while_the_window_holds_the_prompt() -> None:
    assert decoder_mask(3, W - 1, W - 1, W) is None
    assert decoder_mask(3, 1000, 1000, None) is None
    assert decoder_mask(3, 0, 0, W) is None
    mask = decoder_mask(3, W, W, W)
    assert isinstance(mask, mx.array)
    assert mask.shape == (1, 1, 3, W + 3)
    assert mask[0, 0, 0].tolist() == [False] + [True] * (W + 2)


def test_padding_reaches_over_canvases_that_were_finished_before() -> None:
    mask = decoder_mask(2, 5, 5, None, mx.array([[False, True, True]]))
    assert isinstance(mask, mx.array)
    assert mask[0, 0, 1].tolist() == [False, True, True, True, True, True, True]
