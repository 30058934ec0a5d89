"""A second opinion on where the port leaves the oracle: the line of a small edit that makes its outputs right.

Edits are tried in memory, in a process of their own; one counts where it mends what fails and breaks nothing that does
not. What is known is the port's source as it is, and the goldens.
"""

import ast
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from goldens.errors import GoldenError
from goldens.store import Golden

from . import planted
from .diff_sides import First
from .edit_scope import Scope, given, seen
from .edit_text import Library, Source
from .edits import Edit, edits
from .frames import Watch
from .mend_child import Check
from .mend_runner import Runner
from .opsites import Site
from .places import ROOT, checkpoint_path, golden_path
from .shelf import Held, differing_fields
from .spec import Table

Line = tuple[str, int]
DOORS = ("cuts.py", "taps.py", "borders.py", "record.py", "observe.py")  # of the port, where it meets the harness
SECONDS = 20.0  # that a search takes if nobody says otherwise
EACH = 3.0  # seconds that a run may take while it is looked at
LEAST = 0.6  # seconds that a run with an edit may take; it may take so many times what it takes without
TIMES = 4
CHEAP = 0.1  # seconds of a run that allow to try everything on the marked line first
PATIENCE = 5  # times the seconds of processor time, by the clock
VERIFYING = 0.25  # share of it for the occurrences that one edit is held to
LOOKING = 0.25  # share of the time for what passes and what does not, before any edit is tried
AGAIN, ALSO = 0.3, 0.04  # how much less an edit is worth for each before it, of its line and kind, and of its line
CHANCE = 0.25  # how much an occurrence of the stage that passes speaks for a line
LINES = 160  # the most suspicious of which edits are made
SEEN = 8  # other occurrences of the stage that are looked at before any edit is tried
SHOWN = 4  # other lines that are named
NEAR, AT_ONCE = 8, 2  # occurrences that are held to first, and how many of one edit in one question
CHECKS, OTHERS = 40, 6  # occurrences of the stage, and of other stages, that an edit is held to


@dataclass(frozen=True)
class Mend:
    """An edit that mends.

    Attributes:
        at: Its line.
        said: What it exchanges.
        held: How many occurrences pass with it.
        score: How suspicious its line was, and how likely its kind.
    """

    at: Site
    said: str
    kind: str
    held: int
    score: float


@dataclass
class Searched:
    """What a search came to.

    Attributes:
        mends: All edits that mend, the one to believe first.
        tried: How many were tried.
        seconds: Of processor time that it took.
        note: Why none was tried.
        began: When, by the clock.
    """

    mends: list[Mend] = field(default_factory=list)
    tried: int = 0
    seconds: float = 0.0
    note: str = ""
    began: float = 0.0


    def told(self) -> str:
        """What came of it, in one line."""
        if self.note:
            return f"no edit was tried: {self.note}"
        if not self.mends:
            return f"none of {self.tried} edits of the port that were tried in {self.seconds:.0f} s mends it"
        best = self.mends[0]
        places = sorted({str(one.at) for one in self.mends} - {str(best.at)})
        more = f"; so do edits of {', '.join(places[:SHOWN])}" if places else ""
        return f"{best.at}: {best.said} mends it: {best.held} occurrences pass with it, {self.tried} edits tried{more}"

    def believed(self, first: First | None) -> First | None:
        """Where the port first leaves the oracle, once the mends are known."""
        if not self.mends:
            return first
        best = self.mends[0]
        if first is not None and first.at is not None and (first.at.file, first.at.line) == (best.at.file, best.at.line):
            return replace(first, why=f"{first.why}; an edit of this line mends it: {best.said}")
        why = f"an edit of this line mends it: {best.said}"
        if first is not None:
            why += f"; by the operations it was {first.at}: {first.why}"
        return First(first.step if first else -1, best.at, (best.at,), why)


