"""Asks the process that runs edited code, and starts another where it dies or does not answer."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Self

from stages.errors import HarnessError
from stages.places import ROOT

from .child import Check

FRESH = 250  # questions after which another process is started: edits may write where they should not
START = 60.0  # seconds in which the process has to come up
PATIENCE, SLACK = 4, 5.0  # so many times the seconds that a question may take, and some more, and it counts as stuck


@dataclass
class Runner:
    """The process, as long as the `with` block.

    Attributes:
        model: Whose port.
        texts: The port's files that are otherwise in memory than on disk.
        deaths: How often it had to be started again.
    """

    model: str
    texts: dict[str, str]
    deaths: int = 0
    _asked: int = 0
    _ended: float = 0.0
    _child_used: float = 0.0
    _began: float = field(default_factory=time.process_time)
    _child: "subprocess.Popen[str] | None" = field(default=None, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def used(self) -> float:
        """Seconds of processor time so far, of the processes and of this one: what else runs here does not count."""
        return self._ended + self._child_used + time.process_time() - self._began

    def survey(self, checks: list[Check], *, often: int, seconds: float) -> list[dict[str, Any]]:
        """Of each occurrence what the port does otherwise, how long it took, and the port's lines that ran."""
        found: list[dict[str, Any]] = []
        for check in checks:
            asked = {"do": "survey", "checks": [asdict(check)], "often": often, "seconds": seconds}
            answer = self._ask(asked, seconds)
            found += answer["found"] if answer else [{"why": "the process died", "seconds": seconds, "lines": []}]
        return found

    def held(self, edit: dict[str, Any], checks: list[Check], seconds: float) -> tuple[int, str]:
        """How many of these pass with an edit, up to the first that does not, and what is wrong with that."""
        asked = {"do": "try", "checks": [asdict(one) for one in checks], "seconds": seconds, **edit}
        # Where it dies, an edit before may have written where it should not: this one is asked about once more.
        answer = self._ask(asked, seconds * (len(checks) + 1)) or self._ask(asked, seconds * (len(checks) + 1))
        return (answer["passed"], answer["why"]) if answer else (0, "the process died")

    def _ask(self, asked: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        self._asked += 1
        if self._asked % FRESH == 0:
            self._ended += self._child_used
            self._child_used = 0.0
            self._end()
        child = self._child or self._start()
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(asked) + "\n")
            child.stdin.flush()
            if answer := _line(child, PATIENCE * seconds + SLACK):
                found: dict[str, Any] = json.loads(answer)
                self._child_used = found["used"]
                return found
        except BrokenPipeError:
            pass  # it died: that is the answer
        self._end()
        self._ended += self._child_used
        self._child_used = 0.0
        self.deaths += 1
        return None

    def _start(self) -> "subprocess.Popen[str]":
        child = self._child = subprocess.Popen(
            [sys.executable, "-m", "stages.mend.child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert child.stdin is not None
        with suppress(BrokenPipeError):  # where it died at once, it will not answer
            child.stdin.write(json.dumps({"model": self.model, "texts": self.texts}) + "\n")
            child.stdin.flush()
        if not _line(child, START):
            self._end()
            raise HarnessError(f"the port of {self.model} cannot be imported in a process of its own")
        return child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):  # it may have died with a question unread
                        pipe.close()
            self._child = None


def _line(child: "subprocess.Popen[str]", seconds: float) -> str:
    """The next line that the process says; nothing where it says none in time."""
    assert child.stdout is not None
    with DefaultSelector() as selector:
        selector.register(child.stdout, EVENT_READ)
        return child.stdout.readline() if selector.select(seconds) else ""
