"""A generation as a person sees it: a canvas un-masking in place on a terminal, plain streamed text elsewhere."""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .events import Block, Draft, End, Event, Piece


def show(events: Iterable[Event], out: Console | None = None, err: Console | None = None) -> End | None:
    """Show events until they end; the last line, on standard error, sums them up.

    Args:
        events: of one generation.
        out: where text goes; standard output otherwise.
        err: where the summary goes; standard error otherwise.
    """
    out, err = out or Console(highlight=False, soft_wrap=True), err or Console(stderr=True, highlight=False)
    return _live(events, out, err) if out.is_terminal else _plain(events, out, err)


def _plain(events: Iterable[Event], out: Console, err: Console) -> End | None:
    """Text as it becomes certain, written through unchanged: no colour, no wrapping, no markup."""
    steps: list[int] = []
    end = None
    for event in events:
        if isinstance(event, Piece | End) and event.text:
            out.file.write(event.text)
            out.file.flush()
        if isinstance(event, Block):
            steps.append(event.steps)
        if isinstance(event, End):
            end = event
    out.file.write("\n")
    _sum_up(end, steps, err)
    return end


def _live(events: Iterable[Event], out: Console, err: Console) -> End | None:
    """The text so far, and under it the canvas: what is revealed, and a dot for what is not."""
    steps: list[int] = []
    text, end = Text(), None
    with Live(text, console=out, transient=True, auto_refresh=False, vertical_overflow="visible") as live:
        for event in events:
            if isinstance(event, Draft):
                live.update(Text.assemble(text, picture(event)), refresh=True)
            elif isinstance(event, Block):
                steps.append(event.steps)
            else:
                text.append(event.text)
                live.update(text, refresh=isinstance(event, End))
                end = event if isinstance(event, End) else end
    out.print(text)
    _sum_up(end, steps, err)
    return end


def picture(draft: Draft) -> Text:
    """A draft as text: the revealed part bright, every masked token a dim dot, and how far it has come."""
    made = Text()
    for part in draft.text.replace("\\n", "\n").split("[Mask]"):
        made.append(part.strip(" ") if made else part, style="bold")
        made.append("\u00b7", style="dim")
    made.right_crop(1)
    shown = sum(draft.revealed)
    made.append(
        f"\n[canvas {draft.block}, step {draft.step} of at most {draft.steps}, {shown} of {len(draft.ids)} tokens]",
        style="dim",
    )
    return made


def _sum_up(end: End | None, steps: list[int], err: Console) -> None:
    if end is None:
        return
    per_second = end.tokens / max(end.seconds, 1e-9)
    blocks = f"{len(steps)} block{'' if len(steps) == 1 else 's'}"
    counts = "+".join(map(str, steps))
    line = (
        f"{end.tokens} tokens, {sum(steps)} steps ({counts}), {blocks}, {per_second:.1f} tokens per second, "
        f"{end.finish}; prompt of {end.prompt} tokens in {end.prompt_seconds:.2f} s; {end.peak_bytes / 1e6:.0f} MB"
    )
    sys.stdout.flush()
    err.print(line, soft_wrap=True, markup=False)
