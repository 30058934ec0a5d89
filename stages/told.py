"""What a run leaves beside its verdicts, and what other commands left: the history, and the planted bugs."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from goldens import backend
from reports import junit as junit_xml
from reports import text
from reports.history import Past, append, load
from reports.more import Mutant
from reports.report import Report, state_of
from reports.verdict import Status, Verdict, line, summarize

from . import view
from .asked import per_model
from .code import harness_digest, port_digest
from .places import CACHE
from .run import Answer, Run
from .shelf import Question
from .spec import Table

HISTORY, MUTANTS = "history.json", "mutants.json"  # beside the ledger


def remember(report: Report, question: Question, model: str | None) -> None:
    """Add what a run found to the history; where that cannot be written, the run still ends as it ended."""
    try:
        append(CACHE / HISTORY, past(report, question, model))
    except OSError as error:
        print(f"the history {CACHE / HISTORY} was not written: {error}", file=sys.stderr)


def past(report: Report, question: Question, model: str | None) -> Past:
    """A run in the few numbers that the history keeps."""
    stages: dict[str, int] = {}
    for stage in report.stages:
        stages[state_of(stage)] = stages.get(state_of(stage), 0) + 1
    words = [*question.stages, *([f"--model {model}"] if model else [])]
    words += [f"--case {name.rpartition('/')[2]}" for name in question.cases] + [
        f"--compute {name}" for name in question.computes
    ]
    words += [f"--tier {question.tier}"] if question.tier else []
    words += [f"--{mode}" for mode in question.modes if len(question.modes) == 1]
    words += ["--goldens ..."] if question.goldens else []
    words += ["--checkpoint ..."] if question.checkpoint else []
    failing = (v for v in report.verdicts if v.status not in {Status.PASS, Status.LOCKED})
    first = next(failing, None)
    return Past(
        code=port_digest()[:12],
        harness=harness_digest()[:12],
        asked=" ".join(words),
        counts={str(status): count for status, count in summarize(report.verdicts).items() if count},
        stages=dict(sorted(stages.items())),
        first=line(first) if first else "",
    )


def with_past(report: Report) -> Report:
    """The report with the history and the planted bugs of its models."""
    models = {stage.model for stage in report.stages}
    return replace(
        report,
        history=tuple(load(CACHE / HISTORY)),
        mutants=tuple(one for one in mutants(CACHE / MUTANTS) if one.model in models),
    )


def document(answers: list[Answer], verdicts: list[Verdict]) -> dict[str, Any]:
    """What `harness run --json` prints."""
    tiers = sorted({row.tier for row in verdicts})
    return {
        "schema": 1,
        "tier": tiers[0] if len(tiers) == 1 else tiers,
        "backend": {**backend.describe(), "differs": {k: v for answer in answers for k, v in answer.differs.items()}},
        "verdicts": [row.to_json() for row in verdicts],
        "summary": {str(status): count for status, count in summarize(verdicts).items()},
    }


def files(report: Report, markdown: Path | None, junit: Path | None) -> None:
    """Append the table to `markdown`, and write the verdicts to `junit`, where these are asked for."""
    if markdown:
        with markdown.open("a") as file:
            file.write(text.markdown(report))
    if junit:
        junit_xml.write(junit, report)


def whole(asked: list[tuple[Table, Question]], answers: list[Answer]) -> Report:
    """Several models' reports as one, with all that the pages show."""
    found = [
        view.told(view.report(table, answer, question), table, answer)
        for (table, question), answer in zip(asked, answers, strict=True)
    ]
    return with_past(view.merged(found))


def recalled(model: str | None, question: Question) -> Report:
    """The same from the ledger, under the bounds of the tables as they are now; neither side is run."""
    asked = per_model(model, question)
    return whole(asked, [Run(table, one).recall() for table, one in asked])


def mutants(path: Path) -> list[Mutant]:
    """The planted bugs of the last `harness mutate`; none where it was not run, or left a file of another form."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return [Mutant.from_json(entry, str(found.get("tier", "exact"))) for entry in found["mutants"]]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        print(f"{path} is not what `harness mutate` writes ({error}): its planted bugs are not shown", file=sys.stderr)
        return []
