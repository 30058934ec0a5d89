"""Who sees ahead: within one picture every soft token sees every other.

Legend: B batch, T tokens.
"""

import mlx.core as mx

from .splice import IMAGE, VIDEO


def picture_blocks(types_BT: mx.array) -> mx.array | None:
    """Which pairs of tokens belong to one picture.

    A picture is an unbroken run of soft tokens; openings and closings keep neighbours apart.

    Args:
        types_BT: token types.

    Returns:
        booleans [B, T, T], or None where there is no picture.
    """
    soft_BT = (types_BT == IMAGE) | (types_BT == VIDEO)
    if not bool(mx.any(soft_BT).item()):
        return None
    before_BT = mx.concatenate([mx.zeros_like(soft_BT[:, :1]), soft_BT[:, :-1]], axis=1)
    run_BT = mx.cumsum((soft_BT & ~before_BT).astype(mx.int32), axis=1)
    return (run_BT[:, :, None] == run_BT[:, None, :]) & soft_BT[:, :, None] & soft_BT[:, None, :]
