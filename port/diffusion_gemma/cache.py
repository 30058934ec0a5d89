"""Key-value caches: what the encoder writes, and what the canvas then reads.

All three hold the keys and values of one layer and speak alike:
`update` appends a pass and returns what its attention may see; `seen` is what a canvas may see, oldest first.

Legend: B batch, G key-value heads, T tokens of a pass, S cached tokens, d head width.
"""

from typing import Protocol

import mlx.core as mx

from port.errors import PortError

from .aliases import Pair

_STEP = 256  # slots that a ring takes at a time, until it has its full length


class Cache(Protocol):
    """One layer's keys and values, as they lie in its buffers. `offset` counts the tokens seen so far."""

    offset: int
    keys: mx.array | None
    values: mx.array | None

    @property
    def cursor(self) -> int:
        """The slot that the next token is written to."""
        ...

    def update(self, keys_BGTd: mx.array, values_BGTd: mx.array) -> Pair:
        """Append T tokens; return the keys and values that their attention sees, theirs included."""
        ...

    def seen(self) -> Pair | None:
        """The keys and values that a canvas sees, [B, G, S, d] in temporal order; None when nothing was written."""
        ...


class GrowingCache:
    """Everything, for ever: full-attention layers.

    Args:
        keys: [B, G, S, d] to begin with, or None.
        values: likewise.
    """

    def __init__(self, keys: mx.array | None = None, values: mx.array | None = None) -> None:
        self.keys = keys
        self.values = values
        self.offset = 0 if keys is None else keys.shape[2]

    @property
    def cursor(self) -> int:
        """The end: a growing cache writes where it stops."""
        return self.offset

    def update(self, keys_BGTd: mx.array, values_BGTd: mx.array) -> Pair:
        """Append T tokens; return all S + T."""
        if self.keys is None or self.values is None:
            self.keys, self.values = keys_BGTd, values_BGTd
        else:
            self.keys = mx.concatenate([self.keys, keys_BGTd], axis=2)
            self.values = mx.concatenate([self.values, values_BGTd], axis=2)
        self.offset += keys_BGTd.shape[2]
        return self.keys, self.values

    def seen(self) -> Pair | None:
        """All of it, or None when nothing was written."""
        return None if self.keys is None or self.values is None else (self.keys, self.values)


class RotatingCache:
    """The last tokens only: sliding layers.

    A pass of several tokens keeps window - 1 older ones, so that its first token has its whole window; the buffer is
    then longer than the window, in temporal order. A pass of one token writes in place, into a ring of `window` slots.

    Args:
        window: tokens that a query sees, itself included.
        keys: the buffer to begin with, [B, G, S, d], or None.
        values: likewise.
        offset: tokens seen before.
        cursor: the slot after the newest token.
    """

    def __init__(
        self,
        window: int,
        keys: mx.array | None = None,
        values: mx.array | None = None,
        offset: int = 0,
        cursor: int = 0,
    ) -> None:
        self.window = window
        self.keys = keys
        self.values = values
        self.offset = offset
        self.cursor = cursor

    def _ordered(self, buffer: mx.array) -> mx.array:
        """Oldest first, without slots that were never written."""
        if self.cursor == buffer.shape[2]:
            return buffer
        newest = buffer[..., : self.cursor, :]
        return mx.concatenate([buffer[..., self.cursor :, :], newest], axis=2) if self.cursor < self.offset else newest

    def _append(self, keys_BGTd: mx.array, values_BGTd: mx.array) -> Pair:
        past = self.seen()
        if past is None:
            return keys_BGTd, values_BGTd
        stale = max(past[0].shape[2] - (self.window - 1), 0)
        keys, values = (part[..., stale:, :] for part in past)
        return mx.concatenate([keys, keys_BGTd], axis=2), mx.concatenate([values, values_BGTd], axis=2)

    def _ring(self, buffer: mx.array | None, like: mx.array) -> mx.array:
        """The buffer with a slot free for one token: lengthened while short, cut to the window once past it."""
        length = 0 if buffer is None else buffer.shape[2]
        if buffer is None or (self.offset >= length and length < self.window):
            batch, heads, _, width = like.shape
            spare = mx.zeros((batch, heads, min(_STEP, self.window - self.offset), width), dtype=like.dtype)
            return spare if buffer is None else mx.concatenate([buffer, spare], axis=2)
        return buffer[..., max(length - self.window, 0) :, :]

    def update(self, keys_BGTd: mx.array, values_BGTd: mx.array) -> Pair:
        """Append T tokens; return the window before them and themselves (for one token: the ring, in ring order)."""
        tokens = keys_BGTd.shape[2]
        if tokens > 1:
            self.keys, self.values = self._append(keys_BGTd, values_BGTd)
            self.offset += tokens
            self.cursor = self.keys.shape[2]
            return self.keys, self.values
        longer = self.keys is None or (self.offset >= self.keys.shape[2] and self.keys.shape[2] < self.window)
        cut = self.keys is not None and self.keys.shape[2] > self.window
        at = self.offset if longer else self.window if cut else self.cursor
        at = 0 if at == self.window else at
        keys, values = self._ring(self.keys, keys_BGTd), self._ring(self.values, values_BGTd)
        # A copy, so that a buffer handed out earlier keeps its contents.
        self.keys = mx.slice_update(keys, keys_BGTd, mx.array([at]), axes=(2,))
        self.values = mx.slice_update(values, values_BGTd, mx.array([at]), axes=(2,))
        self.offset += 1
        self.cursor = at + 1
        return self.keys[..., : self.offset, :], self.values[..., : self.offset, :]

    def seen(self) -> Pair | None:
        """The buffer in temporal order, or None when nothing was written; it may be longer than the window."""
        if self.keys is None or self.values is None:
            return None
        return self._ordered(self.keys), self._ordered(self.values)


class StaticCache:
    """A buffer of fixed length, allocated once: no copies as blocks are added. It never holds the canvas.

    Args:
        capacity: the most tokens it will hold.
        window: tokens that a query sees, itself included; None for full attention.
    """

    def __init__(self, capacity: int, window: int | None = None) -> None:
        self.capacity = capacity
        self.window = window
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.offset = 0

    @property
    def cursor(self) -> int:
        """The end of what was written."""
        return self.offset

    def update(self, keys_BGTd: mx.array, values_BGTd: mx.array) -> Pair:
        """Write T tokens behind the others; return what they see: everything, or the window before them and themselves.

        Raises:
            PortError: more tokens than `capacity`.
        """
        start, stop = self.offset, self.offset + keys_BGTd.shape[2]
        if stop > self.capacity:
            raise PortError(
                "static cache",
                found=f"{stop} tokens for {self.capacity} slots",
                expected="prompt and finished canvases to fit",
                mend=f"make the cache with a capacity of at least {stop}",
            )
        if self.keys is None or self.values is None:
            batch, heads, _, width = keys_BGTd.shape
            self.keys = mx.zeros((batch, heads, self.capacity, width), dtype=keys_BGTd.dtype)
            self.values = mx.zeros((batch, heads, self.capacity, width), dtype=values_BGTd.dtype)
        self.keys[..., start:stop, :] = keys_BGTd
        self.values[..., start:stop, :] = values_BGTd
        self.offset = stop
        first = 0 if self.window is None else max(start - (self.window - 1), 0)
        return self.keys[..., first:stop, :], self.values[..., first:stop, :]

    def seen(self) -> Pair | None:
        """All that was written, without the slots that were not; None when nothing was."""
        if self.keys is None or self.values is None:
            return None
        return self.keys[..., : self.offset, :], self.values[..., : self.offset, :]
