"""The canary: what this machine's backend computes for a fixed set of primitives, as one hash each.

Two machines whose canaries are equal may be held to each other's bits; where they differ, the name of the primitive
says why not. Version strings prove neither.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from goldens import backend

DIGITS = 16  # of each hash: chance collisions are what it guards against
FRAMEWORK = "framework"  # in a manifest's canary: what computed the golden, where that is not MLX
CACHE = Path(__file__).resolve().parent.parent / ".lockstep"


def canary(cache: Path | None = CACHE) -> dict[str, str]:
    """SHA-256 by primitive name of what this backend computes; about a second, or nothing when nothing changed.

    The hash covers dtype, shape and bits of the result. A primitive that this backend cannot run is recorded as
    ``raises <error>``, so that two backends that both cannot are equal in it.

    Args:
        cache: folder that keeps the answer, by everything it can depend on (``backend.identity``); None computes.
    """
    if cache is None:
        return compute()
    here = json.loads(json.dumps(backend.identity()))
    path = cache / f"canary-{hashlib.sha256(json.dumps(here).encode()).hexdigest()[:12]}.json"
    known = _load(path)
    if known is not None and known.get("identity") == here and isinstance(known.get("canary"), dict):
        return dict(known["canary"])
    computed = compute()
    _save(path, {"identity": here, "canary": computed})
    return computed


def compute() -> dict[str, str]:
    """The canary, computed now on MLX's default device. Leaves MLX's random state alone."""
    import mlx.core as mx  # noqa: PLC0415, the store itself needs no MLX

    from goldens.primitives import probes  # noqa: PLC0415

    found = {}
    for name, probe in probes():
        try:
            result = probe()
            results = (result,) if isinstance(result, mx.array) else result
            mx.eval(*results)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            found[name] = f"raises {type(error).__name__}"
        else:
            found[name] = _digest(results)
    return found


def differing(recorded: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Names of the primitives that differ, or that only one of the two has; the framework where it is another one."""
    if FRAMEWORK in recorded:
        return [f"{FRAMEWORK} {recorded[FRAMEWORK]}"]
    # Hashes were longer once, in goldens and in caches that are still about.
    return sorted(n for n in recorded.keys() | here.keys() if recorded.get(n, "")[:DIGITS] != here.get(n, "")[:DIGITS])


def _digest(results: Any) -> str:
    import mlx.core as mx  # noqa: PLC0415

    total = hashlib.sha256()
    for result in results:
        bits = np.array(result.view(mx.uint16) if result.dtype == mx.bfloat16 else result)
        total.update(f"{result.dtype}:{'x'.join(map(str, result.shape))}:".encode() + bits.tobytes())
    return total.hexdigest()[:DIGITS]


def _load(path: Path) -> dict[str, Any] | None:
    """A cached answer, or None: a cache that cannot be read only costs its recomputation."""
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) else None


def _save(path: Path, answer: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(answer))
    beside.replace(path)
