"""A generation as a person sees it, on a terminal and where there is none."""

import io
import time
from collections.abc import Iterator

from rich.console import Console

from port.diffusion_gemma.display import picture, show
from port.diffusion_gemma.events import Block, Draft, End, Event, Piece

END = End("stop", "!", prompt=7, tokens=4, prompt_seconds=0.25, seconds=2.0, peak_bytes=3_000_000)
DRAFTS = [
    Draft(1, 1, 8, "Hello[Mask][Mask]", (5, 9, 9), (True, False, False)),
    Draft(1, 2, 8, "Hello \\n you", (5, 6, 7), (True, True, True)),
]
SUMMARY = "4 tokens, 2 steps (2), 1 block, 2.0 tokens per second, stop; prompt of 7 tokens in 0.25 s; 3 MB\n"


def events(pause: float = 0.0) -> Iterator[Event]:
    for draft in DRAFTS:
        yield draft
        time.sleep(pause)
    yield Block(1, 3, 2)
    yield from (Piece(5, "Hello"), Piece(6, " [b]"), Piece(7, "you"), END)


def shown(pause: float, *, terminal: bool) -> tuple[str, str]:
    out = Console(file=io.StringIO(), force_terminal=terminal, width=80, highlight=False, soft_wrap=True)
    err = Console(file=io.StringIO(), width=200)
    assert show(events(pause), out, err) == END
    return out.file.getvalue(), err.file.getvalue()


def test_where_there_is_no_terminal_text_goes_through_unchanged() -> None:
    assert shown(0, terminal=False) == ("Hello [b]you!\n", SUMMARY)


def test_on_a_terminal_every_draft_is_drawn_once_however_long_it_stands_and_the_text_stays() -> None:
    out, err = shown(0.6, terminal=True)
    for draft in DRAFTS:
        assert out.count(f"[canvas 1, step {draft.step} of at most 8, {sum(draft.revealed)} of 3 tokens]") == 1
    assert out.rpartition("\x1b[2K")[2].replace("\x1b[?25h", "").strip() == "Hello [b]you!"
    assert err == SUMMARY


def test_a_draft_shows_a_dot_for_each_mask_and_breaks_its_lines() -> None:
    first, second = (picture(draft).plain for draft in DRAFTS)
    assert first == "Hello··\n[canvas 1, step 1 of at most 8, 1 of 3 tokens]"
    assert second == "Hello \n you\n[canvas 1, step 2 of at most 8, 3 of 3 tokens]"
