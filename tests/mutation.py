"""One-line changes of the port, planted in memory for the length of a `with` block, and who objects first."""

import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from goldens.store import Golden
from port.diffusion_gemma import cuts
from reports.verdict import Status, line
from stages import diffusion_gemma_engine
from stages.cases import plan
from stages.cli import table_of
from stages.judge import Judge
from stages.places import COMMITTED, checkpoint_path, golden_path

TABLE = table_of("diffusion_gemma")


@dataclass(frozen=True)
class Change:
    """One line of the port for another.

    Attributes:
        name: What a reader calls it.
        where: Module and function, or method, in port/diffusion_gemma: `samplers.accept_confidence`.
        old: A piece of its source that occurs once.
        new: What stands there instead.
        stage: Who has to object first.
        cases: Which goldens are asked.
    """

    name: str
    where: str
    old: str
    new: str
    stage: str
    cases: tuple[str, ...] = ("decisions",)


@contextmanager
def planted(change: Change) -> Iterator[None]:
    """The port with one line changed: every module of it that holds the function holds the changed one."""
    module_name, _, path = change.where.partition(".")
    module = importlib.import_module(f"port.diffusion_gemma.{module_name}")
    owner_name, _, method = path.rpartition(".")
    owner = getattr(module, owner_name) if owner_name else module
    original = vars(owner)[method]
    source = textwrap.dedent(inspect.getsource(original))
    assert source.count(change.old) == 1, f"{change.where} has {change.old!r} {source.count(change.old)} times"
    namespace = dict(vars(module))
    exec(compile(source.replace(change.old, change.new), f"<{change.name}>", "exec"), namespace)
    changed = namespace[method]
    holders = [owner] if owner_name else [m for name, m in list(sys.modules.items()) if name.startswith("port.")]
    places = [(h, name) for h in holders for name, value in list(vars(h).items()) if value is original]
    with ExitStack() as stack:
        for holder, name in places:
            stack.callback(setattr, holder, name, original)
            setattr(holder, name, changed)
        yield


_models: dict[str, Any] = {}


def objection(cases: tuple[str, ...], compute: str = "float32") -> tuple[str, str]:
    """The first stage of the engine, in table order, whose verdicts on these goldens fail, and the first such line."""
    judges = []
    for case in TABLE.cases:
        if case.name not in cases:
            continue
        where = checkpoint_path(case.checkpoint)
        if case.checkpoint not in _models:
            _models[case.checkpoint] = cuts.load(where, compute)
        golden = Golden.open(golden_path(COMMITTED, TABLE.model, case.name, compute))
        config = json.loads((where / "config.json").read_text())
        name = f"{case.name}/{compute}"
        judges.append(Judge(TABLE, golden, name, "exact", _models[case.checkpoint], plan(case, config)))
    for stage in TABLE.stages:
        if stage not in diffusion_gemma_engine.stages:
            continue
        for judge in judges:
            rows = [*judge.forced(stage), *judge.free(stage)]
            if wrong := [row for row in rows if row.status in (Status.FAIL, Status.ERROR)]:
                return stage.name, line(wrong[0])
    return "", ""
