"""The door to a side, where what the side is made of is not installed."""

import sys

import pytest

from stages import sides
from stages.errors import HarnessError


@pytest.mark.parametrize(
    ("model", "package", "extra"), [("metadiffusion", "torch", "torch"), ("diffusion_gemma", "optiq", "oracle")]
)
def test_a_missing_package_names_the_extra_that_has_it(monkeypatch, model, package, extra):
    for name in [name for name in sys.modules if name.startswith(f"oracle.{model}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(HarnessError, match=rf"'{package}[\w.]*', which is not installed.*'\.\[{extra},test\]'"):
        sides.cuts("oracle", model)
