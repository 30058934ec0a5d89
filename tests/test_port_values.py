"""What the port holds as data is never changed in place: a configuration or a plan may be shared by threads."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import is_dataclass

import port


def dataclasses() -> Iterator[type]:
    for module in pkgutil.walk_packages(port.__path__, "port."):
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if is_dataclass(found) and found.__module__ == module.name:
                yield found


def test_every_dataclass_is_frozen() -> None:
    found = list(dataclasses())
    assert len(found) > 25
    assert not [one for one in found if not one.__dataclass_params__.frozen]
