"""Types that modules hand each other."""

from typing import Literal

import mlx.core as mx

# Keys and values.
Pair = tuple[mx.array, mx.array]
# None lets everything be seen; booleans [B or 1, 1, queries, keys] are true to see.
Mask = mx.array | Literal["causal"] | None
