"""A case as a JSON file, which `--case` takes in place of a name."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from .errors import UsageError
from .places import MODELS
from .spec import Case, Generation, Table

SCHEMA = 1
SUFFIX = ".json"


def write(path: Path, model: str, case: Case) -> None:
    """Write a case; its directory is made.

    Raises:
        UsageError: a case of a kind that has no file.
    """
    if type(case) is not Case:
        raise UsageError(f"cases of {model} are not written to files: {case.name} is a {type(case).__name__}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": SCHEMA, "model": model, "case": case.facts()}, indent=1) + "\n")


def read(path: Path) -> tuple[str, Case]:
    """(model, case) of a file.

    Raises:
        UsageError: there is no such file, or it is no case; the message says what of it is not.
    """
    mend = "write one with: harness diff --shrink STAGE --case NAME --out FILE"
    try:
        held = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} holds no case: {error}; {mend}") from error
    if not isinstance(held, dict) or held.get("schema") != SCHEMA or not isinstance(held.get("case"), dict):
        raise UsageError(
            f'{path} holds no case: it should be {{"schema": {SCHEMA}, "model": ..., "case": ...}}; {mend}'
        )
    given, known = held["case"], {one.name for one in fields(Case)}
    if odd := sorted(given.keys() - known) or sorted({"name", "why"} - given.keys()):
        raise UsageError(f"the case in {path} has {odd[0]!r} wrong; its fields are {', '.join(sorted(known))}")
    try:
        generations = tuple(_generation(one) for one in given.get("generations", ()))
        plain = {name: _frozen(value) for name, value in given.items() if name != "generations"}
        return str(held.get("model")), Case(**plain, generations=generations)
    except TypeError as error:
        raise UsageError(f"{path} holds no case: {error}; {mend}") from error


def model_of(path: Path) -> str:
    """Whose case a file holds.

    Raises:
        UsageError: nobody's that is known here.
    """
    model, case = read(path)
    if model not in MODELS:
        raise UsageError(f"{path} calls {case.name!r} a case of {model!r}; there are: {', '.join(MODELS)}")
    return model


def _generation(given: dict[str, Any]) -> Generation:
    return Generation(**{**given, "options": tuple((name, value) for name, value in given.get("options", ()))})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


def adopted(table: Table, names: tuple[str, ...]) -> tuple[Table, tuple[str, ...]]:
    """The table with the cases of files among these names, and the names with theirs in place of the files'.

    Raises:
        UsageError: a file is of another model, or its case is called as another one of the table.
    """
    called = []
    for name in names:
        if not name.endswith(SUFFIX):
            called.append(name)
            continue
        model, case = read(Path(name))
        if model != table.model:
            raise UsageError(f"{name} is a case of {model}, and one of {table.model} is asked for: --model {model}")
        same = next((one for one in table.cases if one.name == case.name), None)
        if same is not None and same != case:
            raise UsageError(f"{name} calls its case {case.name!r}, and so does the table: change its name in the file")
        if same is None:
            table = replace(table, cases=(*table.cases, case))
        called.append(case.name)
    return table, tuple(called)
