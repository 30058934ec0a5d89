"""All tensors of a checkpoint directory: which file holds which, and that index and files agree."""

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from port.errors import CheckpointError, fetch_again
from port.shards import Shard, Slot

INDEX = "model.safetensors.index.json"


def _index(directory: Path) -> dict[str, str] | None:
    """The index: stored names to file names inside the directory, or None where there is no index."""
    path = directory / INDEX
    if not path.exists():
        return None
    mend = fetch_again(directory, INDEX)
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        listed = {str(name): PurePosixPath(file) for name, file in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            str(path), found=f"it cannot be read ({error!r})", expected="JSON with a weight_map", mend=mend
        ) from error
    for name, file in listed.items():
        if file.is_absolute() or ".." in file.parts or "\\" in str(file) or file.suffix != ".safetensors":
            raise CheckpointError(
                f"{path}, tensor {name}",
                found=f"its file is {str(file)!r}",
                expected="the name of a safetensors file inside the directory",
                mend=mend,
            )
    return {name: str(file) for name, file in listed.items()}


def gather(directory: Path, canonical: Callable[[str, Path], str], sidecar: Path | None = None) -> dict[str, Slot]:
    """Open every file, and hold the index against what the files really contain.

    Args:
        directory: with `model*.safetensors`, with or without an index.
        canonical: a stored name and its file to the name that the model uses.
        sidecar: a further file, which the index does not list.

    Raises:
        CheckpointError: a file is absent, damaged or outside the directory, a tensor is missing or has two places.
    """
    index = _index(directory)
    beside = {str(p.relative_to(directory)) for p in directory.glob("model*.safetensors")}
    names = (beside if index is None else set(index.values()) | beside) | (
        {str(sidecar.relative_to(directory))} if sidecar else set()
    )
    if not names:
        raise CheckpointError(
            str(directory), found="it has no model*.safetensors", expected="weights", mend=fetch_again(directory)
        )
    slots: dict[str, Slot] = {}
    for file in sorted(names):
        shard = Shard(directory / file, directory)
        for stored, slot in shard.slots.items():
            name = canonical(stored, shard.path)
            listed = index is None or shard.path == sidecar or index.get(stored) == file
            if name in slots or not listed:
                other = f"also in {slots[name].shard.path.name}" if name in slots else f"not listed there by {INDEX}"
                raise CheckpointError(
                    f"{shard.path}, tensor {stored}",
                    found=f"it is {other}",
                    expected="one place a tensor",
                    mend=fetch_again(directory),
                )
            slots[name] = slot
    for stored, file in (index or {}).items():
        if canonical(stored, directory / file) not in slots:
            raise CheckpointError(
                f"{directory / file}, tensor {stored}",
                found="it is missing from the file",
                expected=f"a tensor, as {INDEX} lists it there",
                mend=fetch_again(directory),
            )
    return slots
