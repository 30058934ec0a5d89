"""Every array operation of a piece of MLX code, in order: for the length of a `with` block the framework is patched.

Neither side is touched: what is patched are the callables of `mlx.core` (and `fast`, `random`, `linalg`, `fft`) and the
methods of its array, and each is put back. Compilation is off meanwhile, so that what a compiled function does is seen.
"""

import gc
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from stages.gates import FLOATS, Tensor, wide

from .frames import Frame, Watch
from .sites import Site, lines

# These call Python back, evaluate, or make no array of arrays.
LEFT = frozenset({
    "compile", "disable_compile", "enable_compile", "eval", "async_eval", "grad", "vjp", "jvp", "vmap",
    "value_and_grad", "checkpoint", "custom_function", "export_function", "exporter", "import_function", "load",
    "save", "save_safetensors", "savez", "array", "asarray", "depends",
})  # fmt: skip
PARTS = ("fast", "random", "linalg", "fft")
METHODS = frozenset({
    "astype", "flatten", "reshape", "squeeze", "abs", "square", "sqrt", "rsqrt", "reciprocal", "exp", "log",
    "log2", "log10", "sin", "cos", "log1p", "all", "any", "moveaxis", "swapaxes", "transpose", "sum", "prod",
    "min", "max", "logcumsumexp", "logsumexp", "mean", "std", "var", "split", "argmin", "argmax", "cumsum",
    "cumprod", "cummax", "cummin", "round", "diagonal", "diag", "conj", "view", "__getitem__", "__setitem__",
    "__neg__", "__invert__", "__abs__", "__matmul__", "__imatmul__",
})  # fmt: skip
TWO_SIDED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
PROPERTIES = ("T", "mT")
NAMED = {
    "sub": "subtract", "mul": "multiply", "truediv": "divide", "div": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "and", "or": "or", "eq": "equal", "ne": "not_equal", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "neg": "negative", "invert": "not", "T": "transpose",
    "mT": "transpose", "swapaxes": "transpose", "moveaxis": "transpose", "logical_and": "and", "bitwise_and": "and",
    "logical_or": "or", "bitwise_or": "or", "logical_not": "not", "bitwise_invert": "not", "concat": "concatenate",
    "permute_dims": "transpose", "take": "getitem",
}  # fmt: skip
# What only shows the same bytes in another form is no step of its own.
FORMS = frozenset({
    "reshape", "view", "squeeze", "expand_dims", "flatten", "unflatten", "astype", "stop_gradient",
    "contiguous", "getitem", "transpose", "broadcast_to", "concatenate", "atleast_1d", "atleast_2d",
    "atleast_3d",
})  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """What an operation was given.

    Attributes:
        op: Number of the operation that gave it, or -1: a weight, an input, a constant.
        digest: Of its bytes.
        shape: Its shape.
    """

    op: int
    digest: str
    shape: tuple[int, ...]


@dataclass
class Op:
    """One operation.

    Attributes:
        name: One name for each operation, whether it was written `x * y`, `y * x` or `mx.multiply(x, y)`.
        operands: Its arrays, in order.
        fixed: Everything else it was told, as text.
        out: What it gave; what gives several arrays counts as so many operations.
        digest: Of its bytes.
        sites: The lines that led to it, outermost first; files of the framework and of the harness left out.
        again: Does it once more, on other arrays, or told another number; None where it was read from a file.
        told: What `fixed` says, as values.
        frame: The call that asked for it, where calls are logged too, and when.
    """

    name: str
    operands: tuple[Operand, ...]
    fixed: str
    out: Tensor
    digest: str
    sites: tuple[Site, ...]
    again: Callable[..., Tensor] | None = None
    told: tuple[Any, ...] = field(default=(), repr=False)
    frame: Frame | None = field(default=None, repr=False)
    when: int = 0


