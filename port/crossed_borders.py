"""Borders that a watched run crosses, handed on in order: what lies there is computed for many of them at once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import ml_dtypes
import mlx.core as mx
import numpy as np

Trace = dict[str, np.ndarray]
Found = Mapping[str, np.ndarray | mx.array]
Emit = Callable[[str, str, Trace, Trace], None]
Finish = Callable[[Trace], Trace]

_MOST = 1 << 26  # bytes that may wait, 64 MiB: several passes of a small model, or about one layer of a large one


@dataclass(frozen=True)
class _Held:
    """What an array of MLX is now: later the same object may be written into. Of bfloat16, its 16 bits."""

    array: mx.array
    bfloat16: bool

    def numpy(self) -> np.ndarray:
        x = np.array(self.array)
        return x.view(ml_dtypes.bfloat16) if self.bfloat16 else x


_Trace = dict[str, np.ndarray | _Held]


class Crossings:
    """Hands on what lies at a border, but not at once: whoever asks for an array's values waits until they are there.

    A run that waits at every border takes longer, and the busier the machine the longer; the product waits once a pass.

    At the end of a `with` block, however it ends, everything has been handed on.

    Args:
        emit: gets stage, occurrence, and the tensors that go in and come out, in numpy.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._waiting: list[tuple[str, str, _Trace, _Trace, Finish]] = []
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hand_on()

    def __call__(self, stage: str, occurrence: str, ins: Found, outs: Found, finish: Finish = dict) -> None:
        """A border was crossed; `finish` makes of what comes out, once it is known, what is handed on."""
        self._waiting.append((stage, occurrence, _held(ins), _held(outs), finish))
        self._bytes += sum(x.nbytes for found in (ins, outs) for x in found.values())
        if self._bytes > _MOST:
            self.hand_on()

    def hand_on(self) -> None:
        """Compute everything that waits, then emit it.

        Where MLX cannot compute it, nothing of it is emitted: a second look would find arrays said to be computed.
        """
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        _evaluate(found for _, _, ins, outs, _ in waiting for found in (ins, outs))
        for stage, occurrence, ins, outs, finish in waiting:
            self._emit(stage, occurrence, _numpy(ins), finish(_numpy(outs)))


def computed(found: Found) -> Trace:
    """Tensors in numpy, those of MLX evaluated all at once; bfloat16 is `ml_dtypes.bfloat16`."""
    held = _held(found)
    _evaluate([held])
    return _numpy(held)


def batched(arrays: Iterable[tuple[str, mx.array]]) -> Iterator[dict[str, mx.array]]:
    """Named arrays in their order, as many together as may wait."""
    some: dict[str, mx.array] = {}
    size = 0
    for name, x in arrays:
        some[name], size = x, size + x.nbytes
        if size > _MOST:
            yield some
            some, size = {}, 0
    if some:
        yield some


def _held(found: Found) -> _Trace:
    return {name: _hold(x) if isinstance(x, mx.array) else x for name, x in found.items()}


def _hold(x: mx.array) -> _Held:
    bfloat16 = x.dtype == mx.bfloat16
    return _Held(x.view(mx.uint16) if bfloat16 else mx.array(x), bfloat16)


def _evaluate(traces: Iterable[_Trace]) -> None:
    mx.eval([x.array for trace in traces for x in trace.values() if isinstance(x, _Held)])


def _numpy(trace: _Trace) -> Trace:
    return {name: x.numpy() if isinstance(x, _Held) else x for name, x in trace.items()}
