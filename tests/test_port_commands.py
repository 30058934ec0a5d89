"""The port's commands say what they do by themselves, and do what they say."""

import subprocess
import sys
from dataclasses import fields
from types import ModuleType
from typing import Any

import click
import pytest

from port.__main__ import main
from port.diffusion_gemma import train as teaching
from port.diffusion_gemma import train_tower as tower
from port.diffusion_gemma.options import Options
from port.metadiffusion import cli as metadiffusion
from port.metadiffusion.train import Recipe
from stages.places import ROOT

COMMANDS = [
    *(pytest.param(command, id=name) for name, command in main.commands.items()),
    pytest.param(metadiffusion.generate, id="generate-metadiffusion"),
    pytest.param(teaching.main, id="train"),
    pytest.param(tower.main, id="train-tower"),
]


def defaults(command: click.Command) -> dict[str, Any]:
    shown = click.Context(command).to_info_dict()["command"]["params"]
    return {one["name"]: one["default"] for one in shown if one["param_type_name"] == "option" and not one["required"]}


# Options that a command spells otherwise than what it fills.
SPELLED = {"compiled": "compile", "show_unmasking": "show", "unmasking_interval": "show_every"}


@pytest.mark.parametrize(("command", "filled"), [(main.commands["generate"], Options), (metadiffusion.train, Recipe)])
def test_a_command_starts_from_the_defaults_of_what_it_fills(command: click.Command, filled: type) -> None:
    own = {one.name: one.default for one in fields(filled)}
    given = {SPELLED.get(name, name): default for name, default in defaults(command).items()}
    common = given.keys() & own.keys()
    assert len(common) >= 9
    assert {name: given[name] for name in common} == {name: own[name] for name in common}


@pytest.mark.parametrize("module", [teaching, tower])
def test_a_training_is_started_by_the_name_of_its_module(module: ModuleType) -> None:
    command = [sys.executable, "-m", module.__name__, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: python -m port.diffusion_gemma.train")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_tells_every_default(command: click.Command) -> None:
    context = click.Context(command)
    for one in command.params:
        if isinstance(one, click.Option) and isinstance(one.default, int | float | str) and not one.is_flag:
            _, told = one.get_help_record(context)
            assert f"[default: {one.default}" in told, one.name
