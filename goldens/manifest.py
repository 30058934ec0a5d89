"""The manifest of a golden: what it was recorded from, by what, and where."""

import base64
import hashlib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

from goldens import backend
from goldens.canary import CACHE, FRAMEWORK, canary
from goldens.checkpoint import digest as checkpoint_digest
from goldens.errors import GoldenError

SCHEMA = 1
PACKAGES = (
    "mlx",
    "mlx-cpu",
    "mlx-metal",
    "mlx-lm",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "jinja2",
    "numpy",
    "ml_dtypes",
    "h5py",
)
PART_DIGITS = 16  # of each checkpoint part's digest: enough to name a difference, the whole digest decides


def collect(
    *,
    model: str,
    case: dict[str, Any],
    compute: str,
    seed: int,
    checkpoint: Path,
    recorder: Iterable[Path],
    oracle: dict[str, str],
    framework: str = "mlx",
    kept: str | list[Any],
    cache: Path | None = CACHE,
) -> dict[str, Any]:
    """Everything that must be equal, or be named when it is not, before a golden is judged against.

    Holds no time, path or host name: recording twice on one machine gives the same manifest.

    Args:
        model: name of the model's table.
        case: the case, JSON fields.
        compute: ``bfloat16`` or ``float32``.
        seed: the case's seed.
        checkpoint: directory the oracle loads.
        recorder: files and folders whose Python source records.
        oracle: what `oracle` says of the oracle's distribution.
        framework: distribution that computes the oracle. Another one than MLX has none of the canary's primitives: its
            name and version stand in their place.
        kept: what the case keeps of a full recording.
        cache: where the canary's answer is kept (see ``canary``).

    Raises:
        GoldenError: there is no checkpoint.
    """
    held = checkpoint_digest(checkpoint)
    return {
        "schema": SCHEMA,
        "model": model,
        "case": case,
        "compute": compute,
        "seed": seed,
        "kept": kept,
        "checkpoint": {
            "digest": held.digest,
            "parts": {name: sha256[:PART_DIGITS] for name, sha256 in held.parts.items()},
        },
        "recorder": sources_digest(recorder),
        "oracle": oracle,
        "packages": packages(),
        "backend": backend.describe(),
        "canary": canary(cache) if framework == "mlx" else {FRAMEWORK: f"{framework} {version(framework)}"},
    }


def oracle(package: str) -> dict[str, str]:
    """Name, version and digest of the oracle's files, which must be as its wheel brought them; a third of a second.

    Raises:
        GoldenError: the oracle is not installed or was edited.
    """
    return {"name": package, "version": oracle_version(package), "files": wheel_digest(package)}


def packages() -> dict[str, str]:
    """Versions of the packages that a recording can depend on, those installed here."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def oracle_version(package: str) -> str:
    """The installed version of the oracle.

    Raises:
        GoldenError: it is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        raise GoldenError(
            f"the oracle {package} is not installed", mend='Install it: pip install -e ".[oracle]"'
        ) from None


def wheel_digest(package: str) -> str:
    """Digest of a wheel's file hashes, as its RECORD lists them, once every file is found to have its hash.

    Lines that an installer adds (scripts, bytecode, its own notes) are left out: the digest is that of the wheel.

    Raises:
        GoldenError: the package is not installed, or a file of it was edited or removed.
    """
    oracle_version(package)
    files = distribution(package).files or []
    mend = f"Reinstall it: pip install --force-reinstall --no-deps {package}=={version(package)}"
    lines = []
    for file in files:
        added = file.parts[0] == ".." or file.name in ("INSTALLER", "REQUESTED", "direct_url.json")
        if file.hash is None or added:
            continue
        try:
            actual = hashlib.new(file.hash.mode, Path(str(file.locate())).read_bytes()).digest()
        except OSError as error:
            raise GoldenError(f"the oracle {package} lacks its file {file}: {error}", mend=mend) from error
        if base64.urlsafe_b64encode(actual).rstrip(b"=").decode() != file.hash.value:
            raise GoldenError(f"the oracle {package} was edited: {file} is not the file of its wheel", mend=mend)
        lines.append(f"{file.as_posix()},{file.hash.mode}={file.hash.value}\n")
    if not lines:
        raise GoldenError(f"the oracle {package} has no RECORD of its files", mend=mend)
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def sources_digest(places: Iterable[Path]) -> str:
    """Digest of the Python sources at these places, by file name and content; folders count whole.

    Raises:
        GoldenError: a place holds no source.
    """
    total = hashlib.sha256()
    for place in places:
        sources = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        if not sources or not all(source.is_file() for source in sources):
            raise GoldenError("there is no Python source to digest", place)
        for source in sources:
            name = source.relative_to(place.parent).as_posix()
            total.update(f"{name}\0{hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
