"""Where things lie in a checkout."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from goldens import manifest
from goldens.llama import build as small
from goldens.nano import build

from .errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".lockstep"
COMMITTED = ROOT / "goldens" / "nano" / "recorded"
LOCAL = ROOT / "goldens" / "local"
PAGES = ROOT / "reports" / "html"
MODELS = ("diffusion_gemma", "metadiffusion")


def checkpoint_path(name: str) -> Path:
    """The directory of a checkpoint that a case names; what is not committed is rebuilt from its seed on first use."""
    if name == "nano":
        return ROOT / "goldens" / "nano" / "checkpoint"
    if name == "nano-trained":
        return ROOT / "goldens" / "nano" / "trained"
    if name == "nano-inline":
        return _built(name, "nano", lambda out: build.write("inline", out))
    if name in small.VARIANTS:
        return _built(name, "llama", lambda out: small.write(name, out))
    known = ("nano", "nano-trained", "nano-inline", *small.VARIANTS)
    raise UsageError(f"no checkpoint is called {name!r}; there are: {', '.join(known)}")


def golden_path(folder: Path, model: str, case: str, compute: str) -> Path:
    """The file of one recorded case."""
    return folder / f"{model}.{case}.{compute}.h5"


def _built(name: str, recipe: str, write: Callable[[Path], object]) -> Path:
    # Named by what builds it: after a change of the recipe the old one is not found.
    target = CACHE / f"{name}-{manifest.sources_digest([ROOT / 'goldens' / recipe])[:12]}"
    if not target.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            made = Path(scratch) / "made"
            write(made)
            try:
                made.rename(target)
            except OSError:  # another process was faster, and its bytes are the same
                if not target.exists():
                    raise
    return target
