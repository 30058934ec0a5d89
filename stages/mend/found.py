"""What a search for an edit that mends came to, and which of several such edits is believed."""

from dataclasses import dataclass, field, replace

from stages.diff.sides import First
from stages.trace.sites import Site

SHOWN = 4  # other lines that are named


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
    """

    mends: list[Mend] = field(default_factory=list)
    tried: int = 0
    seconds: float = 0.0
    note: str = ""

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
        if (
            first is not None
            and first.at is not None
            and (first.at.file, first.at.line) == (best.at.file, best.at.line)
        ):
            return replace(first, why=f"{first.why}; an edit of this line mends it: {best.said}")
        why = f"an edit of this line mends it: {best.said}"
        if first is not None:
            why += f"; by the operations it was {first.at}: {first.why}"
        return First(first.step if first else -1, best.at, (best.at,), why)


def ranked(mends: list[Mend], marked: Site | None) -> list[Mend]:
    """The one to believe first: on the marked line; else where most edits mend, and likely ones."""
    weight: dict[tuple[str, int], float] = {}
    for one in mends:
        weight[one.at.file, one.at.line] = weight.get((one.at.file, one.at.line), 0.0) + one.score
    mark = (marked.file, marked.line) if marked else None
    return sorted(
        mends,
        key=lambda one: ((one.at.file, one.at.line) != mark, -weight[one.at.file, one.at.line], -one.score),
    )
