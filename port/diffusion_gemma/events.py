"""What a generation reports as it goes: drafts where they are asked for, tokens, ends of canvases, the end."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Draft:
    """What a canvas looks like after a step; `step` 0 is the noise that it begins as.

    Attributes:
        block: which canvas, from 1 on.
        step: steps done.
        steps: most steps.
        text: what is revealed, masks elsewhere, as one line.
        ids: the draft's tokens.
        revealed: which of them are meant.
    """

    block: int
    step: int
    steps: int
    text: str
    ids: tuple[int, ...]
    revealed: tuple[bool, ...]


@dataclass(frozen=True)
class Piece:
    """One token, and the text that became certain with it; a token that stops has none."""

    token: int
    text: str
    stops: bool = False


@dataclass(frozen=True)
class Block:
    """The end of a canvas: which, from 1 on; its length in tokens; the steps it took."""

    block: int
    length: int
    steps: int


@dataclass(frozen=True)
class End:
    """The end of a generation.

    Attributes:
        finish: "stop" after a token of the stop set, "length" at the most tokens.
        text: what the detokenizer still held.
        prompt: tokens of the prompt.
        tokens: tokens made, a stop token included.
        prompt_seconds: of encoding the prompt.
        seconds: of everything after it.
        peak_bytes: most memory that MLX held at a time.
    """

    finish: str
    text: str
    prompt: int
    tokens: int
    prompt_seconds: float
    seconds: float
    peak_bytes: int


Event = Draft | Piece | Block | End
