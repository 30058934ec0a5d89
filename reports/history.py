"""What runs found one after another: a bounded list in one file, in order of time and without a clock."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

KEPT = 40  #: runs remembered; the oldest are forgotten


@dataclass(frozen=True, slots=True)
class Past:
    """One run.

    Attributes:
        code: digest of the port's files.
        harness: digest of what judges.
        asked: what was run, as the command line spells it; empty for everything.
        counts: verdicts by status.
        stages: stages by state.
        first: the first verdict that does not pass, in one line; empty where all do.
    """

    code: str
    harness: str
    asked: str
    counts: Mapping[str, int]
    stages: Mapping[str, int]
    first: str = ""


def load(path: Path) -> list[Past]:
    """The runs remembered at `path`, oldest first; none where there is no file, or one that is not of this form."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return [Past(**entry) for entry in found["runs"]]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError):
        return []  # a list of past runs is no evidence: it starts again


def append(path: Path, past: Past) -> None:
    """Add a run; one that found what the run before it found is not told twice.

    The file is replaced as a whole under a lock, so that concurrent runs keep each other's entries.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = load(path)
        if runs and runs[-1] == past:
            return
        text = json.dumps({"schema": 1, "runs": [asdict(run) for run in [*runs, past][-KEPT:]]}, indent=1)
        handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(beside).replace(path)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
