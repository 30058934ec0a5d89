"""A failing case made as small as it goes: whatever can be left out without another stage failing first, is.

Each candidate is recorded from the live oracle, in a process of its own, and judged here. What is halved and tried is
delta debugging's (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002).
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from goldens import canary
from reports.verdict import Status
from stages import casefile
from stages.cases import plan
from stages.errors import HarnessError, UsageError
from stages.judge import Judge
from stages.places import ROOT, checkpoint_path
from stages.shelf import Question, Shelf
from stages.spec import Case, Table

LISTS = ("ids", "texts", "chats", "assignments", "overlays", "generations", "pictures")
SHRINKS = (*LISTS, "canvas", "blocks", "padding", "chunks", "made")
Fails = Callable[[Case], bool]


@dataclass
class Shrinker:
    """Shrinks cases of one table in one compute dtype.

    Attributes:
        port: The loaded port, by checkpoint.
        record: Records a case from the oracle into a folder; False where the oracle refuses it.
        tried: How many candidates were judged.
    """

    table: Table
    compute: str
    port: Callable[[Path, str], Any]
    record: Callable[[Case, Path], bool]
    tier: str | None = None
    tried: int = 0
    _known: dict[str, str] = field(default_factory=dict)

    def shrink(self, case: Case, stage: str) -> Case:
        """The smallest case found that still fails at `stage` first.

        Raises:
            UsageError: it does not, as it is.
        """
        whole = self._spelled(case, stage)
        first = self.first(whole, stage)
        if first != stage:
            found = f"fails first at {first}" if first else f"does not fail up to {stage}"
            raise UsageError(f"{case.name}/{self.compute} {found}: there is nothing to shrink at {stage}")

        def fails(candidate: Case) -> bool:
            return self.first(candidate, stage) == stage

        small = whole
        while True:
            before = small
            for smaller in (_without, _shorter, _fewer):
                small = smaller(small, fails)
            if small == before:
                return small

    def _spelled(self, case: Case, stage: str) -> Case:
        """The same case, its drawn prompt written out: only what is written can be left out."""
        if type(case) is not Case:
            raise UsageError(f"{case.name} is a {type(case).__name__}, and only cases with prompts and canvases shrink")
        config = json.loads((checkpoint_path(case.checkpoint) / "config.json").read_text())
        ids = plan(case, config)["ids"]
        return replace(
            case,
            name=f"{case.name}-{stage}",
            why=f"the smallest of {case.name} that fails at {stage} first",
            ids=() if ids is None else tuple(int(one) for one in ids[0]),
            computes=(self.compute,),
        )

    def first(self, case: Case, stage: str) -> str:
        """The first stage in the table's order, `stage` at the last, that fails on a fresh golden; "" where none."""
        key = json.dumps(case.facts())
        if key not in self._known:
            self.tried += 1
            names = [row.name for row in self.table.stages]
            later = names[names.index(stage) + 1 :]
            asked = replace(case, leave=tuple(dict.fromkeys((*case.leave, *later))))
            with tempfile.TemporaryDirectory() as folder:
                self._known[key] = self._judged(asked, stage, Path(folder)) if self.record(asked, Path(folder)) else ""
        return self._known[key]

    def _judged(self, case: Case, stage: str, folder: Path) -> str:
        table = replace(self.table, cases=(case,))
        question = Question(goldens=folder, tier=self.tier)
        held = Shelf(table, question, canary.canary(), self.port).take(case, self.compute)
        config = json.loads((held.checkpoint / "config.json").read_text())
        model = self.port(held.checkpoint, self.compute)
        judge = Judge(table, held.golden, held.name, held.tier, model, plan(case, config))
        for row in table.stages:
            if any(one.status in (Status.FAIL, Status.ERROR) for one in (*judge.forced(row), *judge.free(row))):
                return row.name
            if row.name == stage:
                break
        return ""


def _without(case: Case, fails: Fails) -> Case:
    """Whole parts of it left out."""
    blank = Case("", "")
    for name in (*LISTS[:0:-1], "blocks", "made", "padding", "chunks", "ids"):
        if getattr(case, name) != getattr(blank, name):
            nothing: dict[str, Any] = {name: getattr(blank, name)}
            smaller = replace(case, **nothing)
            # Without ids the prompt would be drawn again: a case that has neither runs no pass.
            smaller = replace(smaller, tokens=0, blocks=()) if name == "ids" else smaller
            case = smaller if fails(smaller) else case
    return case