@dataclass
class Ran:
    """One occurrence, and which lines of the port it ran."""

    check: Check
    why: str
    seconds: float
    lines: set[Line]


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
        found = Searched(began=time.monotonic())
        with Runner(self.table.model, self.texts) as runner:
            asked = self._check(self.held.golden.path, self.held.case.name, self.held.compute, self.occurrence)
            first = self._ran(runner, asked, 0, max(EACH, self.seconds / 3))
            if not first.why:
                found.note = "in a process of its own the port passes"
            else:
                same, before = self._others(asked)
                until = runner.used + self.seconds * LOOKING
                ran = [first, *self._around(runner, same, before, until)]
                self._try(runner, ran, same, found)
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

    def _around(self, runner: Runner, same: list[Check], before: list[Check], until: float) -> Iterator[Ran]:
        """Some other occurrences of the stage, and one of each stage before it, as long as there is time."""
        for check in same[:SEEN]:
            if runner.used > until:
                return
            yield self._ran(runner, check, 0, EACH)
        for check in before:
            if runner.used > until:
                return
            yield self._ran(runner, check, 4, EACH)

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
        """The golden itself, then those beside it that the same backend recorded of the same cases; short ones first."""
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

    def _try(self, runner: Runner, ran: list[Ran], same: list[Check], found: Searched) -> None:
        started = runner.used
        own = [one for one in ran if one.check.stage == self.stage and one.check.mode == self.mode]
        failing = sorted((one for one in own if one.why), key=lambda one: one.seconds)
        passing = sorted((one for one in ran if not one.why), key=lambda one: one.seconds)
        chosen = [one.check for one in failing[:1]]
        known = [one.check for one in failing[1:]] + [one.check for one in passing if one in own]
        rest = [*known, *(one for one in same if one not in known and one not in chosen)][:CHECKS]
        limit = max(LEAST, TIMES * failing[0].seconds)
        sources = self._sources({file for one in failing for file, _ in one.lines})
        suspicion = suspicions(failing, passing)
        queue = self._queue(sources, suspicion, cheap=failing[0].seconds < CHEAP)
        done = 0.0
        for edit, score in queue:
            now = runner.used
            if now > self.seconds or (done and now > done) or time.monotonic() - found.began > PATIENCE * self.seconds:
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
                sure = self.marked and (site.file, site.line) == (self.marked.file, self.marked.line)
                done = done or now + (1.0 if sure else max(2.0, 0.3 * (now - started)))
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

    def _queue(self, sources: dict[str, Source], suspicion: dict[Line, float], *, cheap: bool) -> list[tuple[Edit, float]]:
        """All edits worth a try, the likeliest first; those of the marked line before all others."""
        for line in self.preferred:
            if line in suspicion:
                suspicion[line] *= 3
        mark = (self.marked.file, self.marked.line) if self.marked else None
        chosen = dict(sorted(suspicion.items(), key=lambda pair: -pair[1])[:LINES])
        if mark:
            chosen |= {line: found for line, found in suspicion.items() if line[0] == mark[0] and abs(line[1] - mark[1]) < 8}
        strings = tuple(sorted(_strings(sources, chosen)))
        named = _named(sources, chosen)
        queue: dict[tuple[str, int, int, str], tuple[Edit, float]] = {}
        for file, source in sources.items():
            if file.endswith(DOORS):
                continue
            lines = {line for name, line in chosen if name == file}
            constants = _constants(source, named)
            for edit in edits(source, lines | constants.keys(), self.scopes, strings):
                own = max(chosen.get((file, edit.line), 0.0), chosen.get((file, edit.statement), 0.0))
                score = edit.weight * (0.7 * constants.get(edit.line, 0.0) if edit.imported else own)
                if self.marked and file == self.marked.file:
                    score *= 2.5 if edit.function.rpartition(".")[2] == self.marked.function else 1.5
                    if edit.line == self.marked.line and not cheap:
                        score *= 2
                key = (file, edit.start, edit.end, edit.new)
                if score and (key not in queue or queue[key][1] < score):
                    queue[key] = edit, score
        first = (self.marked.file, self.marked.line) if self.marked and cheap else None
        return spread(queue.values(), first)


