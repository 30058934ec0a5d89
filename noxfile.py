"""How the project is run: `nox -l` lists the sessions, `nox -s NAME -- ...` hands arguments on.

Environments are kept between calls; one is filled again only when `pyproject.toml` or `.ci/constraints.txt` changed.
`nox -r` is never needed, `nox --no-reuse-existing-virtualenvs -s NAME` starts one over.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nox

ROOT = Path(__file__).parent
LOCAL = "goldens/local"
ORACLES = {"diffusion_gemma": "oracle", "metadiffusion": "torch"}  # the extra that brings each model's oracle
PINS = ("pyproject.toml", ".ci/constraints.txt")

nox.needs_version = ">=2024.4"
nox.options.sessions = ["parity"]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "venv"
nox.options.stop_on_first_error = True


@nox.session
def parity(session: nox.Session) -> None:
    """Judge the port against the recorded oracle: the whole table, one exit code. Arguments go to `harness run`."""
    _install(session)
    if _must_record(session):
        session.log(f"recording the oracle here first, in an environment of its own, into {LOCAL}")
        _oracle(session, "harness", "dump", "--out", LOCAL)
        _recorded().write_text(_recorder())
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    command = [Path(session.bin) / "harness", "run", *(["--markdown", summary] if summary else []), *session.posargs]
    session.log(" ".join(["harness", *map(str, command[1:])]))
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code:
        raise SystemExit(code)  # nox would leave with 1 for every failure; the harness tells them apart


@nox.session
def tests(session: nox.Session) -> None:
    """Run the project's own tests. Arguments go to pytest: `nox -s tests -- -k stage=moe`."""
    _install(session, "oracle", "test")
    session.run("pytest", *session.posargs)


@nox.session
def mutate(session: nox.Session) -> None:
    """Plant the bugs of the tables in memory, and fail unless each is caught where its table expects it."""
    _install(session)
    session.run("harness", "mutate", *session.posargs)


@nox.session
def source_mutants(session: nox.Session) -> None:
    """Plant a sample of random mutations of `port/`; fail on a survivor that nothing explains. Arguments: `--help`.

    Not in CI: every survivor has to be run by all the tests that reach it.
    """
    _install(session, "oracle", "test", "mutants")
    session.run("python", "tests/source_mutants.py", *session.posargs)


@nox.session
def portable(session: nox.Session) -> None:
    """Judge the committed goldens on two other numeric backends. Prints what differs. Arguments go to `harness run`.

    Linux with OpenBLAS preloaded, every case; and the port multiplying unpacked weights with it, those of float32.
    """
    _install(session)
    blas = ctypes.util.find_library("openblas")
    if not sys.platform.startswith("linux") or blas is None:
        session.error("it needs Linux and another BLAS than MLX brings along: apt-get install libopenblas0-pthread")
    for more in ((), ("--dense", "--compute", "float32")):
        session.run("harness", "run", "--no-pages", *more, *session.posargs, env={"LD_PRELOAD": blas})


@nox.session
def tests_torch(session: nox.Session) -> None:
    """Run the tests that compare MetaDiffusion with PyTorch and transformers. Arguments go to pytest."""
    _install(session, "torch", "test")
    session.run("pytest", "tests/torch", *session.posargs)


