"""Four leaves and one hub: who may import whom, in the source and in the processes that really run."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LEAVES = ("port", "oracle", "goldens", "reports")
PACKAGES = (*LEAVES, "stages")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]

# The model that is judged and everything it may never lean on.
ORACLES = {"oracle", "optiq", "transformers", "mlx_lm", "mlx_vlm", "torch"}


def imported(path: Path) -> Iterator[str]:
    """Top-level packages that a file imports anywhere in it, by statement or by a literal name."""
    package = path.relative_to(ROOT).parts[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import stays in its package unless it climbs out, which the file's depth forbids.
            assert node.level < len(path.relative_to(ROOT).parts), f"{path}:{node.lineno} climbs out of its package"
            yield package if node.level else str(node.module).partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield str(first.value).lstrip(".").partition(".")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_the_hub_imports_its_siblings(path):
    package = path.relative_to(ROOT).parts[0]
    allowed = {package} | ({"goldens", "reports"} if package == "stages" else set())
    siblings = set(imported(path)) & set(PACKAGES)
    assert siblings <= allowed, f"{path.relative_to(ROOT)} imports {sorted(siblings - allowed)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_the_oracle_knows_the_reference(path):
    if path.relative_to(ROOT).parts[0] != "oracle":
        assert not set(imported(path)) & (ORACLES - {"oracle"})


def test_the_rule_is_looked_for_where_it_could_be_broken():
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(PACKAGES)
    assert set(imported(ROOT / "stages" / "run.py")) >= {"goldens", "reports", "stages"}


MODULES_AFTER = """
import json, sys
from stages.cli import main
try:
    main(sys.argv[1:], standalone_mode=False)
except SystemExit as end:
    code = end.code or 0
else:
    code = 0
print("\\n" + json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def after(*command: str) -> set[str]:
    """Top-level modules that a process holds once it has run a command of the harness, which must succeed."""
    child = subprocess.run(
        [sys.executable, "-c", MODULES_AFTER, *command], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert child.returncode == 0, child.stderr
    code, modules = json.loads(child.stdout.splitlines()[-1])
    assert code == 0, child.stdout
    return set(modules)


def test_judging_never_loads_the_oracle():
    modules = after("run", "tokenize", "--again")
    assert "port" in modules
    assert not modules & ORACLES


def test_recording_never_loads_the_port(tmp_path):
    modules = after("dump", "--case", "experts", "--compute", "float32", "--out", str(tmp_path))
    assert {"oracle", "optiq"} <= modules
    assert "port" not in modules
    assert [path.name for path in tmp_path.iterdir()] == ["diffusion_gemma.experts.float32.h5"]


def test_looking_loads_neither_side(tmp_path):
    for command in (("list",), ("doctor",), ("goldens", "ls")):
        assert not after(*command) & (ORACLES | {"port"})
