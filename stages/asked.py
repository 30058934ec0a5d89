"""Which models a command is about, and what it asks of each."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from . import casefile
from .places import MODELS
from .shelf import Question
from .spec import Table


def table_of(model: str) -> Table:
    """The table of a model, by name."""
    table: Table = import_module(f"stages.{model}").TABLE
    return table


def per_model(model: str | None, question: Question) -> list[tuple[Table, Question]]:
    """Each model that a question is about, with what it asks of that one.

    Without a name those that know a stage and a case asked for, in a dtype, a tier and a folder of goldens asked for.
    Where no model does, the first is asked, and says what it lacks.
    """
    files = [name for name in question.cases if name.endswith(casefile.SUFFIX)]
    if files:
        table, cases = casefile.adopted(table_of(model or casefile.model_of(Path(files[0]))), question.cases)
        return [(table, replace(question, cases=cases))]
    if model is not None:
        return [(table_of(model), question)]
    found = []
    for table in () if question.checkpoint else map(table_of, MODELS):
        stages = tuple(stage.name for stage in table.stages if stage.name in question.stages)
        cases = tuple(case.name for case in table.cases if case.name in question.cases)
        computes = {compute for case in table.cases for compute in case.computes}
        answers = (
            bool(stages) >= bool(question.stages)
            and bool(cases) >= bool(question.cases)
            and computes.issuperset(question.computes)
            and (table.exact or question.tier != "exact")
            and (not question.goldens or any(question.goldens.glob(f"{table.model}.*.h5")))
        )
        if answers:
            found.append((table, replace(question, stages=stages, cases=cases)))
    known = {name for _, asked in found for name in (*asked.stages, *asked.cases)}
    return (
        found if found and known.issuperset((*question.stages, *question.cases)) else [(table_of(MODELS[0]), question)]
    )
