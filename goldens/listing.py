"""The listing of a golden: which records it holds, in recorded order, and what each tensor must be.

As JSON: ``{"manifest": {field: digest}, "tensors": [[dtype, shape, digest]], "records": [[stage, occurrence,
{"in": {name: i}, "out": {...}, "wide": {...}, "noise": {...}}]]}``, where ``i`` counts into ``tensors``.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from goldens.errors import GoldenError
from goldens.layout import MAX_TENSORS, SIDES, check_names, check_size, tensor_path

NOISE_KINDS = ("float64", "float32")
_HEX = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    """One stored tensor: dtype name, shape, and SHA-256 (see ``layout.tensor_digest``)."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass
class Recorded:
    """One record: for each side the tensors by name, and the oracle's own noise by output name."""

    sides: dict[str, dict[str, Entry]]
    noise: dict[str, dict[str, Any]]

    def paths(self, stage: str, occurrence: str) -> Iterator[tuple[str, Entry]]:
        """Every tensor's path in the file, with what it must be."""
        for side, tensors in self.sides.items():
            for name, entry in tensors.items():
                yield tensor_path(stage, occurrence, side, name), entry


@dataclass
class Listing:
    """All records by (stage, occurrence), in recorded order, and a digest for each top-level manifest field."""

    records: dict[tuple[str, str], Recorded] = field(default_factory=dict)
    manifest: dict[str, str] = field(default_factory=dict)

    def paths(self) -> Iterator[tuple[str, Entry]]:
        """Every tensor's path in the file, with what it must be."""
        for (stage, occurrence), record in self.records.items():
            yield from record.paths(stage, occurrence)

    def payload(self, stage: str | None = None) -> dict[str, str]:
        """SHA-256 by path of every tensor, and of every record's noise, of one stage or of all."""
        found: dict[str, str] = {}
        for (name, occurrence), record in self.records.items():
            if stage is None or stage == name:
                found |= {path: entry.sha256 for path, entry in record.paths(name, occurrence)}
                if record.noise:
                    found[f"{name}/{occurrence}/noise"] = text_digest(to_text(record.noise))
        return found

    def to_json(self) -> str:
        """The listing as text; equal listings give equal text."""
        numbers: dict[Entry, int] = {}
        records = []
        for (stage, occurrence), record in self.records.items():
            row: dict[str, Any] = {
                side: {name: numbers.setdefault(entry, len(numbers)) for name, entry in tensors.items()}
                for side, tensors in record.sides.items()
            }
            records.append([stage, occurrence, row | {"noise": record.noise}])
        tensors = [[entry.dtype, list(entry.shape), entry.sha256] for entry in numbers]
        return to_text({"manifest": self.manifest, "tensors": tensors, "records": records}, sort=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a listing back, refusing whatever the writer would not have written.

        Raises:
            GoldenError: the text is not such a listing.
        """
        try:
            data = json.loads(text)
            manifest = {str(name): _hex(value) for name, value in data["manifest"].items()}
            if len(data["tensors"]) > MAX_TENSORS:
                raise GoldenError(f"the listing has {len(data['tensors'])} tensors, the limit is {MAX_TENSORS}")
            entries = [_entry(*row) for row in data["tensors"]]
            records: dict[tuple[str, str], Recorded] = {}
            for stage, occurrence, row in data["records"]:
                check_names(stage, occurrence, [name for side in SIDES for name in row[side]])
                sides = {side: {name: entries[_index(i)] for name, i in row[side].items()} for side in SIDES}
                records[stage, occurrence] = Recorded(sides, check_noise(f"{stage}[{occurrence}]", row["noise"], sides))
            listing = cls(records, manifest)
            for path, entry in listing.paths():
                check_size(path, entry.dtype, entry.shape)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
            raise GoldenError(f"the listing cannot be read: {type(error).__name__}: {error}") from error
        return listing


def to_text(value: object, *, sort: bool = True) -> str:
    """Compact JSON, in one spelling."""
    return json.dumps(value, sort_keys=sort, separators=(",", ":"), allow_nan=False)


def text_digest(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def field_digests(manifest: dict[str, Any]) -> dict[str, str]:
    """A digest for each top-level field of a manifest, so that an edited one can be named."""
    return {name: text_digest(to_text(value)) for name, value in manifest.items()}


def manifest_from(text: str) -> dict[str, Any]:
    """A manifest, from its JSON text.

    Raises:
        GoldenError: the text is not a JSON object.
    """
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GoldenError(f"its manifest is not JSON: {error}") from error
    if not isinstance(manifest, dict):
        raise GoldenError(f"its manifest is a JSON {type(manifest).__name__}, which should be an object")
    return manifest


def check_noise(what: str, noise: dict[str, Any], sides: dict[str, dict[str, Entry]]) -> dict[str, dict[str, Any]]:
    """The noise of a record: ``{output: {"forced": rms, "free": rms or None, "kind": "float64" | "float32"}}``.

    Args:
        what: the record's name, for the error.
        noise: root mean squares of (oracle - wide reference), by output.
        sides: the record's tensors.

    Raises:
        GoldenError: another shape, an output that is not recorded, or a number that is not finite.
    """
    checked = {}
    for name, value in noise.items():
        if name not in sides["out"]:
            raise GoldenError(f"{what} has noise for {name!r}, which is none of its outputs {sorted(sides['out'])}")
        if not isinstance(value, dict) or set(value) != {"forced", "free", "kind"} or value["kind"] not in NOISE_KINDS:
            raise GoldenError(
                f"the noise of {what}.{name} should have forced, free and a kind of {NOISE_KINDS}: {value}"
            )
        for mode in ("forced", "free"):
            rms = value[mode]
            if rms is None and mode == "free":
                continue
            if isinstance(rms, bool) or not isinstance(rms, (int, float)) or not math.isfinite(rms) or rms < 0:
                raise GoldenError(
                    f"the {mode} noise of {what}.{name} is {rms}, which should be finite and not negative"
                )
        free = None if value["free"] is None else float(value["free"])
        checked[name] = {"forced": float(value["forced"]), "free": free, "kind": value["kind"]}
    return checked


def _entry(dtype: str, shape: list[int], sha256: str) -> Entry:
    return Entry(dtype, tuple(shape), _hex(sha256))


def _index(number: object) -> int:
    if type(number) is not int or number < 0:
        raise GoldenError(f"the listing counts tensors with {number!r}")
    return number


def _hex(value: object) -> str:
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        raise GoldenError(f"the listing has the digest {value!r}, which should be 64 hex digits")
    return value
