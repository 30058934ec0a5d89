"""A second opinion on where the port leaves the oracle: the line of a small edit that makes its outputs right.

Edits are tried in memory, in a process of their own; one counts where it mends what fails and breaks nothing that does
not. What is known is the port's source as it is, and the goldens.
"""

import ast
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goldens.errors import GoldenError
from goldens.store import Golden
from stages import planted
from stages.diff.sides import First
from stages.places import ROOT, checkpoint_path, golden_path
from stages.shelf import Held, differing_fields
from stages.spec import Table
from stages.trace.frames import Watch
from stages.trace.sites import Site

from .child import Check
from .found import Mend, Searched, ranked
from .queue import Line, Ran, Suspect, queue, suspicions
from .runner import Runner
from .scope import Scope, given, seen
from .text import Library, Source

SECONDS = 20.0  # of processor time that a search takes if nobody says otherwise
PATIENCE = 4  # times as long by the clock, where other things run here
LOOKING = 0.25  # share of the time for what passes and what does not, before any edit is tried
VERIFYING = 0.25  # share of it for the occurrences that one edit is held to
EACH = 3.0  # seconds that a run may take at most, of the port as it is
LEAST, TIMES = 0.6, 4  # seconds that a run with an edit may take, or so many times what it takes without
CHEAP = 0.1  # seconds of a run that allow to try everything on the marked line first
SEEN = 8  # other occurrences of the stage that are looked at before any edit is tried
OFTEN = 4  # calls of a function whose lines are looked at, in stages before it
NEAR, AT_ONCE = 8, 2  # occurrences of the stage that an edit is held to first, and how many in one question
CHECKS, OTHERS = 40, 6  # occurrences of the stage, and of other stages, that an edit is held to


