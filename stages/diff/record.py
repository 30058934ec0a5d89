"""Record whatever cases are asked for, one a line, from one loaded oracle.

`python -m stages.diff.record MODEL DTYPE TIER`: the tier is the one that they will be judged in, as only the portable
one asks for the oracle's rounding. A line holds a case's file and a folder, with a tab between them. The answer is a
line of JSON: {"recorded": true}, or false and why where the oracle refuses the case.
"""

import json
import os
import sys
from pathlib import Path

from stages import casefile
from stages.asked import table_of
from stages.dump import Recorder
from stages.errors import HarnessError


def main(model: str, compute: str, tier: str) -> None:
    """Answer every line of standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the oracle prints is no answer
    recorder = Recorder(table_of(model))
    for line in sys.stdin:
        file, folder = line.rstrip("\n").split("\t")
        _, case = casefile.read(Path(file))
        try:
            recorder.record(case, compute, Path(folder), full=False, rounding=tier == "portable")
            answer = {"recorded": True, "why": ""}
        except HarnessError:
            raise  # the cuts or the table are wrong, whatever the case
        except Exception as error:  # noqa: BLE001 -- an oracle that refuses a case says that it is none
            answer = {"recorded": False, "why": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
