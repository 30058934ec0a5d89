"""Lines of Python on the way to an operation."""

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from stages.places import ROOT

PACKAGES = "site-packages/"
LOGS = ("trace/oplog.py", "trace/torchlog.py", "trace/sites.py")  # what logs is on no way
ASIDE = ("port/observe.py",)  # nor what a port lets stand around its functions, or the framework's, to note them


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
        code = frame.f_code
        file = _named(code.co_filename)
        if file is None:
            break
        if file:
            found.append(_site(file, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(reversed(found))


@cache
def _named(name: str) -> str | None:
    """What a file is called in a site: nothing if it is on no way, None if the way begins there."""
    if PACKAGES in name:  # also of an environment that lies in the checkout
        return "" if "/mlx/" in name or "/torch/" in name else name.rpartition(PACKAGES)[2]
    if not name.startswith(str(ROOT)):
        return ""
    file = Path(name).relative_to(ROOT).as_posix()
    if file.startswith(("stages/", "tests/")):
        return "" if file.endswith(LOGS) else None
    return "" if file in ASIDE else file


@cache
def _site(file: str, line: int, function: str) -> Site:
    return Site(file, line, function)
