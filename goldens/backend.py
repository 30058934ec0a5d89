"""What computes here: device, libraries, processor. In words for a reader, and as a key for what was computed once."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Files of which a loaded library's name is part decide the bits of a result.
_NUMERIC = ("mlx", "blas", "lapack", "mkl", "blis", "gfortran", "quadmath", "stdc++", "gomp", "libm.", "libm-")
_PROBES = ("primitives.py", "canary.py")
_ENVIRONMENT = ("MLX_", "OMP_", "OPENBLAS_", "MKL_", "BLIS_", "VECLIB_", "GOTO_", "LD_PRELOAD", "DYLD_", "METAL_")


def describe() -> dict[str, Any]:
    """The backend in words, for a manifest or a report: no path, no host name, nothing that changes by the run."""
    return {
        "device": device(),
        "blas": blas(),
        "threads": threads(),
        "platform": f"{platform.system()} {platform.machine()}",
        "system": f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else " ".join(platform.libc_ver()),
        "cpu": cpu(),
        "python": platform.python_version(),
        "mlx": version("mlx"),
    }


def identity() -> dict[str, Any]:
    """Everything a primitive's bits can depend on, cheap enough to ask at every start.

    MLX's version and device, the numeric libraries loaded into this process by name, size and time of change, the
    processor, the C++ compiler that `mx.compile` calls on a CPU, environment variables that steer any of them, and
    this package's own list of primitives.
    """
    here = Path(__file__).parent
    compiler = shutil.which("g++") or shutil.which("c++")
    return {
        "mlx": version("mlx"),
        "device": device(),
        "cpu": cpu(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libraries": {str(path): _stamp(path) for path in loaded_libraries()},
        "compiler": [compiler, *_stamp(Path(compiler).resolve())] if compiler else None,
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_ENVIRONMENT)},
        "probes": hashlib.sha256(b"".join((here / name).read_bytes() for name in _PROBES)).hexdigest(),
    }


def device() -> str:
    """MLX's default device, e.g. ``cpu`` or ``gpu (Apple M2)``."""
    import mlx.core as mx  # noqa: PLC0415, the store itself needs no MLX

    kind = "gpu" if mx.default_device() == mx.gpu else "cpu"
    if kind == "cpu":
        return kind
    name = mx.device_info().get("device_name", "unnamed")
    return f"{kind} ({name})"


def blas() -> str:
    """The BLAS that MLX's matmul on a CPU calls, by the name of its file."""
    if sys.platform == "darwin":
        return "Accelerate"
    named = [path for path in loaded_libraries() if "blas" in path.name.lower()]
    own = [path for path in named if "mlx" in str(path)] or [path for path in named if "numpy" not in str(path)]
    return own[0].name if own else "none found"


def threads() -> str:
    """How many threads one operation may use."""
    asked = {
        k: os.environ[k] for k in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS") if k in os.environ
    }
    limits = ", ".join(f"{k}={v}" for k, v in asked.items()) or "no limit set"
    return f"one stream of MLX; BLAS: {limits}"


def cpu() -> str:
    """The processor's model name."""
    table = Path("/proc/cpuinfo")
    if table.exists():
        for line in table.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603, fixed
    return platform.processor() or platform.machine()


def loaded_libraries() -> list[Path]:
    """Files of the numeric libraries that this process has loaded, preloaded ones included."""
    import mlx.core as mx  # noqa: PLC0415, so that they are loaded

    maps = Path("/proc/self/maps")
    if maps.exists():
        mapped = {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if line.count("/")}
        preloaded = set(os.environ.get("LD_PRELOAD", "").replace(":", " ").split())
        wanted = {p for p in mapped if any(word in Path(p).name for word in _NUMERIC)} | (mapped & preloaded)
        return sorted(Path(p) for p in wanted if ".so" in Path(p).name)
    package = Path(mx.__file__).parent
    return sorted(path for path in package.rglob("*") if path.suffix in (".so", ".dylib", ".metallib"))


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]
