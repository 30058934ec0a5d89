"""The oracle in PyTorch is cut exactly as its table says, and records without the port."""

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from goldens.store import Golden
from stages.cli import table_of

ROOT = Path(__file__).resolve().parent.parent.parent
CUTS = importlib.import_module("oracle.metadiffusion.cuts")


@pytest.mark.parametrize("stage", table_of("metadiffusion").stages, ids=lambda stage: stage.name)
def test_it_cuts_exactly_the_table(stage):
    parameters = list(inspect.signature(getattr(CUTS, stage.name)).parameters.values())
    assert parameters[1].name == "at"
    assert all(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters[2:])
    assert [p.name for p in parameters[2:]] == list(stage.takes)


RECORD = """
import json, sys
from stages.cli import main
main(["dump", "--model", "metadiffusion", "--case", "edges", "--out", sys.argv[1]], standalone_mode=False)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_recording_loads_torch_and_never_the_port(tmp_path):
    command = [sys.executable, "-c", RECORD, str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert child.returncode == 0, child.stderr
    modules = set(json.loads(child.stdout.splitlines()[-1]))
    assert {"oracle", "torch"} <= modules
    assert not {"port", "optiq", "transformers"} & modules
    with Golden.open(tmp_path / "metadiffusion.edges.float32.h5") as golden:
        assert golden.manifest["canary"]["framework"].startswith("torch 2.13.0")
        assert golden.manifest["oracle"]["name"] == "torch"
