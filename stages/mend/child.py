"""The process that runs edited code: `python -m stages.mend.child`. It is asked and answers in lines of JSON.

It may be killed at any time: whatever it holds is made of what it is told.
"""

import json
import os
import resource
import signal
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from goldens.store import Golden, Record
from stages import sides
from stages.asked import table_of
from stages.cases import plan
from stages.gates import judge
from stages.judge import _yardstick
from stages.places import ROOT
from stages.spec import Case, Stage, Table

from .edited import PACKAGE, Port, Texts, renewing_compiled

MEMORY = 6 << 30  # bytes that edited code may take beyond what the process holds when it begins
OFTEN = 6  # calls of one function whose lines are looked at, where every line of a run is not needed


class OverdueError(BaseException):
    """What runs too long; no handler of the port's own may keep it."""


class _ReachedError(Exception):
    """The ordinary run has come by the occurrence; the rest of it is of no interest."""


@dataclass(frozen=True)
class Check:
    """One occurrence of one golden that the port is held to.

    Attributes:
        mode: "forced", or "free": as the port's ordinary run reaches it.
    """

    golden: str
    checkpoint: str
    compute: str
    tier: str
    stage: str
    occurrence: str
    case: str
    mode: str = "forced"


@dataclass
class Seen:
    """Lines of the port that ran."""

    often: int = 0
    lines: set[tuple[str, int]] = field(default_factory=set)
    _calls: dict[CodeType, int] = field(default_factory=dict)
    _files: dict[CodeType, str] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note the lines of the port that run on this thread."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        file = self._files.get(code)
        if file is None:
            name = code.co_filename
            file = self._files[code] = name.removeprefix(f"{ROOT}/") if name.startswith(f"{ROOT}/{PACKAGE}/") else ""
        if not file or event != "call":
            return None
        self._calls[code] = self._calls.get(code, 0) + 1
        if self.often and self._calls[code] > self.often:
            return None
        lines = self.lines

        def went(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                lines.add((file, frame.f_lineno))
            return went

        return went


class Child:
    """Everything that is held between questions."""

    def __init__(self, model: str, texts: dict[str, str]) -> None:
        self.model = model
        self.table: Table = table_of(model)
        self.port = Port(Texts(texts))
        sys.meta_path.insert(0, self.port.finder)
        self.records: dict[Check, tuple[Record, int]] = {}
        self.port.reload(self.load)

    def load(self) -> None:
        """Import the port."""
        sides.cuts("port", self.model)
        sides.taps("port", self.model)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """One question: change, hold to some checks, put back."""
        checks = [Check(**one) for one in asked["checks"]]
        if asked["do"] == "survey":
            return {"found": [self._surveyed(check, asked["often"], asked["seconds"]) for check in checks]}
        answer: dict[str, Any] = {"passed": 0, "why": ""}
        try:
            with _limit(asked["seconds"]):
                if not self.port.change(self.load, asked["file"], asked["text"], imported=asked["imported"]):
                    return answer | {"why": "nothing that runs changes"}
            for check in checks:
                with _limit(asked["seconds"]):
                    if why := self._held(check):
                        return answer | {"why": why}
                answer["passed"] += 1
        except (Exception, OverdueError, SystemExit) as error:  # noqa: BLE001 -- edited code may raise anything
            return answer | {"why": f"{type(error).__name__}: {error}"[:200]}
        return answer

    def _surveyed(self, check: Check, often: int, seconds: float) -> dict[str, Any]:
        self.port.restore(self.load)
        seen = Seen(often)
        started = time.process_time()
        try:
            with _limit(seconds), seen.watching():
                why = self._held(check)
        except (Exception, OverdueError, SystemExit) as error:  # noqa: BLE001 -- whatever the port raises
            why = f"{type(error).__name__}: {error}"[:200]
        return {"why": why, "seconds": time.process_time() - started, "lines": sorted(seen.lines)}

    def _held(self, check: Check) -> str:
        """What the port does otherwise than the golden; nothing where it passes."""
        stage, record = self.table[check.stage], self._record(check)
        cuts = sides.cuts("port", self.model)
        model = cuts.load(Path(check.checkpoint), check.compute)
        if check.mode == "free":
            outs = self._reached(check, model)
        else:
            outs = sides.call(cuts, model, stage, check.occurrence, record.ins)
        return next(
            (
                name
                for name in sorted(record.outs.keys() | outs.keys())
                if not passes(stage, name, check.tier, record, outs)
            ),
            "",
        )

    def _reached(self, check: Check, model: Any) -> dict[str, Any]:
        config = json.loads((Path(check.checkpoint) / "config.json").read_text())
        case: Case = next(case for case in self.table.cases if case.name == check.case)
        crossed: dict[str, Any] = {}

        def emit(name: str, occurrence: str, _: Mapping[str, Any], outs: Mapping[str, Any]) -> None:
            if (name, occurrence) == (check.stage, check.occurrence):
                crossed.update(outs)
                raise _ReachedError

        try:
            sides.taps("port", self.model).run(model, plan(case, config), emit)
        except _ReachedError:
            return {name: np.asarray(tensor) for name, tensor in crossed.items()}
        return {}

    def _record(self, check: Check) -> Record:
        """What the golden holds. Edited code may write where it should not: what was changed is read again."""
        kept = self.records.get(check)
        if kept is None or _sum(kept[0]) != kept[1]:
            with Golden.open(Path(check.golden)) as golden:
                record = golden.read(check.stage, check.occurrence)
            kept = self.records[check] = record, _sum(record)
        record = kept[0]
        return replace(record, ins={name: tensor.copy() for name, tensor in record.ins.items()})


def _sum(record: Record) -> int:
    """Of all that a record holds, cheaply."""
    tensors = [*record.ins.values(), *record.outs.values(), *record.wide.values()]
    return reduce(lambda found, one: zlib.crc32(np.ascontiguousarray(one).tobytes(), found), tensors, 0)


def passes(stage: Stage, name: str, tier: str, record: Record, port: Mapping[str, Any]) -> bool:
    """Whether an output is there on both sides, and within its gate."""
    out = stage.out(name)
    if out is None or name not in record.outs or name not in port:
        return False
    return judge(out.gate(tier), record.outs[name], port[name], _yardstick(record, name, "forced"))[0]


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def overdue(*_: object) -> None:
        raise OverdueError(f"no end after {seconds:.1f} s")

    before = signal.signal(signal.SIGPROF, overdue)
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main() -> None:
    """Answer until nobody asks."""
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # whatever the port prints is no part of the answer
    os.dup2(quiet, 2)
    held = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 0
    )
    if held:
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    asked = json.loads(sys.stdin.readline())
    renewing_compiled()
    child = Child(asked["model"], asked["texts"])
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        answer = child.answer(json.loads(line))
        answers.write(json.dumps({**answer, "used": time.process_time()}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
