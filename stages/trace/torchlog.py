"""Every operation of a piece of PyTorch code, in order: an overriding mode of PyTorch itself, for a `with` block."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stages.gates import Tensor

from .oplog import FORMS, Op, Operand, OpLog, digest
from .sites import lines

# PyTorch's names where MLX calls the same thing otherwise.
NAMED = {
    "mul": "multiply", "sub": "subtract", "div": "divide", "true_divide": "divide", "pow": "power", "neg": "negative",
    "linear": "matmul", "embedding": "getitem", "cat": "concatenate", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_not": "not", "logical_not": "not", "logical_and": "and", "logical_or": "or", "eq": "equal",
    "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "silu": "silu",
    "invert": "not", "t": "transpose", "mT": "transpose", "T": "transpose", "gather": "take_along_axis",
    "matmul": "matmul", "masked_fill": "where", "to": "astype", "float": "astype", "type": "astype",
    "unsqueeze": "expand_dims", "repeat_interleave": "repeat", "expand": "broadcast_to", "permute": "transpose",
}  # fmt: skip
LEFT = frozenset({"size", "dim", "numpy", "item", "tolist", "detach_", "requires_grad_", "numel", "is_floating_point"})


@contextmanager
def recording(torch: Any) -> Iterator[OpLog]:
    """Log every operation of PyTorch that Python asks for on this thread; the module is the one the oracle uses."""
    mode: Any = torch.overrides.TorchFunctionMode
    log = OpLog()
    kept: list[Any] = []
    known: dict[int, Operand] = {}

    def plain(tensor: Any) -> Tensor:
        found: Tensor = tensor.detach().cpu().numpy().copy()
        return found

    def remember(tensor: Any, operand: Operand) -> None:
        kept.append(tensor)
        known[id(tensor)] = operand

    def operand(tensor: Any) -> Operand:
        if id(tensor) not in known:
            value = plain(tensor)
            found = digest(value)
            remember(tensor, Operand(-1, found, value.shape))
            log.leaves[found] = value
        return known[id(tensor)]

    class Mode(mode):  # type: ignore[misc]
        def __torch_function__(self, called: Any, types: Any, args: Any = (), named: Any = None) -> Any:
            name = canonical(called)
            operands = [operand(one) for one in _tensors((*args, *(named or {}).values()), torch)]
            result = called(*args, **(named or {}))
            given = list(result) if isinstance(result, (list, tuple)) else [result]
            if name in LEFT or not given or not all(isinstance(one, torch.Tensor) for one in given):
                return result
            for i, one in enumerate(given):
                out = plain(one)
                found = digest(out)
                if name in FORMS and operands and len(given) == 1 and operands[0].digest == found:
                    remember(one, Operand(operands[0].op, found, out.shape))
                    continue
                remember(one, Operand(len(log.ops), found, out.shape))
                fixed = ", ".join(repr(x) for x in args if isinstance(x, (int, float, bool, str)))
                title = name if len(given) == 1 else f"{name}[{i}]"
                log.ops.append(Op(title, tuple(operands), fixed, out, found, lines()))
            return result

    with Mode():
        yield log


def canonical(called: Any) -> str:
    """The name of an operation as the log of MLX has it."""
    name = str(getattr(called, "__name__", called))
    if name == "__get__":
        name = str(getattr(getattr(called, "__self__", None), "__name__", name))
    bare = name.strip("_")
    if name.startswith("__") and bare[:1] in "ri" and bare[1:] in {"add", "sub", "mul", "truediv", "pow", "and", "or"}:
        bare = bare[1:]
    bare = {"truediv": "divide"}.get(bare, bare)
    return NAMED.get(bare, bare)


def _tensors(value: Any, torch: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for part in value for one in _tensors(part, torch)] if isinstance(value, (list, tuple)) else []
