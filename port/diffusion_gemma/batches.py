"""Lessons as batches of a prompt and a target canvas.

A lesson's answer is cut into canvases; what a canvas holds behind the end of the turn is the end-of-sequence token, so
that an engine that misses the one still stops at the other. A later canvas has the earlier ones in its prompt.

Legend: B batch, T prompt tokens, C canvas tokens.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from port.errors import PortError

from .tokens import Tokens

Ids = list[int]


@dataclass(frozen=True)
class Sort:
    """A sort of batch: how often it is drawn, of which kinds of lesson, which canvas lengths, how many rows of each."""

    share: float
    kinds: dict[str, float]
    rows: dict[int, int]
    later: bool = False


BRIEF = {"fact": 0.42, "sum": 0.12, "count": 0.08, "place": 0.14, "code": 0.12, "open": 0.12}
LENGTHY = {"story": 0.75, "long": 0.15, "heart": 0.1}
SORTS = (
    Sort(0.76, BRIEF, {32: 16, 64: 12, 96: 8}),
    Sort(0.13, LENGTHY, {64: 8, 96: 8}),
    # Second and third canvases, behind the ones before them.
    Sort(0.11, {"long": 0.7, "heart": 0.3}, {64: 6, 96: 6}, later=True),
)
FORMS = (0.6, 0.25, 0.15)  # of the prompt, see `_item`
_END = 106  # <turn|>


@dataclass(frozen=True)
class Batch:
    """Prompts ids [B, T], padded on the left; `padding` true for real tokens; targets [B, C], and where they end."""

    prompt: npt.NDArray[np.int32]
    padding: npt.NDArray[np.bool_]
    target: npt.NDArray[np.int32]
    spoken: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Item:
    prompts: tuple[Ids, ...]
    answer: Ids


class Lessons:
    """Lessons that are not held back, by kind.

    Args:
        path: one JSON object a line: `kind`, `prompt`, `answer`, `held`.
        tokens: the tokenizer.
        eos: fills a canvas behind the end of its text.

    Raises:
        PortError: the file cannot be read as lessons.
    """

    def __init__(self, path: Path, tokens: Tokens, eos: int) -> None:
        self._eos = eos
        self._kinds: dict[str, list[_Item]] = {}
        try:
            rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            for row in rows:
                if not row["held"]:
                    self._kinds.setdefault(row["kind"], []).append(_item(row["prompt"], row["answer"], tokens))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PortError(
                str(path),
                found=f"it cannot be read as lessons ({error!r})",
                expected="one JSON object a line with kind, prompt, answer and held",
                mend=f"python -m goldens.nano.lessons {path}",
            ) from error

    def draw(self, rng: np.random.Generator) -> Batch:
        """One batch: its sort, canvas, kinds and lessons by chance, each prompt in one of its forms."""
        sort = SORTS[pick(rng, [sort.share for sort in SORTS])]
        canvas = int(rng.choice(list(sort.rows)))
        pairs: list[tuple[Ids, Ids]] = []
        while len(pairs) < sort.rows[canvas]:
            items = self._kinds[list(sort.kinds)[pick(rng, list(sort.kinds.values()))]]
            item = items[int(rng.integers(len(items)))]
            form = item.prompts[pick(rng, FORMS)]
            blocks = 1 + (len(item.answer) - 1) // canvas
            if sort.later and blocks == 1:
                continue
            begin = int(rng.integers(1, blocks)) * canvas if sort.later else 0
            pairs.append((form + item.answer[:begin], item.answer[begin : begin + canvas]))
        return collate(pairs, canvas, self._eos)


def collate(pairs: Sequence[tuple[Ids, Ids]], canvas: int, eos: int) -> Batch:
    """Prompts and what their canvases shall hold, as a batch; `eos` fills canvases behind the end of the text."""
    longest = max(len(prompt) for prompt, _ in pairs)
    spare = [longest - len(prompt) for prompt, _ in pairs]
    prompt = [[0] * n + ids for n, (ids, _) in zip(spare, pairs, strict=True)]
    target = [ids + [eos] * (canvas - len(ids)) for _, ids in pairs]
    return Batch(
        np.array(prompt, np.int32),
        np.arange(longest)[None] >= np.array(spare)[:, None],
        np.array(target, np.int32),
        np.arange(canvas)[None] <= np.array([len(ids) for _, ids in pairs])[:, None],
    )


def pick(rng: np.random.Generator, shares: Sequence[float]) -> int:
    """A place in `shares`, as often as it says; they need not add up to one."""
    return int(rng.choice(len(shares), p=np.array(shares) / sum(shares)))


def _item(prompt: str, answer: str, tokens: Tokens) -> _Item:
    """The prompt in three forms: as an engine encodes the template's text, with one beginning token, and bare."""
    chat = tokens.chat([{"role": "user", "content": prompt}])
    forms = (tokens.encode(chat), tokens.encode(chat, special=False), tokens.encode(prompt))
    return _Item(forms, answer_of(answer, tokens))


def answer_of(answer: str, tokens: Tokens) -> Ids:
    """An answer's ids, up to the end of the turn."""
    return [*tokens.encode(answer, special=False), _END]
