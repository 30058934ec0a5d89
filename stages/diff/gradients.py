"""Wrong derivatives of right values: which parameter's goes wrong first on the way back says where it is cut or begun.

What a framework differentiates it does inside, where no log is. On the way back an error shows in every parameter that
was used before its place, so of the wrong ones that which was used first latest lies right before it.
"""

import re
from collections.abc import Iterator
from typing import Any

from stages.gates import Tensor
from stages.trace.frames import PARAMETER
from stages.trace.likeness import evaluated, is_array, members
from stages.trace.oplog import FORMS

from .blame import caller
from .sides import First, Sides, number_of

DEPTH = 3  # a model may lie so deep in what the port's door is given


def cut_at(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> First | None:
    """The line that a derivative goes wrong at; None where the outputs that differ are of no parameters.

    Args:
        sides: The logs; every value on the way forward is the oracle's.
        outs: (the oracle's, the port's) of each output that differs.
    """
    parameters = dict(_parameters(sides))
    wrong = {name: found for name in outs if (found := parameters.get(_spelled(name))) is not None}
    if not wrong or len(wrong) < len(outs):
        return None
    used = {name: list(_uses(sides, found)) for name, found in wrong.items()}
    # Where it is wrong of all there are, it is wrong before it comes to any: at the last use of all.
    nearest = max if len(wrong) == len(parameters) else min
    name = max(used, key=lambda one: nearest(used[one], default=-1))
    if not used[name]:
        return None
    why = f"{name} is the last in use of {len(wrong)} whose gradient is wrong, and all values are right"
    ops = sides.port.ops
    if early := [at for form, found, at in sides.port.forms if form == "stop_gradient" and found == wrong[name]]:
        return First(number_of(sides, min(used[name])), early[-1], (early[-1],), why)
    for i in sorted(used[name], reverse=True):
        # What gives the value that it got is there for the sake of the derivative.
        kept = next((op for op in ops[i + 1 :] if op.digest == ops[i].digest and op.name != ops[i].name), None)
        if kept is not None and any(one.digest == kept.digest for one in kept.operands):
            return First(number_of(sides, i), kept.sites[-1] if kept.sites else None, kept.sites, why)
        stopped = [at for form, found, at in sides.port.forms if form == "stop_gradient" and found == ops[i].digest]
        if stopped:
            return First(number_of(sides, i), stopped[-1], ops[i].sites, why)
    i = nearest(used[name])
    return First(number_of(sides, i), caller(sides.port, i), ops[i].sites, why)


def _spelled(name: str) -> str:
    """An output's name as a parameter's, whatever stands between its parts."""
    return re.sub(r"\W", ".", name.rpartition("grads.")[2])


def _parameters(sides: Sides) -> Iterator[tuple[str, str]]:
    """(name, digest) of every parameter of what the port's door was given."""
    watch = sides.port.watch
    doors = [] if watch is None else [one for one in watch.frames if one.parent is None]
    for door in doors:
        for write in door.writes:
            if write.line == PARAMETER:
                for model in _models(write.value, DEPTH):
                    for name, value in _flat(model.parameters()):
                        yield name, sides.digest(evaluated(value))


def _models(value: Any, depth: int) -> Iterator[Any]:
    if callable(getattr(value, "parameters", None)) and not isinstance(value, type):
        yield value
    elif depth:
        for one in members(value):
            yield from _models(one, depth - 1)


def _flat(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if is_array(tree):
        yield name, tree
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    for part, value in items:
        yield from _flat(value, f"{name}.{part}" if name else str(part))


def _uses(sides: Sides, found: str) -> Iterator[int]:
    """Operations of what is compared that read an array, in whatever form."""
    forms: set[int] = set()
    for i, op in enumerate(sides.port.ops):
        if any(one.digest == found or one.op in forms for one in op.operands):
            if op.name in FORMS and op.name not in {"getitem", "concatenate"}:
                forms.add(i)
            elif i >= sides.port.start:
                yield i
