"""The command line in this process: quick to call, with a ledger of its own."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click.testing
import pytest

from stages import cli


@dataclass(frozen=True)
class Said:
    """What a command left: exit code, standard output and error."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def error(self) -> str:
        """The one line on standard error."""
        (line,) = self.err.splitlines()
        assert line.startswith("error: "), line
        return line.removeprefix("error: ")


Harness = Callable[..., Said]


def harness(patch: pytest.MonkeyPatch, cache: Path) -> Harness:
    """`harness("run", "moe", "--json")`, its ledger in `cache`."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith("stages.") and hasattr(module, "CACHE") and module.__name__ != "stages.places":
            patch.setattr(module, "CACHE", cache)

    def call(*words: str | Path) -> Said:
        command = [str(word) for word in words]
        patch.setattr(sys, "argv", ["harness", *command])
        result = click.testing.CliRunner().invoke(cli.main, command)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return call
