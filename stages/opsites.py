"""Lines of Python on the way to an operation."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .places import ROOT

PACKAGES = "site-packages/"
LOGS = ("oplog.py", "torchlog.py", "opsites.py")  # what logs is on no way


@dataclass(frozen=True)
class Site:
    """A line of Python on the way to an operation: a file under the checkout, or under a package, and its function."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def lines() -> tuple[Site, ...]:
    """Lines on the way here, outermost first, without those of the framework, the harness and what started it."""
    found = []
    frame: Any = sys._getframe(2)  # noqa: SLF001 -- a whole traceback an operation would cost more than the operation
    while frame is not None:
        name = frame.f_code.co_filename
        if PACKAGES in name:  # also of an environment that lies in the checkout
            if "/mlx/" not in name and "/torch/" not in name:
                found.append(Site(name.rpartition(PACKAGES)[2], frame.f_lineno, frame.f_code.co_name))
        elif name.startswith(str(ROOT)):
            file = Path(name).relative_to(ROOT).as_posix()
            if file.startswith(("stages/", "tests/")):
                if not file.endswith(LOGS):
                    break
            else:
                found.append(Site(file, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(reversed(found))
