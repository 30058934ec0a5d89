"""Who may look at whom. A mask is None (everything), "causal", or booleans [B or 1, 1, queries, keys], true to see.

The three forms are chosen as the reference chooses them: they agree in value, but on a GPU each has its own kernel.

Legend: B batch, T tokens of an encoder pass, C canvas tokens, P prompt tokens, S keys.
"""

import mlx.core as mx

from port.errors import PortError

from .aliases import Mask


def visible(tokens: int, offset: int, window: int | None) -> int:
    """Keys that a pass of `tokens` sees after `offset` earlier ones, itself included.

    Args:
        tokens: T.
        offset: tokens seen before.
        window: tokens that a query sees, itself included; None for full attention.
    """
    return tokens + (offset if window is None else min(offset, window - 1))


def _padding(padding_BP: mx.array, total: int, keys: int) -> mx.array:
    """Booleans [B, 1, 1, keys] of the last `keys` of `total` positions; what the prompt does not cover is real."""
    batch, covered = padding_BP.shape
    real = mx.ones((batch, max(total - covered, 0)), dtype=mx.bool_)
    row_BS = mx.concatenate([padding_BP.astype(mx.bool_), real], axis=1)
    return row_BS[:, None, None, total - keys : total]


def encoder_mask(
    tokens: int,
    offset: int,
    window: int | None,
    padding_BP: mx.array | None = None,
    pictures_BTT: mx.array | None = None,
) -> Mask:
    """Causal, within the window, and blind to padding; but within a picture everything is seen, ahead and afar.

    Args:
        tokens: T.
        offset: tokens seen before.
        window: tokens that a query sees, itself included; None for full attention.
        padding_BP: booleans, true for real tokens, from position 0 on; None when all are.
        pictures_BTT: booleans, true for two tokens of one picture; only with nothing before them. None without any.

    Raises:
        PortError: one padded token behind a full ring, whose keys are not in the order of their positions.
    """
    keys = visible(tokens, offset, window)
    if padding_BP is not None and tokens == 1 and window is not None and offset >= window:
        raise PortError(
            "encoder mask",
            found=f"a pass of one token at position {offset}, with padding, behind a window of {window}",
            expected="padding in the passes that fill the window only",
            mend="leave the padding out, or encode at least two tokens together",
        )
    if padding_BP is None and pictures_BTT is None:
        if tokens == 1:
            return None
        if window is None or keys <= window:
            return "causal"
    # Positions count from the oldest visible key: both rules depend on distances alone.
    key_S = mx.arange(keys)
    query_T1 = mx.arange(keys - tokens, keys)[:, None]
    mask_TS = query_T1 >= key_S
    if window is not None:
        mask_TS = mask_TS & (query_T1 < key_S + window)
    mask = mask_TS[None, None]
    if pictures_BTT is not None:
        mask = mask | pictures_BTT[:, None]
    return mask if padding_BP is None else mask & _padding(padding_BP, offset + tokens, keys)


def decoder_mask(canvas: int, cached: int, offset: int, window: int | None, padding_BP: mx.array | None = None) -> Mask:
    """The whole canvas, and before it the last window - 1 cached tokens, the same for every query.

    Args:
        canvas: C.
        cached: S, the keys that the cache shows.
        offset: tokens seen so far; more than S once a ring has wrapped.
        window: the window of a sliding layer; None for full attention.
        padding_BP: booleans, true for real tokens, over the prompt; None when all are.

    Returns:
        None, or booleans [B or 1, 1, C, S + C].
    """
    reach = cached if window is None else window - 1
    if padding_BP is None and cached <= reach:
        return None
    row = mx.arange(cached + canvas) >= cached - reach
    mask = row[None, None, None]
    if padding_BP is not None:
        mask = mask & _padding(padding_BP, offset + canvas, cached + canvas)
    return mx.broadcast_to(mask, (mask.shape[0], 1, canvas, cached + canvas))