def _shorter(case: Case, fails: Fails) -> Case:
    """Fewer canvases, fewer passes of each, shorter ones."""
    blocks = _minimal(case.blocks, lambda kept: fails(replace(case, blocks=tuple(kept))))
    case = replace(case, blocks=tuple(blocks))
    for i, signals in enumerate(case.blocks):

        def with_passes(kept: Sequence[str], i: int = i, case: Case = case) -> Case:
            return replace(case, blocks=(*case.blocks[:i], tuple(kept), *case.blocks[i + 1 :]))

        kept = _minimal(signals, lambda some, put=with_passes: bool(some) and fails(put(some)))  # type: ignore[misc]
        case = with_passes(kept)
    for length in (1, 2, 4, 8, 16, 32, 64, 128):
        if length < case.canvas and fails(replace(case, canvas=length)):
            return replace(case, canvas=length)
    return case


def _fewer(case: Case, fails: Fails) -> Case:
    """Fewer ids, texts, conversations, calls, runs; and shorter prompts of those that are left."""
    for name in LISTS:

        def kept(some: Sequence[Any], name: str = name, case: Case = case) -> Case:
            left: dict[str, Any] = {name: tuple(some)}
            return _fitted(replace(case, **left))

        def enough(some: Sequence[Any], name: str = name, put: Callable[..., Case] = kept) -> bool:
            return bool(some or name != "ids") and fails(put(some))

        case = kept(_minimal(getattr(case, name), enough))
    for i, one in enumerate(case.generations):
        for smaller in _shortened(one.prompt, one.tokens):
            prompt, tokens = smaller
            runs = list(case.generations)
            runs[i] = replace(one, prompt=prompt, tokens=tokens)
            candidate = replace(case, generations=tuple(runs))
            if fails(candidate):
                case = candidate
                break
    return case


def _shortened(prompt: str | None, tokens: int) -> Iterator[tuple[str | None, int]]:
    """Shorter prompts of a run, shortest first: text by its words, a drawn one by its length."""
    if prompt is None:
        yield from ((None, n) for n in (1, 2, 4, 8, 16, 32, 64, 128) if n < tokens)
        return
    words = prompt.split(" ")
    for size in range(1, len(words)):
        for start in range(len(words) - size + 1):
            yield " ".join(words[start : start + size]), tokens


def _fitted(case: Case) -> Case:
    """Padding and chunks no longer than the prompt that is left."""
    left, chunks = len(case.ids), []
    for size in case.chunks:
        chunks.append(min(size, left))
        left -= chunks[-1]
    padding = min(case.padding, max(len(case.ids) - 1, 0))
    return replace(case, chunks=tuple(size for size in chunks if size), padding=padding)


def _minimal(items: Sequence[Any], fails: Callable[[Sequence[Any]], bool]) -> Sequence[Any]:
    """A part of `items` that fails, and of which no single one can be left out (ddmin, complements only)."""
    parts = 2
    while items:
        size = max(len(items) // parts, 1)
        for start in range(0, len(items), size):
            rest = (*items[:start], *items[start + size :])
            if fails(rest):
                items, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                return items
            parts = min(parts * 2, len(items))
    return items


@contextmanager
def recorder(model: str, compute: str, tier: str | None = None) -> Iterator[Callable[[Case, Path], bool]]:
    """A process that records cases from the oracle, loaded once for all of them."""
    command = [sys.executable, "-m", "stages.diff.record", model, compute, tier or "exact"]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(  # noqa: S603, our own module
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        incoming, outgoing = child.stdout, child.stdin

        def record(case: Case, folder: Path) -> bool:
            file = folder / "case.json"
            casefile.write(file, model, case)
            print(file, folder, sep="\t", file=outgoing, flush=True)
            answer = incoming.readline()
            if not answer:
                said.seek(0)
                last = (said.read().strip().splitlines() or ["it said nothing"])[-1]
                raise HarnessError(f"the process that records from the oracle of {model} ended: {last}")
            return bool(json.loads(answer)["recorded"])

        try:
            yield record
        finally:
            outgoing.close()
