"""Where things lie in a checkout."""

import tempfile
from pathlib import Path

from goldens import manifest
from goldens.nano import build

from .errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".lockstep"
COMMITTED = ROOT / "goldens" / "nano" / "recorded"
LOCAL = ROOT / "goldens" / "local"
PAGES = ROOT / "reports" / "html"
MODELS = ("diffusion_gemma",)


def checkpoint_path(name: str) -> Path:
    """The directory of a checkpoint that a case names; `nano-inline` is rebuilt from its seed on first use."""
    if name == "nano":
        return ROOT / "goldens" / "nano" / "checkpoint"
    if name == "nano-trained":
        return ROOT / "goldens" / "nano" / "trained"
    if name == "nano-inline":
        return _built_inline()
    raise UsageError(f"no checkpoint is called {name!r}; there are: nano, nano-trained, nano-inline")


def golden_path(folder: Path, model: str, case: str, compute: str) -> Path:
    """The file of one recorded case."""
    return folder / f"{model}.{case}.{compute}.h5"


def _built_inline() -> Path:
    # Named by what builds it: after a change of the recipe the old one is not found.
    target = CACHE / f"nano-inline-{manifest.sources_digest([ROOT / 'goldens' / 'nano'])[:12]}"
    if not target.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            made = Path(scratch) / "made"
            build.write("inline", made)
            try:
                made.rename(target)
            except OSError:  # another process was faster, and its bytes are the same
                if not target.exists():
                    raise
    return target
