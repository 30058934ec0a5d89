"""The one door to a side: `{side}.{model}.cuts` and `.taps`, by name."""

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from .spec import Stage

Trace = dict[str, Any]
At = dict[str, Any]


def cuts(side: str, model: str) -> ModuleType:
    """The module that holds one callable a stage."""
    return importlib.import_module(f"{side}.{model}.cuts")


def taps(side: str, model: str) -> ModuleType:
    """The module that runs a plan and reports its borders."""
    return importlib.import_module(f"{side}.{model}.taps")


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
