"""A recorder killed at any moment leaves goldens that are whole, or none."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from goldens.store import verify

TESTS = Path(__file__).resolve().parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(TESTS.parent)}
KILLS = 50

# Dies by its own hand where a random moment would seldom fall.
SUICIDE = """
import os, signal, sys
from pathlib import Path
import numpy as np
from goldens import seal, writer
from goldens.store import writing

def die(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)

owner, name = {"seal": (seal, "apply"), "rename": (Path, "replace"), "flush": (writer, "_flush")}[sys.argv[2]]
setattr(owner, name, die)
with writing(sys.argv[1], {}) as golden:
    golden.put("moe", "encoder", {}, {"h": np.zeros(3)})
"""


def test_fifty_kills_leave_every_golden_whole_or_absent(tmp_path):
    command = [sys.executable, str(TESTS / "recorder_to_kill.py"), str(tmp_path), str(KILLS)]
    child = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    assert found["broken"] == []
    assert found["left"] == []
    assert found["whole"] >= KILLS
    assert found["cut_short"] > 0, "no kill fell into a recording: nothing was tested"


@pytest.mark.parametrize(("moment", "there"), [("seal", False), ("rename", False), ("flush", True)])
def test_killed_at_the_last_moments(tmp_path, moment, there):
    golden = tmp_path / "a.h5"
    child = subprocess.run([sys.executable, "-c", SUICIDE, str(golden), moment], env=ENVIRONMENT, check=False)
    assert child.returncode == -signal.SIGKILL
    assert golden.exists() is there
    if there:
        verify(golden)