@dataclass
class OpLog:
    """Operations in order of execution.

    Attributes:
        leaves: The arrays that none of them gave, by digest.
        start: Number of the first that belongs to what is compared: those before it made the model.
        watch: The calls of Python around them, where these are logged too.
        keys: Of the values that Python had on the way: see `whence.key`.
        forms: What gave back the bytes it got: (name, digest, the line that asked for it). Of a seed the number
            of operations before it stands instead of a digest.
        asked: For which numbers it was asked whether they are in something, and the answers.
        fractions: The whole numbers that each fraction was computed of: see `diff_options.fractions`.
    """

    ops: list[Op] = field(default_factory=list)
    leaves: dict[str, Tensor] = field(default_factory=dict)
    start: int = 0
    watch: Watch | None = field(default=None, repr=False)
    forms: list[tuple[str, str, Site]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    asked: set[tuple[int, bool]] = field(default_factory=set)
    fractions: dict[str, tuple[int, ...]] = field(default_factory=dict)


def digest(tensor: Tensor) -> str:
    """Of a tensor's bytes, whatever its shape."""
    return hashlib.sha256(np.ascontiguousarray(tensor).view(np.uint8).data).hexdigest()[:20]


@contextmanager
def recording(watch: Watch | None = None) -> Iterator[OpLog]:
    """Log every operation of MLX on this thread; with the calls of Python around them if `watch` logs these.

    Raises:
        ModuleNotFoundError: MLX is not installed.
    """
    import mlx.core as mx  # noqa: PLC0415 -- looking at a table needs no framework

    recorder = _Recorder(mx, watch)
    with ExitStack() as stack:
        for owner, name, original in _patched(mx):
            stack.callback(setattr, owner, name, original)
            setattr(owner, name, recorder.around(name, original))
        stack.callback(mx.enable_compile)
        mx.disable_compile()
        if gc.isenabled():  # all that is kept would be walked over again and again, and none of it is garbage
            stack.callback(gc.enable)
            gc.disable()
        yield recorder.log


def _patched(mx: Any) -> Iterator[tuple[Any, str, Any]]:
    for owner in (mx, *(getattr(mx, part) for part in PARTS)):
        for name, value in list(vars(owner).items()):
            if callable(value) and not isinstance(value, type) and not name.startswith("_") and name not in LEFT:
                yield owner, name, value
    sided = (f"__{way}{name}__" for name in TWO_SIDED for way in ("", "r", "i"))
    for name in (*METHODS, *PROPERTIES, *sided, *(f"__{name}__" for name in COMPARED)):
        if name in vars(mx.array):
            yield mx.array, name, vars(mx.array)[name]


def _canonical(name: str) -> str:
    bare = name.strip("_")
    if name.startswith("__") and bare[:1] in "ri" and bare[1:] in (*TWO_SIDED, "matmul"):
        bare = bare[1:]
    return NAMED.get(bare, bare)


class _Recorder:
    def __init__(self, mx: Any, watch: Watch | None) -> None:
        self.mx, self.log, self.watch = mx, OpLog(watch=watch), watch
        self._busy = False
        self._kept: list[Any] = []  # an array that lives keeps its id to itself
        self._known: dict[int, Operand] = {}
        self._made: dict[str, Operand] = {}

    def around(self, name: str, original: Any) -> Any:
        called = _canonical(name)
        if isinstance(original, property):
            return property(lambda this: self._noted(called, original.fget, (this,), {}))

        def operation(*args: Any, **named: Any) -> Any:
            return self._noted(called, original, args, named)

        return operation

    def _noted(self, name: str, original: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._busy:
            return original(*args, **named)
        self._busy = True
        tracer = sys.gettrace()
        sys.settrace(None)  # what the harness does here is on no way
        try:
            operands = [self._operand(array) for array in self._given(args, named)]
            result = original(*args, **named)
            changed = args[0] if name == "setitem" else result
            given = list(changed) if isinstance(changed, (list, tuple)) else [changed]
            if name == "seed" and (sites := lines()):
                self.log.forms.append((name, str(len(self.log.ops)), sites[-1]))
            if given and all(isinstance(one, self.mx.array) for one in given):
                self._note(name, original, args, named, operands, given)
            return result
        finally:
            self._busy = False
            sys.settrace(tracer)

    def _note(self, name: str, original: Any, args: Any, named: Any, operands: list[Operand], given: list[Any]) -> None:
        outs = [self.numpy(one) for one in given]
        digests = [digest(out) for out in outs]
        source = operands[0] if operands else None
        if name in FORMS and source is not None and len(outs) == 1 and source.digest == digests[0]:
            self._remember(given[0], Operand(source.op, digests[0], outs[0].shape))
            if source.op < 0:
                self.log.leaves[digests[0]] = outs[0]  # in the dtype that it is read in
            if self.watch is not None and (sites := lines()):
                self.log.forms.append((name, digests[0], sites[-1]))
            return
        if name == "astype" and source is not None and source.op < 0 and self._unchanged(source, outs[0]):
            # A weight in another dtype, and nothing lost: where it is made, and by whom, says nothing.
            self._remember(given[0], Operand(-1, digests[0], outs[0].shape))
            self.log.leaves[digests[0]] = outs[0]
            return
        fixed = ", ".join([
            *(_text(arg, self.mx) for arg in args if not self._arrays(arg)),
            *(f"{key}={_text(value, self.mx)}" for key, value in sorted(named.items()) if not self._arrays(value)),
        ])  # fmt: skip
        sites = lines()
        told = tuple(one for value in (*args, *named.values()) for one in _flat(value) if not self._arrays(one))
        frame, when = (None, 0) if self.watch is None else (self.watch.innermost(), self.watch.number)
        for i, (one, out, found) in enumerate(zip(given, outs, digests, strict=True)):
            made = Operand(len(self.log.ops), found, out.shape)
            self._made.setdefault(found, made)
            self._remember(one, made)
            again = None if name == "setitem" else self._again(original, args, named, i)
            called = name if len(given) == 1 else f"{name}[{i}]"
            self.log.ops.append(Op(called, tuple(operands), fixed, out, found, sites, again, told, frame, when))

    def _unchanged(self, source: Operand, out: Tensor) -> bool:
        value = self.log.leaves.get(source.digest)
        floats = value is not None and value.dtype in FLOATS and out.dtype in FLOATS
        return value is not None and floats and np.array_equal(wide(value).ravel(), wide(out).ravel())

    def _again(self, original: Any, args: Any, named: Any, which: int) -> Callable[..., Tensor]:
        def again(others: Mapping[int, Tensor], swap: tuple[Any, Any] | None = None) -> Tensor:
            self._busy = True
            try:
                count = iter(range(sys.maxsize))

                def other(value: Any) -> Any:
                    if isinstance(value, self.mx.array):
                        number = next(count)
                        return self.mlx(others[number], value) if number in others else value
                    if isinstance(value, (list, tuple)) and self._arrays(value):
                        return type(value)(other(one) for one in value)
                    if swap is not None and type(value) is type(swap[0]) and value == swap[0]:
                        return swap[1]
                    return value

                given = [other(value) for value in args]  # counted before those that are named
                result = original(*given, **{key: other(value) for key, value in named.items()})
                return self.numpy(result[which] if isinstance(result, (list, tuple)) else result)
            finally:
                self._busy = False

        return again

    def _given(self, args: Any, named: Any) -> list[Any]:
        return [array for value in (*args, *named.values()) for array in self._arrays(value)]

    def _arrays(self, value: Any) -> list[Any]:
        if isinstance(value, self.mx.array):
            return [value]
        if isinstance(value, (list, tuple)):
            return [array for one in value for array in self._arrays(one)]
        return []

    def _operand(self, array: Any) -> Operand:
        if id(array) not in self._known:
            value = self.numpy(array)
            found = digest(value)
            # A function that was compiled gets and gives its arrays in other objects: their bytes say whose they are.
            op = self._made[found].op if found in self._made else -1
            self._remember(array, Operand(op, found, value.shape))
            if op < 0:
                self.log.leaves[found] = value
        return self._known[id(array)]

    def _remember(self, array: Any, operand: Operand) -> None:
        self._kept.append(array)
        self._known[id(array)] = operand

    def numpy(self, array: Any) -> Tensor:
        if array.dtype == self.mx.bfloat16:
            return np.array(array.view(self.mx.uint16)).view(ml_dtypes.bfloat16)
        return np.array(array)

    def mlx(self, tensor: Tensor, like: Any) -> Any:
        if tensor.dtype == ml_dtypes.bfloat16:
            return self.mx.array(tensor.view(np.uint16)).view(self.mx.bfloat16).reshape(like.shape)
        return self.mx.array(tensor).reshape(like.shape)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    return [one for part in value for one in _flat(part)] if isinstance(value, (list, tuple)) else [value]


def _text(value: Any, mx: Any) -> str:
    if isinstance(value, mx.Dtype):
        return str(value).rpartition(".")[2]
    return repr(value) if not isinstance(value, (list, tuple)) else f"({', '.join(_text(v, mx) for v in value)})"
