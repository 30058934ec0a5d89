"""The verdict table as text: coloured on a terminal, plain and aligned in a pipe, Markdown for a CI job's summary."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.report import Report, StageInfo, Tally, by_stage, counted, gate_of, state_of, tally, tier_of
from reports.verdict import Status, Verdict, kind, line, number, overall, summarize

#: Failing verdicts printed under a stage; the rest are counted.
LINES = 5

HEAD = ("stage", "state", "cases", "occurrences", "forced", "free", "gate", "tier", "time", "")
#: What a narrow terminal goes without, first to go first.
DROPPED = ("time", "occurrences", "cases", "gate")
RIGHT = frozenset({"cases", "occurrences", "forced", "free", "time"})

STYLES = {
    "PASS": "green",
    "FAIL": "bold red",
    "ERROR": "bold magenta",
    "LOCKED": "yellow",
    "STALE": "bold yellow",
    "INCONCLUSIVE": "bold cyan",
}


def show(report: Report, file: TextIO | None = None, lines: int = LINES) -> None:
    """Print the table, the failing verdicts under each stage, and the summary.

    On a terminal the table is drawn by rich (which honours `NO_COLOR` and the window's width); anywhere else
    it is the text of `plain`.

    Args:
        report: what to show; stages are printed in its order.
        file: where to; standard output by default.
        lines: failing verdicts printed per stage.
    """
    out = sys.stdout if file is None else file
    if not out.isatty():
        out.write(plain(report, lines))
        return
    console = Console(file=out, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = by_stage(report)
    cells = [_cells(report, stage, found) for stage, found in rows]
    kept = _fitting(cells, console.width)
    for n in kept:
        table.add_column(HEAD[n], justify="right" if HEAD[n] in RIGHT else "left", no_wrap=n < len(HEAD) - 1)
    for row in cells:
        table.add_row(*(Text(row[n], style=STYLES.get(row[n], "dim") if n == 1 else "") for n in kept))
    console.print(table)
    for stage, found in rows:
        for text in failing(stage, found, lines):
            word = text.partition(" ")[0]
            shown = Text(text)
            shown.stylize(STYLES.get(word, "dim"), 0, len(word) if word in STYLES else len(text))
            console.print(shown, soft_wrap=True)
    for text in summary(report):
        status = overall(_statuses(report))
        console.print(Text(text, style=STYLES.get(str(status), "") if status else ""), soft_wrap=True)


def plain(report: Report, lines: int = LINES) -> str:
    """The same as aligned plain text, ending in a newline; failing verdicts stand under their stage's row."""
    rows = by_stage(report)
    cells = [_cells(report, stage, found) for stage, found in rows]
    widths = _widths(cells)
    out = [_aligned(HEAD, widths)]
    for (stage, found), row in zip(rows, cells, strict=True):
        out.append(_aligned(row, widths))
        out += [f"  {text}" for text in failing(stage, found, lines)]
    return "\n".join([*out, "", *summary(report)]) + "\n"


def markdown(report: Report, lines: int = LINES) -> str:
    """The same as GitHub-flavoured Markdown, for the summary of a CI job."""
    rows = by_stage(report)
    head = (*HEAD[:-1], "waits for")
    out = [*(f"**{_escaped(text)}**  " for text in summary(report)), "", "| " + " | ".join(head) + " |"]
    out.append("| " + " | ".join("---:" if name in RIGHT else "---" for name in head) + " |")
    for stage, found in rows:
        cells = _cells(report, stage, found)
        cells[-1] = ", ".join(stage.waits_for)
        out.append("| " + " | ".join(map(_escaped, cells)) + " |")
    texts = [text for stage, found in rows for text in failing(stage, found, lines)]
    if texts:
        fence = "`" * max([3, *(1 + len(run) for text in texts for run in re.findall("`+", text))])
        out += ["", f"{fence}text", *texts, fence]
    return "\n".join(out) + "\n"


def failing(stage: StageInfo, found: Tally, lines: int = LINES) -> list[str]:
    """The lines under a stage's row: its worst verdicts, at most `lines` of them, and how many more there are."""
    verdicts = found.failing()
    texts = [described(verdict) for verdict in verdicts[:lines]]
    if len(verdicts) > lines:
        texts.append(f"... and {len(verdicts) - lines} more in {stage.name}")
    return texts


def described(verdict: Verdict) -> str:
    """A verdict's line with its case, mode and the tier it was judged in."""
    context = ", ".join(word for word in (verdict.case, verdict.mode, verdict.tier) if word)
    return printable(f"{line(verdict)}  [{context}]")


def summary(report: Report) -> list[str]:
    """The last lines: how many stages and verdicts ended how, and the bits when nothing else is allowed to differ."""
    states: dict[str, int] = {}
    for stage in report.stages:
        states[state_of(stage)] = states.get(state_of(stage), 0) + 1
    stages = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    found = tally(report.verdicts)
    texts = [
        f"{len(report.stages)} stages: {stages or 'none'}",
        f"{len(report.verdicts)} verdicts: {counted(found.counts)}; tier {tier_of(report, found)}",
    ]
    goldens: dict[tuple[str, ...], list[str]] = {}
    for case, names in sorted(report.differing.items()):
        goldens.setdefault(tuple(sorted(names)), []).append(case)
    texts += [
        f"canary differs in {', '.join(names)}: from {len(cases)} of {len(report.differing)} goldens"
        for names, cases in sorted(goldens.items())
        if names
    ]
    texts += parted(report)
    bits = [v.value for v in report.verdicts if v.tier == "exact" and kind(v.gate) == "exact" and v.value is not None]
    if "exact" in found.tiers and set(_statuses(report)) == {Status.PASS} and bits:
        where = "" if found.tiers == ("exact",) else " in the exact tier"
        texts.append(f"max differing bits {number(max(bits))}{where}")
    return texts


def parted(report: Report, lines: int = LINES) -> list[str]:
    """Where free runs followed the oracle up to a tie: what comes after it was not compared, and that is said."""
    found = dict.fromkeys(
        f"{' '.join((v.case, *_runs(v.occurrence)))}: {v.note.partition(';')[0]}"
        for v in report.verdicts
        if v.mode == "free" and v.status is Status.PASS and v.note.startswith("followed ")
    )
    texts = [f"free run of {text}" for text in found]
    return [*texts[:lines], *([f"... and {len(texts) - lines} more that ties parted"] if len(texts) > lines else [])]


def _runs(occurrence: str) -> list[str]:
    return [part for part in occurrence.split("/") if part.startswith("run=")]


def _statuses(report: Report) -> list[Status]:
    states = [Status.INCONCLUSIVE if stage.state is None else stage.state for stage in report.stages]
    return states + [status for status, count in summarize(report.verdicts).items() if count]


def _cells(report: Report, stage: StageInfo, found: Tally) -> list[str]:
    worst = found.worst_of_all
    remembered = not stage.fresh and any(v.gate or v.status is Status.ERROR for v in found.verdicts)
    last = f"waits for {', '.join(stage.waits_for)}" if stage.waits_for else "from the ledger" if remembered else ""
    judged = any(count for status, count in found.counts.items() if status is not Status.LOCKED)
    return [
        printable(stage.name),
        state_of(stage),
        str(len(found.cases)) if judged else "-",
        str(len(found.occurrences)) if judged else "-",
        _value(found.worst.get("forced"), worst),
        _value(found.worst.get("free"), worst),
        gate_of(worst) if judged else "-",
        tier_of(report, found),
        f"{stage.seconds:.2f} s" if judged else "-",
        printable(last),
    ]


def _value(verdict: Verdict | None, worst: Verdict | None) -> str:
    """The value, with its gate where that is not the one the row names."""
    if verdict is None or verdict.value is None:
        return "-"
    other = "" if gate_of(verdict) == gate_of(worst) else f" ({gate_of(verdict)})"
    return number(verdict.value) + other


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that fit side by side in `width` characters, or all that may not be dropped."""
    widths = _widths(rows)
    kept = list(range(len(HEAD)))
    for name in DROPPED:
        if sum(widths[n] + 2 for n in kept) - 2 > width:
            kept.remove(HEAD.index(name))
    return kept


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if name in RIGHT else cell.ljust(width)
        for name, cell, width in zip(HEAD, cells, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def printable(text: str) -> str:
    """The text with control characters spelled out, so that a name from a file cannot steer a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _escaped(text: str) -> str:
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}")
    return text
