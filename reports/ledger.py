"""The ledger: what was judged, and for which code, golden, table and backend it holds.

One text file. The first line says what it is and carries the sha256 of all that follows; then one line per
entry, the id and the entry as JSON with a tab between. Entries stay text until someone asks for them, so a
ledger of thirty thousand verdicts opens in the time it takes to read it. Verdicts are stored by column, and a
column that holds one value throughout is stored once: most columns do.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.verdict import Verdict

MAGIC = "lockstep-ledger 2"


class LedgerWarning(UserWarning):
    """A ledger could not be used and was set aside."""


class _UnusableError(Exception):
    """The file is no ledger, or not a whole one."""


@dataclass(frozen=True)
class Entry:
    """What one judgement left behind.

    Attributes:
        key: hash of everything the verdicts depend on; another key means they no longer hold.
        files: sha256 by path of the source files that went into the key, to say what changed.
        verdicts: everything that was found.
        seconds: wall time the judgement took.
    """

    key: str
    files: dict[str, str]
    verdicts: tuple[Verdict, ...]
    seconds: float


@dataclass
class Ledger:
    """Entries by id, backed by one file. `put` and `discard` take effect on disk with `save`."""

    path: Path
    _lines: dict[str, str] = field(default_factory=dict)
    _known: dict[str, Entry] = field(default_factory=dict)
    _put: dict[str, Entry] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, path: Path) -> Ledger:
        """The ledger at `path`; empty where there is none.

        A file that is no ledger, or is damaged, is renamed to `<name>.unusable-<n>` with a `LedgerWarning`
        that names it, and the ledger starts empty.
        """
        ledger = cls(path)
        try:
            ledger._lines = _read(path)
        except _UnusableError:
            with _locked(path):  # a second look under the lock: another run may have mended it meanwhile
                ledger._lines = _read_or_set_aside(path)
        return ledger

    def ids(self) -> list[str]:
        """Every id, sorted."""
        return sorted(self._lines.keys() | self._put.keys())

    def get(self, entry_id: str) -> Entry | None:
        """The entry under `entry_id`, or None."""
        found = self._put.get(entry_id) or self._known.get(entry_id)
        if found is None and entry_id in self._lines:
            found = _decode(self._lines[entry_id])
            if found is None:
                del self._lines[entry_id]
                warnings.warn(f"{self.path}: entry {entry_id!r} cannot be read; it is judged anew", LedgerWarning, 2)
                return None
            self._known[entry_id] = found
        return found

    def put(self, entry_id: str, entry: Entry) -> None:
        """Hold `entry` under `entry_id`, in place of what was there."""
        self._put[entry_id] = entry
        self._gone.discard(entry_id)

    def discard(self, entry_id: str) -> None:
        """Forget what is under `entry_id`, if anything is."""
        self._lines.pop(entry_id, None)
        self._known.pop(entry_id, None)
        self._put.pop(entry_id, None)
        self._gone.add(entry_id)

    def save(self) -> None:
        """Write what was put and discarded since the last save over whatever the file holds now.

        The write is whole or absent (a file beside, fsync, rename). Concurrent savers wait for one another
        and keep each other's entries; of two that put the same id, the later save wins.
        """
        if not self._put and not self._gone:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        changed = {entry_id: _encode(entry) for entry_id, entry in self._put.items()}
        with _locked(self.path):
            lines = _read_or_set_aside(self.path)
            for entry_id in self._gone:
                lines.pop(entry_id, None)
            lines.update(changed)
            _write(self.path, lines)
        self._lines, self._known, self._put, self._gone = lines, {}, {}, set()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file beside `path`; the kernel releases it when the process ends, however it ends."""
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> dict[str, str]:
    """Lines by id.

    Raises:
        _UnusableError: `path` is not a whole ledger.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except IsADirectoryError as error:
        raise _UnusableError("it is a folder") from error
    head, _, body = data.partition(b"\n")
    magic, _, digest = head.rpartition(b" ")
    if magic != MAGIC.encode():
        raise _UnusableError(f"it does not begin with {MAGIC!r}")
    if digest.decode("ascii", "replace") != hashlib.sha256(body).hexdigest():
        raise _UnusableError("its contents do not have the sha256 its first line gives")
    try:
        lines = [line.partition("\t") for line in body.decode().split("\n")[:-1]]
        return {json.loads(name): text for name, _, text in lines}
    except (ValueError, TypeError) as error:
        raise _UnusableError("its lines are not ids and entries") from error


def _read_or_set_aside(path: Path) -> dict[str, str]:
    """As `_read`, but an unusable file is moved out of the way first. The caller holds the lock."""
    try:
        return _read(path)
    except _UnusableError as error:
        count = 1
        while (aside := path.with_name(f"{path.name}.unusable-{count}")).exists():
            count += 1
        path.rename(aside)
        text = f"{path} is not a ledger of this version: {error}. It is now {aside.name}; everything is judged anew."
        warnings.warn(text, LedgerWarning, 3)
        return {}


def _write(path: Path, lines: dict[str, str]) -> None:
    body = "".join(f"{json.dumps(name)}\t{lines[name]}\n" for name in sorted(lines)).encode()
    for left in path.parent.glob(f".{path.name}.*"):  # the caller holds the lock: a writer of these was killed
        left.unlink()
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(f"{MAGIC} {hashlib.sha256(body).hexdigest()}\n".encode() + body)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _encode(entry: Entry) -> str:
    columns: list[list[Any]] = []
    for values in zip(*(verdict.to_record() for verdict in entry.verdicts), strict=True):
        alike = all(value == values[0] for value in values)
        columns.append([values[0]] if alike else list(values))
    fields = [entry.key, entry.files, entry.seconds, len(entry.verdicts), columns]
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":"))


def _decode(text: str) -> Entry | None:
    """The entry, or None where the text is not one."""
    try:
        key, files, seconds, count, columns = json.loads(text)
        full = [column * count if len(column) == 1 else column for column in columns]
        verdicts = tuple(Verdict.from_record(record) for record in zip(*full, strict=True))
        if len(verdicts) != count:
            return None
        return Entry(key, files, verdicts, seconds)
    except (ValueError, TypeError, IndexError):
        return None
