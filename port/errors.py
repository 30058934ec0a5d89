"""Errors of the port: what was found, what should be, where, and the command that mends it."""

import shlex
from pathlib import Path


class PortError(Exception):
    """The root of everything the port raises on purpose.

    Args:
        where: the file, tensor or argument at fault.
        found: what is, as a sentence without its full stop.
        expected: what should be, likewise.
        mend: a command line, or an instruction, that repairs it.
    """

    def __init__(self, where: str, *, found: str, expected: str, mend: str) -> None:
        super().__init__(f"{where}: {found}. Expected: {expected}. To mend it: {mend}")
        self.where = where
        self.found = found
        self.expected = expected
        self.mend = mend


class ConfigError(PortError):
    """`config.json` says something that this model cannot be."""


class CheckpointError(PortError):
    """A file of the checkpoint is absent, damaged, or disagrees with `config.json`."""


class OptionError(PortError):
    """A value that was asked for lies outside what is allowed."""


class PictureError(PortError):
    """A file is no picture that this model can look at, or pictures and their places in the prompt do not match."""


def fetch_again(directory: Path, *names: str) -> str:
    """The command that restores files of a checkpoint directory from the repository it came from.

    Args:
        directory: where the checkpoint lies.
        names: files inside it; none means all of them.
    """
    files = " ".join(shlex.quote(name) for name in names)
    spaced = f" {files}" if files else ""
    return f"hf download OWNER/NAME{spaced} --local-dir {shlex.quote(str(directory))} --force-download"
