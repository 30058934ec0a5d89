"""Text from tokens, as they come: a segment is given out once nothing that follows can change it.

The borders of the segments are those of mlx-optiq 0.7.7 (`tokenizer_utils.py`): for SentencePiece decoders a word is
held back until the next one begins, for others text is held back while it ends in an unfinished character.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from .tokens import Tokens

_SPACE = "\u2581"
_UNFINISHED = "\ufffd"
_FUSED = [
    {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


class Detokenizer(Protocol):
    """Turns one generation's tokens into text."""

    def add(self, token: int) -> str:
        """The text that is certain now and was not before; often empty."""
        ...

    def finish(self) -> str:
        """The rest."""
        ...


def detokenizer(tokens: Tokens) -> Detokenizer:
    """The detokenizer for a tokenizer, by its decoder."""
    decoder = tokens.decoder
    if decoder == {"type": "Sequence", "decoders": _FUSED}:
        return Pieces(tokens.pieces(), trim=False)
    if decoder == {"type": "Sequence", "decoders": [*_FUSED, _STRIP]}:
        return Pieces(tokens.pieces(), trim=True)
    return Whole(tokens)


class _Segments:
    """Cuts growing text into segments; holds back one that ends in an unfinished character."""

    def __init__(self) -> None:
        self._given = 0

    def cut(self, text: str) -> str:
        if not text or text[-1] == _UNFINISHED:
            return ""
        segment, self._given = text[self._given :], len(text)
        return segment


class Pieces:
    """For SentencePiece vocabularies, whose words begin with a mark: linear in the number of tokens.

    Args:
        pieces: the vocabulary by id; None where an id has no piece.
        trim: whether the very first space is dropped.
    """

    def __init__(self, pieces: Sequence[str | None], *, trim: bool) -> None:
        self._pieces, self._trim = pieces, trim
        self._text, self._word, self._bytes = "", "", bytearray()
        self._segments = _Segments()

    def add(self, token: int) -> str:
        """The words that this token ends."""
        piece = self._pieces[token] or ""
        if len(piece) >= 6 and piece.startswith("<0x") and piece[5] == ">":
            self._bytes.append(int(piece[3:5], 16))
        else:
            self._end_bytes()
            if piece.startswith(_SPACE):
                self._end_word()
            self._word += piece
        return self._segments.cut(self._text)

    def finish(self) -> str:
        """The last word."""
        self._end_bytes()
        self._end_word()
        return self._segments.cut(self._text)

    def _end_bytes(self) -> None:
        self._word += self._bytes.decode("utf-8", errors="replace")
        self._bytes.clear()

    def _end_word(self) -> None:
        word = self._word.replace(_SPACE, " ")
        self._text += word.removeprefix(" ") if self._trim and not self._text else word
        self._word = ""


class Whole:
    """For any tokenizer: decodes the current line again with every token.

    Args:
        tokens: the tokenizer.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._done, self._line, self._ids = "", "", list[int]()
        self._segments = _Segments()

    def add(self, token: int) -> str:
        """What this token makes certain."""
        self._ids.append(token)
        self._line = self._tokens.decode(self._ids)
        if self._line.endswith("\n"):
            self._end_line()
        return self._segments.cut(self._done + self._line)

    def finish(self) -> str:
        """What was held back."""
        self._end_line()
        return self._segments.cut(self._done)

    def _end_line(self) -> None:
        self._done += self._tokens.decode(self._ids)
        self._line = ""
        self._ids.clear()


def masked(tokens: Tokens, ids: Sequence[int], revealed: Sequence[Any]) -> str:
    """A draft as one line: what is revealed as text, every other position as a mask; line breaks spelled out."""
    parts: list[str] = []
    run: list[int] = []
    for token, shown in zip(ids, revealed, strict=True):
        if shown:
            run.append(token)
            continue
        if run:
            parts.append(tokens.decode(run))
            run = []
        parts.append("[Mask]")
    if run:
        parts.append(tokens.decode(run))
    return " ".join(part for part in parts if part).replace("\r", "\\r").replace("\n", "\\n")
