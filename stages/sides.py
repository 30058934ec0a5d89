"""The one door to a side: `{side}.{model}.cuts` and `.taps`, by name."""

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from .errors import HarnessError
from .spec import Stage

Trace = dict[str, Any]
At = dict[str, Any]


def package(side: str, model: str) -> ModuleType:
    """The side itself: an oracle says there whose it is (`PACKAGE`) and what computes it (`FRAMEWORK`)."""
    return importlib.import_module(f"{side}.{model}")


def cuts(side: str, model: str) -> ModuleType:
    """The module that holds one callable a stage.

    Raises:
        HarnessError: what it is made of is not installed here.
    """
    return _module(side, model, "cuts")


def taps(side: str, model: str) -> ModuleType:
    """The module that runs a plan and reports its borders."""
    return _module(side, model, "taps")


def _module(side: str, model: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{side}.{model}.{name}")
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.partition(".")[0] in {"port", "oracle"}:
            raise
        extra = "torch" if getattr(package(side, model), "PACKAGE", "") == "torch" else "oracle"
        raise HarnessError(
            f"the {side} of {model} needs the package {missing.name!r}, which is not installed here. "
            f"Install the checkout with it: pip install -c .ci/constraints.txt -e '.[{extra},test]'"
        ) from missing


def parse(occurrence: str) -> At:
    """`encoder/layer=5/q` as {"encoder": True, "layer": 5, "q": True}."""
    at: At = {}
    for segment in occurrence.split("/"):
        key, equals, value = segment.partition("=")
        at[key] = (int(value) if value.isdigit() else value) if equals else True
    return at


def call(module: ModuleType, model: Any, stage: Stage, occurrence: str, ins: Mapping[str, Any]) -> Trace:
    """One forced call of a stage: `past_keys.3` and its like arrive as one mapping."""
    takes: dict[str, Any] = {}
    for name, tensor in ins.items():
        family, dot, member = name.rpartition(".")
        if dot:
            takes.setdefault(family, {})[member] = tensor
        else:
            takes[name] = tensor
    cut: Callable[..., Trace] = getattr(module, stage.name)
    result = cut(model, parse(occurrence), **takes)
    return {name: np.asarray(tensor) for name, tensor in result.items()}