def spread(queue: Iterable[tuple[Edit, float]], first: Line | None) -> list[tuple[Edit, float]]:
    """By score, the likeliest first, one line and one kind of mistake not many times in a row; one line before all."""
    kinds: Counter[tuple[str, int, str]] = Counter()
    lines: Counter[Line] = Counter()
    found = []
    for edit, score in sorted(queue, key=lambda pair: -pair[1]):
        here, kind = (edit.file, edit.line), (edit.file, edit.line, edit.kind)
        found.append((edit, score / (1 + AGAIN * kinds[kind] + ALSO * lines[here])))
        kinds[kind] += 1
        lines[here] += 1
    return sorted(found, key=lambda pair: ((pair[0].file, pair[0].line) != first, -pair[1]))


def suspicions(failing: Sequence[Ran], passing: Sequence[Ran]) -> dict[Line, float]:
    """Of every line that a failing occurrence ran: how much it goes with failing (Ochiai's coefficient, 0 to 1).

    A stage that passes speaks for lines more than an occurrence of the failing stage, which may pass by chance.
    """
    stage = failing[0].check.stage
    fails = Counter(line for one in failing for line in one.lines)
    passes: dict[Line, float] = {}
    for one in passing:
        for line in one.lines:
            passes[line] = passes.get(line, 0.0) + (CHANCE if one.check.stage == stage else 1.0)
    return {line: count / math.sqrt(len(failing) * (count + passes.get(line, 0.0))) for line, count in fails.items()}


def _strings(sources: dict[str, Source], lines: Iterable[Line]) -> set[str]:
    """Short strings that stand in the files of these lines, which may be taken for each other."""
    files = {file for file, _ in lines}
    return {
        node.value
        for file, source in sources.items()
        if file in files
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 40
        and "\n" not in node.value and " " not in node.value
    }  # fmt: skip


def _named(sources: dict[str, Source], lines: dict[Line, float]) -> dict[str, float]:
    """Names and attributes that these lines speak of, and how suspicious these are."""
    named: dict[str, float] = {}
    for file, source in sources.items():
        for node in ast.walk(source.tree):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name and (found := lines.get((file, node.lineno))):  # type: ignore[attr-defined]
                named[name] = max(named.get(name, 0.0), found)
    return named


def _constants(source: Source, named: dict[str, float]) -> dict[int, float]:
    """Lines of a file that run on import and give a value to one of these names."""
    constants: dict[int, float] = {}
    owners = [source.tree, *(node for node in source.tree.body if isinstance(node, ast.ClassDef))]
    for node in (one for owner in owners for one in owner.body):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name) and part.id in named:
                        constants[node.lineno] = named[part.id]
    return constants


def ranked(mends: list[Mend], marked: Site | None) -> list[Mend]:
    """The one to believe first: on the marked line; else where most edits mend, and likely ones."""
    weight: Counter[tuple[str, int]] = Counter()
    for one in mends:
        weight[one.at.file, one.at.line] += one.score  # type: ignore[assignment]
    mark = (marked.file, marked.line) if marked else None
    return sorted(
        mends,
        key=lambda one: ((one.at.file, one.at.line) != mark, -weight[one.at.file, one.at.line], -one.score),
    )


def mended(table: Table, held: Held, stage: str, occurrence: str, marked: First | None, watch: Watch | None, seconds: float) -> Searched:
    """Search for an edit that mends a failing occurrence."""
    at = marked.at if marked else None
    search = Search(
        table, held, stage, occurrence, dict(planted.TEXTS), seen(watch), at, seconds=seconds, given=given(watch)
    )
    return search.run()
