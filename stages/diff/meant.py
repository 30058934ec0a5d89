"""Which occurrence of which golden the words of a command mean."""

from typing import Any

from goldens import canary
from goldens.errors import GoldenError
from stages.dump import wanted
from stages.errors import MissingGoldenError, UsageError
from stages.shelf import Held, Question, Shelf
from stages.spec import Table


def chosen(table: Table, question: Question, stage: str, words: tuple[str, ...], load: Any) -> tuple[Held, str]:
    """The golden and the occurrence that the words of a command mean: the first that has all of them.

    `5` means `layer=5` of a stage that has layers; else a word is a segment, or several: `canvas=0/step=31`.

    Raises:
        UsageError: no golden at hand holds such an occurrence.
    """
    if stage not in (names := [one.name for one in table.stages]):
        raise UsageError(f"no stage of {table.model} is called {stage!r}; there are: {', '.join(names)}")
    shelf = Shelf(table, question, canary.canary(), load)
    seen: list[str] = []
    stale: list[str] = []
    for case, compute in wanted(table, question.cases, question.computes):
        try:
            held = shelf.take(case, compute)
        except (GoldenError, MissingGoldenError) as error:
            stale.append(str(error))
            continue
        for occurrence in held.golden.occurrences(stage):
            if has(occurrence, words):
                return held, occurrence
            seen.append(f"{occurrence} ({held.name})")
    asked = f"{stage}[{' '.join(words)}]"
    if seen:
        raise UsageError(f"no golden at hand holds {asked}; of {stage} there are: {', '.join(seen[:12])}")
    raise UsageError(f"no golden at hand holds {asked}" + (f": {stale[0]}" if stale else ""))


def has(occurrence: str, words: tuple[str, ...]) -> bool:
    """Whether an occurrence is one that the words mean."""
    segments = occurrence.split("/")
    return all((f"layer={part}" if part.isdigit() else part) in segments for word in words for part in word.split("/"))
