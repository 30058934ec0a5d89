"""What a page shows beside verdicts: planted bugs, near-ties of the oracle, and canvases being un-masked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug: the stage it belongs to, and what was seen.

    Attributes:
        status: CAUGHT, SURVIVED, ELSEWHERE (caught, but not first where expected) or ERROR.
        value: what the gate measured where it was caught, against `bound`; None where nothing was.
        math: the bug in one sentence.
    """

    model: str
    name: str
    stage: str
    expected: str
    caught_at: str
    tensor: str
    occurrence: str
    mode: str
    case: str
    value: float | None
    bound: float | None
    status: str
    math: str
    tier: str = "exact"

    @classmethod
    def from_json(cls, found: Mapping[str, Any], tier: str) -> Mutant:
        """One entry of the file that `harness mutate` leaves; what it does not say is empty.

        Raises:
            ValueError: it has no model, stage or name.
        """
        if not all(isinstance(found.get(key), str) for key in ("model", "stage", "name")):
            raise ValueError(f"a mutant has a model, a stage and a name, not {found!r:.200}")
        words = {f.name: str(found.get(f.name) or "") for f in fields(cls)}
        numbers = {key: None if found.get(key) is None else float(found[key]) for key in ("value", "bound")}
        return cls(**(words | numbers | {"tier": tier}))  # type: ignore[arg-type]

    @property
    def room(self) -> float | None:
        """The value in units of its bound; the plain value where the bound is 0."""
        if self.value is None:
            return None
        return self.value / self.bound if self.bound else self.value


@dataclass(frozen=True, slots=True)
class NearTie:
    """A decision of the oracle, and how near it was to another one.

    Attributes:
        distance: the margin in the scores' own unit.
        ulp: the margin in units in the last place of the score.
        noise: the margin in rms of the oracle's own rounding; None where that is not known.
        chosen: what the oracle decided, as printed.
        port: what the port decided; empty where it was not judged.
    """

    model: str
    stage: str
    case: str
    occurrence: str
    tensor: str
    index: str
    distance: float
    ulp: float
    noise: float | None
    chosen: str
    port: str

    @property
    def differs(self) -> bool:
        """Whether the port decided otherwise."""
        return bool(self.port) and self.port != self.chosen


@dataclass(frozen=True, slots=True)
class Cell:
    """One position after one step.

    Attributes:
        state: `accepted` (held now), `revealed` (held since an earlier step) or `renoised`; `last` in a step that
            only reads the best tokens.
        token: the token's text.
        best: the most probable token's text.
    """

    state: str
    token: str
    best: str


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A canvas being un-masked on both sides: steps by positions.

    Attributes:
        judged: one line that says what the port's side rests on.
        oracle: rows of cells, one row a step.
        port: the same of the port; empty where it was not judged.
    """

    model: str
    case: str
    occurrence: str
    judged: str
    oracle: tuple[tuple[Cell, ...], ...]
    port: tuple[tuple[Cell, ...], ...]
