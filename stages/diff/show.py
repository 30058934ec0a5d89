"""An opened occurrence, for people and for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from stages.trace.oplog import Op

from .far import Far
from .opened import Opened
from .sides import Step

LINES = 200  # operations shown before those that are equal are left out
HEAD = (
    f"{'':10}{'operation':27}{'max abs':>10}{'max ULP':>9}{'rel RMS':>9}{'cosine':>8}{'norm':>8}{'introd.':>9}"
    f"{'inherit.':>9}  port | oracle"
)
AROUND = 3  # equal operations shown before the first divergence then


def as_json(found: Opened) -> dict[str, Any]:
    """Everything, without the tensors."""
    return {
        "stage": found.stage,
        "occurrence": found.occurrence,
        "case": found.case,
        "tier": found.tier,
        "diverges": found.diverges,
        "failing": found.failing,
        "outs": _fars(found.outs),
        "margins": {n: dict(zip(("gate", "value", "bound"), one, strict=True)) for n, one in found.margins.items()},
        "free": {"ins": _fars(found.arrived), "outs": _fars(found.left)},
        "first": None if found.first is None else asdict(found.first),
        "mend": None if found.searched is None else asdict(found.searched),
        "operations": [_step(step) for step in found.steps],
        "notes": found.notes,
    }


def _fars(found: dict[str, Far | None]) -> dict[str, Any]:
    return {name: None if one is None else asdict(one) for name, one in found.items()}


def _step(step: Step) -> dict[str, Any]:
    def side(op: Op | None) -> dict[str, Any] | None:
        if op is None:
            return None
        shape, lines = list(op.out.shape), [asdict(site) for site in op.sites]
        return {"op": op.name, "told": op.fixed, "shape": shape, "dtype": str(op.out.dtype), "lines": lines}

    errors = {"total": step.total, "introduced": step.introduced, "inherited": step.inherited}
    return {
        "port": side(step.port),
        "oracle": side(step.oracle),
        **{name: None if one is None else asdict(one) for name, one in errors.items()},
    }


def lines(found: Opened) -> Iterator[str]:
    """What a terminal shows."""
    where = f"{found.stage}[{found.occurrence}]" if found.occurrence else f"loading, before {found.stage}"
    yield f"{where} of {found.case}, {found.tier} tier"
    for note in found.notes:
        yield f"note: {note}"
    if found.outs:
        yield "forced, fed the oracle's inputs:"
        yield from _table(found.outs)
    if found.arrived or found.left:
        yield "free, in the port's ordinary run (what arrived is inherited):"
        if found.arrived and all(one is not None and one.equal for one in found.arrived.values()):
            yield "  what arrived is the oracle's, bit for bit"
        else:
            yield from _table({f"in {name}": one for name, one in found.arrived.items()})
        yield from _table({f"out {name}": one for name, one in found.left.items()})
    if not found.diverges:
        equal = all(one is not None and one.equal for one in found.outs.values())
        how = "equal bit for bit" if equal else f"within its gate of the {found.tier} tier"
        yield f"nothing diverges: {len(found.steps)} operations, every output {how}"
        yield from (
            f"  room of {name}: {gate} {value:.3g} of {bound:g}" for name, (gate, value, bound) in found.margins.items()
        )
    elif found.first is not None:
        yield "first divergence:"
        yield f"  {found.first.at}: {found.first.why}"
        yield f"  by way of {' > '.join(f'{site} {site.function}' for site in found.first.path)}"
    elif any(step.oracle for step in found.steps) or not found.steps:
        yield "the outputs differ, and no operation on arrays inside explains it: look at the function itself"
    if found.searched is not None:
        yield f"  {found.searched.told()}"
    if found.steps:
        yield HEAD
    yield from _steps(found)


def _table(found: dict[str, Far | None]) -> Iterator[str]:
    for name, one in found.items():
        if one is None:
            yield f"  {name:16} not comparable: absent, or of another shape or dtype"
        elif one.equal:
            yield f"  {name:16} equal, all {one.of} elements"
        else:
            yield (
                f"  {name:16} {one.differing} of {one.of} elements differ, max abs {one.max_abs:.3g}, "
                f"max ULP {_short(one.max_ulp)}, relative RMS {_short(one.relative_rms)}, cosine {_short(one.cosine)}, "
                f"norm ratio {_short(one.norm_ratio)}"
            )


def _steps(found: Opened) -> Iterator[str]:
    mark = found.first.step if found.first else -1
    brief, left, shown = len(found.steps) > LINES, 0, 0
    for n, step in enumerate(found.steps):
        if brief and step.same and not mark - AROUND <= n <= mark:
            left += 1
            continue
        if n > mark and (shown := shown + 1) > LINES:
            yield f"{'':9}... and {len(found.steps) - n} more: all of them with --json"
            return
        if left:
            yield f"{'':9}... {left} equal operations"
            left = 0
        yield _line(n, step, marked=n == mark)
    if left:
        yield f"{'':9}... {left} equal operations"


def _line(n: int, step: Step, *, marked: bool) -> str:
    op = step.port or step.oracle
    assert op is not None
    shape = "x".join(map(str, op.out.shape))
    label = f"{'FIRST' if marked else '':6}{n:>3}{'<' if step.oracle is None else '>' if step.port is None else ' '}"
    total = step.total
    if step.port is None or step.oracle is None:
        numbers = f"{'only the port has it' if step.oracle is None else 'only the oracle has it':>62}"
    elif total is None:
        numbers = f"{'of other shape or dtype':>62}"
    elif total.equal:
        numbers = f"{'equal':>62}"
    else:
        numbers = (
            f"{_short(total.max_abs):>10}{_short(total.max_ulp):>9}{_short(total.relative_rms):>9}"
            f"{_short(total.cosine):>8}{_short(total.norm_ratio):>8}{_relative(step.introduced):>9}"
            f"{_relative(step.inherited):>9}"
        )
    places = " | ".join(str(one.sites[-1]) if one and one.sites else "-" for one in (step.port, step.oracle))
    return f"{label}{f'{op.name} {shape}'[:27]:27}{numbers}  {places}"


def _relative(one: Far | None) -> str:
    return "?" if one is None else "0" if one.equal else _short(one.relative_rms)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
