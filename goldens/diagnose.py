"""Why a golden does not match its seal: named as closely as the damage allows.

Nothing in such a file can be trusted, and the HDF5 library parses it, so this happens in a child process with a
limit on its memory and its time. Its answer is only ever text: the golden is refused whatever it says.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import h5py
from h5py import h5l

from goldens import guard, seal
from goldens.errors import GoldenError
from goldens.layout import LISTING, MANIFEST
from goldens.listing import Listing, field_digests, manifest_from, text_digest

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
SECONDS = 30
MEMORY = 4 << 30  # bytes of address space, and twice the file
SHOWN = 3
OTHER_BYTES = "bytes outside its tensors, listing and manifest"


def explain(path: Path) -> str:
    """The cause, as text, for which a golden does not match its seal."""
    size = path.stat().st_size
    with path.open("rb") as file:
        block = file.read(seal.SEAL_BYTES)
    mark = seal.parse(block)
    if mark is None:
        return _explain_foreign(block, size)
    causes = _ask_child(path)
    if size < mark.size and (causes == [OTHER_BYTES] or causes[0].startswith(guard.UNOPENED)):
        return f"truncated: it has {size} of {mark.size} bytes"
    more = f" (and {len(causes) - SHOWN} more)" if len(causes) > SHOWN else ""
    return f"changed since it was recorded: {'; '.join(causes[:SHOWN])}{more}"


def _explain_foreign(block: bytes, size: int) -> str:
    if size < seal.SEAL_BYTES:
        return f"truncated: it has {size} bytes, less than a golden's seal of {seal.SEAL_BYTES}"
    if block.startswith(seal.MAGIC):
        return "its seal was changed"
    if block.startswith(HDF5_SIGNATURE):
        return "a foreign file: HDF5 data without a golden's seal"
    return f"a foreign file: it starts with {block[:16]!r}, a golden with {seal.MAGIC!r}"


def _ask_child(path: Path) -> list[str]:
    size = path.stat().st_size
    program = "import sys; sys.path.insert(0, sys.argv[1]); from goldens.diagnose import main; main(*sys.argv[2:])"
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-c", program, str(root), str(path.absolute()), str(MEMORY + 2 * size)]
    try:
        child = subprocess.run(command, capture_output=True, timeout=SECONDS + size / 2e7, check=False)  # noqa: S603, our own module
    except subprocess.TimeoutExpired:
        return [f"{guard.UNOPENED}: it did not finish"]
    try:
        causes = json.loads(child.stdout)
    except ValueError:
        return [f"{guard.UNOPENED}: it failed"]
    return [str(cause) for cause in causes] or [OTHER_BYTES]


def main(path: str, memory: str) -> None:
    """Print the causes found in ``path`` as a JSON list, using at most ``memory`` bytes. Runs in the child."""
    with suppress(ValueError, OSError):  # some systems have no such limit
        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    try:
        causes = list(find_causes(Path(path)))
    except GoldenError as error:
        causes = [error.cause]
    sys.stdout.write(json.dumps(causes))


def find_causes(path: Path) -> Iterator[str]:
    """Everything that differs between the file and its own listing, until the listing itself is unusable.

    Raises:
        GoldenError: the file cannot be opened, or its listing is not the sealed one.
    """
    with path.open("rb") as raw:
        mark = seal.parse(raw.read(seal.SEAL_BYTES))
    if mark is None:
        raise GoldenError("its seal was changed")
    size = path.stat().st_size
    with guard.open_file(path) as file:
        text = guard.read_text(file, LISTING, size)
        if text_digest(text) != mark.listing:
            raise GoldenError("its listing was changed")
        listing = Listing.from_json(text)
        yield from _manifest_causes(file, mark, listing, size)
        yield from _tensor_causes(file, listing, size)


def _manifest_causes(file: h5py.File, mark: seal.Seal, listing: Listing, size: int) -> Iterator[str]:
    try:
        text = guard.read_text(file, MANIFEST, size)
        if text_digest(text) == mark.manifest:
            return
        found = field_digests(manifest_from(text))
    except GoldenError as error:
        yield error.cause
        return
    changed = sorted(
        name for name in found.keys() | listing.manifest.keys() if found.get(name) != listing.manifest.get(name)
    )
    for name in changed:
        verb = "removed" if name not in found else "edited" if name in listing.manifest else "added"
        yield f"the manifest field {name!r} was {verb}"
    if not changed:
        yield "the manifest was rewritten"


def _tensor_causes(file: h5py.File, listing: Listing, size: int) -> Iterator[str]:
    listed = dict(listing.paths())
    sound = True
    for path, entry in listed.items():
        missing = _broken_at(file, path)
        if missing is not None:
            sound = False
            yield missing
            continue
        try:
            guard.check(file, path, entry, size)
        except GoldenError as error:
            yield error.cause
    if sound:
        try:
            guard.check_links(guard.links(file), set(listed))
        except GoldenError as error:
            yield error.cause


def _broken_at(file: h5py.File, path: str) -> str | None:
    """What is wrong with the links to a tensor, or None."""
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        part = "/".join(parts[:depth])
        try:
            kind = file.id.links.get_info(part.encode()).type if file.id.links.exists(part.encode()) else None
        except guard.HDF5_ERRORS as error:
            return f"{part} is damaged: {error}"
        if kind is None:
            what = "dataset" if depth == len(parts) else "group"
            return f"the {what} {part} is missing"
        if kind != h5l.TYPE_HARD:
            return f"{part} became a link: a golden holds its own data"
    return None
