"""The one error of this package: a golden that may not be used, and why."""

import shlex
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


class GoldenError(Exception):
    """A golden that cannot be written, or must not be judged against.

    A run that meets one reports STALE and exits 3; it never turns into a verdict.

    Attributes:
        path: the golden, or None when there is no file yet.
        cause: what is wrong and what should be, without the path.
        mend: the command that mends it.
    """

    def __init__(self, cause: str, path: Path | str | None = None, *, mend: str = "") -> None:
        self.cause = cause
        self.path = Path(path) if path is not None else None
        self.mend = mend or mending(self.path)
        where = f"{self.path}: " if self.path is not None else ""
        super().__init__(f"{where}{cause}. {self.mend}")

    def __reduce__(self) -> tuple[type["GoldenError"], tuple[str, Path | None], dict[str, str]]:
        """Keep cause and path through a process border."""
        return (type(self), (self.cause, self.path), {"mend": self.mend})


def mending(path: Path | None) -> str:
    """The command that replaces the golden at ``path``: committed ones come back from git, others are recorded."""
    if path is not None and PACKAGE in path.absolute().parents:
        return f"Restore the committed file: git checkout -- {path.absolute().relative_to(PACKAGE.parent)}"
    folder = f" --out {shlex.quote(str(path.parent))}" if path is not None else ""
    return f"Record it again: harness dump{folder}"
