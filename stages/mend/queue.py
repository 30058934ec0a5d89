"""In which order edits are tried: by how much their line goes with failing, and how likely their kind of mistake is."""

import ast
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stages.trace.sites import Site

from .child import Check
from .edits import Edit, edits
from .scope import Scope
from .text import Source

Line = tuple[str, int]
DOORS = ("cuts.py", "taps.py", "borders.py", "record.py", "observe.py")  # of the port, where it meets the harness
AGAIN, ALSO = 0.3, 0.04  # how much less an edit is worth for each before it, of its place and kind, and of its line
CHANCE = 0.25  # how much an occurrence of the stage that passes speaks for a line
LINES = 160  # the most suspicious of which edits are made
NEARBY = 8  # lines around the marked one that are among them
PREFERRED = 3.0  # times as suspicious are lines that somebody else suspects
SAME_FUNCTION, SAME_FILE, SAME_LINE = 2.5, 1.5, 2.0  # times as suspicious is what is near the marked line
CLEARED = 0.6  # share of the highest suspicion, under which a line counts as cleared
CONSTANT = 0.7  # times as suspicious is what a suspicious line only speaks of


@dataclass
class Ran:
    """One occurrence, and which lines of the port it ran."""

    check: Check
    why: str
    seconds: float
    lines: set[Line]


@dataclass(frozen=True)
class Suspect:
    """What is suspected before any edit is tried.

    Attributes:
        marked: One line above all.
        preferred: Lines that somebody else suspects.
        first: Whether everything on the marked line is tried before anything else.
    """

    marked: Site | None
    preferred: Sequence[Line] = ()
    first: bool = True

    def times(self, edit: Edit) -> float:
        """How many times as likely an edit is for being near the marked line."""
        if self.marked is None or edit.file != self.marked.file:
            return 1.0
        if edit.line == self.marked.line:
            return SAME_FUNCTION * SAME_LINE
        return SAME_FUNCTION if edit.function.rpartition(".")[2] == self.marked.function else SAME_FILE


def queue(
    sources: dict[str, Source],
    suspicion: dict[Line, float],
    suspect: Suspect,
    scopes: Mapping[tuple[str, str], Scope],
) -> list[tuple[Edit, float]]:
    """All edits worth a try, the likeliest first."""
    marked = suspect.marked
    if marked and not suspect.first:
        # Where runs are dear, a marked line that earlier stages run and pass is not worth the time.
        most = max(suspicion.values(), default=0.0)
        marked = marked if suspicion.get((marked.file, marked.line), most) >= CLEARED * most else None
        suspect = replace(suspect, marked=marked)
    times = dict.fromkeys(suspect.preferred, PREFERRED)
    suspicion = {line: found * times.get(line, 1.0) for line, found in suspicion.items()}
    chosen = dict(sorted(suspicion.items(), key=lambda pair: (-pair[1], pair[0]))[:LINES])
    if marked:
        near = range(marked.line - NEARBY, marked.line + NEARBY + 1)
        chosen |= {line: found for line, found in suspicion.items() if line[0] == marked.file and line[1] in near}
    strings, named = tuple(sorted(_strings(sources, chosen))), _named(sources, chosen)
    found: dict[tuple[str, int, int, str], tuple[Edit, float]] = {}
    for file, source in sources.items():
        if file.endswith(DOORS):
            continue
        lines = {line for name, line in chosen if name == file}
        constants = _constants(source, named)
        for edit in edits(source, lines | constants.keys(), scopes, strings):
            own = max(chosen.get((file, edit.line), 0.0), chosen.get((file, edit.statement), 0.0))
            own = CONSTANT * constants.get(edit.line, own) if edit.imported else own
            score = edit.weight * own * suspect.times(edit)
            key = (file, edit.start, edit.end, edit.new)
            if score and (key not in found or found[key][1] < score):
                found[key] = edit, score
    return spread(found.values(), (marked.file, marked.line) if marked and suspect.first else None)


def spread(found: Iterable[tuple[Edit, float]], first: Line | None) -> list[tuple[Edit, float]]:
    """By score, the likeliest first, one place and one kind of mistake not many times in a row; one line before all."""
    kinds: Counter[tuple[str, int, str]] = Counter()
    lines: Counter[Line] = Counter()
    ordered = []
    for edit, score in sorted(found, key=lambda pair: -pair[1]):
        here, kind = (edit.file, edit.line), (edit.file, edit.start, edit.kind)
        ordered.append((edit, score / (1 + AGAIN * kinds[kind] + ALSO * lines[here])))
        kinds[kind] += 1
        lines[here] += 1
    return sorted(ordered, key=lambda pair: ((pair[0].file, pair[0].line) != first, -pair[1]))


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
    # As of one failing occurrence, however many were looked at: many of one stage do not outweigh stages that pass.
    shares = {line: count / len(failing) for line, count in fails.items()}
    return {line: share / math.sqrt(share + passes.get(line, 0.0)) for line, share in shares.items()}


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
    owners: list[ast.Module | ast.ClassDef] = [source.tree]
    owners += [node for node in source.tree.body if isinstance(node, ast.ClassDef)]
    for node in (one for owner in owners for one in owner.body):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name) and part.id in named:
                        constants[node.lineno] = named[part.id]
    return constants
