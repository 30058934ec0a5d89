"""What is being done now, on a terminal; nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on standard error that each call of what is yielded replaces."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _message: None
        return
    with console.status("starting") as status:
        yield status.update
