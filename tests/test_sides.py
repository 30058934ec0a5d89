"""The door to a side, where what the side is made of is not installed."""

import subprocess
import sys

import pytest

# In a process of its own: here a test before may have imported the oracle, and with it the package.
WITHOUT = """
import sys
from stages import sides
from stages.errors import HarnessError
sys.modules[sys.argv[2]] = None
try:
    sides.cuts("oracle", sys.argv[1])
except HarnessError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("model", "package", "extra"), [("metadiffusion", "torch", "torch"), ("diffusion_gemma", "optiq", "oracle")]
)
def test_a_missing_package_names_the_extra_that_has_it(model, package, extra):
    run = subprocess.run([sys.executable, "-c", WITHOUT, model, package], capture_output=True, text=True, check=True)
    assert f"needs the package '{package}" in run.stdout
    assert "which is not installed" in run.stdout
    assert f"'.[{extra},test]'" in run.stdout