@dataclass
class Search:
    """A search for one failing occurrence.

    Attributes:
        texts: Files of the port that are otherwise in memory than on disk.
        scopes: What names of its functions hold: see `edit_scope.seen`.
        marked: The line that is suspected already.
        preferred: Lines that somebody else suspects.
        seconds: How long the search may take.
        given: What its functions gave back: see `edit_scope.given`.
    """

    table: Table
    held: Held
    stage: str
    occurrence: str
    texts: dict[str, str]
    scopes: dict[tuple[str, str], Scope]
    marked: Site | None
    preferred: Sequence[Line] = ()
    seconds: float = SECONDS
    mode: str = "forced"
    given: dict[str, set[str]] = field(default_factory=dict)

    def run(self) -> Searched:
        """Look at what passes, then try edits until the time is over."""
        found, until = Searched(), time.monotonic() + PATIENCE * self.seconds
        with Runner(self.table.model, self.texts) as runner:
            asked = self._check(self.held.golden.path, self.held.case.name, self.held.compute, self.occurrence)
            first = self._ran(runner, asked, 0, max(EACH, self.seconds / 3))
            if not first.why:
                found.note = "in a process of its own the port passes"
            else:
                same, before = self._others(asked)
                ran = [first, *self._around(runner, same, before)]
                self._try(runner, ran, same, found, until)
            found.seconds = runner.used
        return found

    def _check(self, golden: Path, case: str, compute: str, occurrence: str, stage: str = "", mode: str = "") -> Check:
        return Check(
            golden=str(golden), checkpoint=str(self._checkpoint(case)), compute=compute, tier=self.held.tier,
            stage=stage or self.stage, occurrence=occurrence, case=case, mode=mode or self.mode,
        )  # fmt: skip

    def _checkpoint(self, case: str) -> Path:
        name = next(one.checkpoint for one in self.table.cases if one.name == case)
        return self.held.checkpoint.absolute() if name == self.held.case.checkpoint else checkpoint_path(name)

    def _ran(self, runner: Runner, check: Check, often: int, seconds: float) -> Ran:
        answer = runner.survey([check], often=often, seconds=seconds)[0]
        return Ran(check, answer["why"], answer["seconds"], {(file, line) for file, line in answer["lines"]})

    def _around(self, runner: Runner, same: list[Check], before: list[Check]) -> Iterator[Ran]:
        """Some other occurrences of the stage, and one of each stage before it, as long as there is time."""
        until = runner.used + self.seconds * LOOKING
        for check in same[:SEEN]:
            if runner.used > until:
                return
            yield self._ran(runner, check, 0, EACH)
        for check in before:
            if runner.used > until:
                return
            yield self._ran(runner, check, OFTEN, EACH)

    def _others(self, asked: Check) -> tuple[list[Check], list[Check]]:
        """(occurrences of the stage, occurrences of stages before it), of all goldens that may be judged alike."""
        same: list[list[Check]] = []
        before: dict[str, Check] = {}
        order = [stage.name for stage in self.table.stages]
        earlier = order[: order.index(self.stage)][::-1]
        for golden, case, compute in self._goldens():
            own = [self._check(golden.path, case, compute, one) for one in golden.occurrences(self.stage)]
            same.append([one for one in own if one != asked])
            for name in earlier:
                if name not in before and (there := golden.occurrences(name)):
                    before[name] = self._check(golden.path, case, compute, there[0], name, "forced")
        turns = max(map(len, same), default=0)
        mixed = [checks[n] for n in range(turns) for checks in same if n < len(checks)]
        return mixed, [before[name] for name in earlier if name in before]

    def _goldens(self) -> Iterator[tuple[Golden, str, str]]:
        """The golden itself, then those beside it that the same backend recorded of the same cases."""
        held = self.held
        yield held.golden, held.case.name, held.compute
        usual = held.checkpoint.absolute() == checkpoint_path(held.case.checkpoint).absolute()
        pairs = [(case, compute) for case in self.table.cases for compute in case.computes]
        for case, compute in sorted(pairs, key=lambda pair: (pair[1] != held.compute, pair[1] != "float32")):
            path = golden_path(held.golden.path.parent, self.table.model, case.name, compute)
            if path == held.golden.path or not path.exists() or not (usual or case.checkpoint == held.case.checkpoint):
                continue
            try:
                golden = Golden.open(path)
            except GoldenError:
                continue  # `harness run` says what is wrong with it
            facts = golden.manifest
            if facts["canary"] == held.golden.manifest["canary"] and not differing_fields(facts["case"], case):
                yield golden, case.name, compute

    def _try(self, runner: Runner, ran: list[Ran], same: list[Check], found: Searched, until: float) -> None:
        started = runner.used
        own = [one for one in ran if one.check.stage == self.stage and one.check.mode == self.mode]
        failing = sorted((one for one in own if one.why), key=lambda one: one.seconds)
        passing = sorted((one for one in ran if not one.why), key=lambda one: one.seconds)
        chosen = [one.check for one in failing[:1]]
        known = [one.check for one in failing[1:]] + [one.check for one in passing if one in own]
        rest = [*known, *(one for one in same if one not in known and one not in chosen)][:CHECKS]
        limit = max(LEAST, TIMES * failing[0].seconds)
        sources = self._sources({file for one in failing for file, _ in one.lines})
        suspect = Suspect(self.marked, self.preferred, first=failing[0].seconds < CHEAP)
        enough = 0.0
        for edit, score in queue(sources, suspicions(failing, passing), suspect, self.scopes):
            if runner.used > min(self.seconds, enough or self.seconds) or time.monotonic() > until:
                break
            text = sources[edit.file].text
            asked = {"file": edit.file, "text": edit.applied(text), "imported": edit.imported}
            found.tried += 1
            if runner.held(asked, chosen, limit)[0] < len(chosen):
                continue
            others = [one.check for one in passing if one not in own and edit.file in {file for file, _ in one.lines}]
            held, wrong = self._verified(runner, asked, [*rest[:NEAR], *others[:OTHERS], *rest[NEAR:]])
            if not wrong:
                site = Site(edit.file, edit.line, edit.function.rpartition(".")[2])
                found.mends.append(Mend(site, edit.said(text), edit.kind, held + len(chosen), score))
                # Others may mend as well: some are looked for, fewer where it was suspected already.
                sure = self.marked and (site.file, site.line) == (self.marked.file, self.marked.line)
                enough = enough or runner.used + (1.0 if sure else max(2.0, 0.3 * (runner.used - started)))
        found.mends = ranked(found.mends, self.marked)

    def _verified(self, runner: Runner, asked: dict[str, Any], checks: list[Check]) -> tuple[int, str]:
        """How many other occurrences pass with an edit, as long as there is time, and what is wrong with the next."""
        until = runner.used + self.seconds * VERIFYING
        for n in range(0, len(checks), AT_ONCE):
            some = checks[n : n + AT_ONCE]
            held, why = runner.held(asked, some, EACH)
            if held < len(some) or runner.used > until:
                return n + held, why
        return len(checks), ""

    def _sources(self, files: Iterable[str]) -> dict[str, Source]:
        library = Library(given=self.given)
        texts = {}
        for path in sorted((ROOT / "port").rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            texts[file] = self.texts.get(file) or path.read_text(encoding="utf-8")
            library.add(file, ast.parse(texts[file]))
        return {file: Source(file, texts[file], library) for file in sorted(files)}


def mended(
    table: Table, held: Held, stage: str, occurrence: str, marked: First | None, watch: Watch | None, seconds: float,
    mode: str = "forced",
) -> Searched:  # fmt: skip
    """Search for an edit that mends a failing occurrence: fed the oracle's inputs, or as the ordinary run has it."""
    at = marked.at if marked else None
    search = Search(
        table, held, stage, occurrence, dict(planted.TEXTS), seen(watch), at,
        preferred=[(one.file, one.line) for one in (marked.suspects if marked else ())],
        seconds=seconds, mode=mode, given=given(watch),
    )  # fmt: skip
    return search.run()