@nox.session
@nox.parametrize("model", ORACLES)
def goldens(session: nox.Session, model: str) -> None:
    """Record a model's committed goldens again and fail if any byte of payload changed. Arguments go to `harness dump`.

    Each oracle has an environment of its own: `nox -s "goldens(model='metadiffusion')"` is the one with torch.
    """
    _install(session, ORACLES[model])
    session.run("harness", "dump", "--check", "--committed", "--model", model, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting with ruff; `nox -s lint -- --fix` mends what can be mended."""
    _install(session, "oracle", "test", "dev")
    session.run("ruff", "check", *session.posargs, ".")
    session.run("ruff", "format", *([] if "--fix" in session.posargs else ["--check"]), ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types of the harness with mypy, strictly."""
    _install(session, "oracle", "test", "dev")
    session.run("mypy", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure generation against the oracle's, and what the harness adds to compute; prints tables and JSON."""
    _install(session, "oracle", "test")
    session.run(
        "pytest", "tests/bench_generate.py", "tests/bench_overhead.py", "tests/bench_tracing.py", "-q", *session.posargs
    )


@nox.session
def pages(session: nox.Session) -> None:
    """Open the report's pages in headless Chromium, which has to be on the path. Arguments: FOLDER SHOTS."""
    _install(session)
    if not session.posargs:
        session.run("harness", "report")
    session.run("python", "tests/browse_pages.py", *session.posargs)


@nox.session
def generations(session: nox.Session) -> None:
    """Run both engines over a matrix of generations; any difference fails. `-- --help` lists its arguments."""
    _install(session, "oracle", "test")
    session.run("python", "tests/generations.py", *session.posargs)


@nox.session
def bench_torch(session: nox.Session) -> None:
    """Measure MetaDiffusion's port against its oracle on the same weights, interleaved."""
    _install(session, "torch", "test")
    session.run("pytest", "tests/torch/bench_metadiffusion.py", "-q", "-s", *session.posargs)


def _install(session: nox.Session, *extras: str) -> None:
    """Install the checkout with `extras` at the pinned versions, unless this environment already has exactly that."""
    project = f".[{','.join(extras)}]" if extras else "."
    stamp = Path(session.virtualenv.location) / "installed"
    wanted = _pins(extras)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    session.install("-c", ".ci/constraints.txt", "-e", project)
    stamp.write_text(wanted)


def _pins(extras: tuple[str, ...]) -> str:
    digest = hashlib.sha256(",".join(extras).encode())
    for name in PINS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest() + "\n"


def _must_record(session: nox.Session) -> bool:
    """Whether no golden at hand is of this machine's numeric backend; logs which primitives differ."""
    printed = session.run("harness", "doctor", "--json", silent=True)
    found: dict[str, Any] = json.loads(str(printed))["goldens"]
    committed = found["committed"]
    if committed["broken"] or committed["tier"] == "exact":
        return False  # a damaged golden is for `harness run` to refuse
    differing = ", ".join(committed["differs"]) or "there are none"
    session.log(f"the committed goldens are not of this machine's numeric backend: {differing}")
    mine = _recorded()
    return found[LOCAL]["tier"] != "exact" or not mine.exists() or mine.read_text() != _recorder()


def _recorded() -> Path:
    """Notes what the local goldens were recorded by."""
    return ROOT / LOCAL / "recorded-by"


def _recorder() -> str:
    """A digest of everything that decides what is recorded."""
    digest = hashlib.sha256((ROOT / ".ci/constraints.txt").read_bytes())
    checkpoint = ROOT / "goldens" / "nano" / "checkpoint"
    sources = [path for folder in ("oracle", "goldens", "stages") for path in (ROOT / folder).rglob("*.py")]
    for path in sorted([*sources, *checkpoint.iterdir()]):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest() + "\n"


def _oracle(session: nox.Session, *command: str) -> None:
    """Run a command of the checkout in a second environment, the only one that has the oracle."""
    home = Path(session.virtualenv.location).with_name("oracle")
    python = home / "bin" / "python"
    if not python.exists():
        session.run("python", "-m", "venv", str(home))
    stamp, wanted = home / "installed", _pins(("oracle",))
    if not stamp.exists() or stamp.read_text() != wanted:
        install = ("-m", "pip", "install", "-q", "-c", ".ci/constraints.txt", "-e", ".[oracle]")
        session.run(str(python), *install, external=True)
        stamp.write_text(wanted)
    session.run(str(home / "bin" / command[0]), *command[1:], external=True)
