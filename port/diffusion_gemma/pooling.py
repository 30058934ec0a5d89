"""Patches to soft tokens: the average over each square of the picture, found by place.

Legend: B batch, P patches, N soft tokens, W the tower's hidden size, k patches a side of a square.
"""

import mlx.core as mx

from .grid import Grid


def pool(h_BPW: mx.array, grid: Grid, side: int) -> mx.array:
    """Average k x k squares of patches, then scale by the square root of the width.

    Patches of a square stand k rows apart, so no reshape brings them together: each is assigned by its place.

    Args:
        h_BPW: floats.
        grid: the patches, k dividing rows and columns.
        side: k.

    Returns:
        floats [B, N, W] in the dtype of h, squares in reading order.
    """
    columns_P, rows_P = grid.places
    square_P = columns_P // side + (grid.columns // side) * (rows_P // side)
    squares = (grid.columns // side) * (grid.rows // side)
    # In float32, as a sum over all patches with weights 1/k^2 and 0: the reference's own order of additions.
    weights_PN = (square_P[:, None] == mx.arange(squares)).astype(mx.float32) / side**2
    weights_BPN = mx.broadcast_to(weights_PN, (h_BPW.shape[0], *weights_PN.shape))
    pooled_BNW = mx.einsum("bpn,bpw->bnw", weights_BPN, h_BPW).astype(h_BPW.dtype)
    return pooled_BNW * h_BPW.shape[-1] ** 0.5
