"""What Python decides between operations: sets, options, texts and what is kept from one call to the next."""

import json
import textwrap
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stages.diff.calls import of_its_caller
from stages.diff.decided import Window, suspects
from stages.diff.members import answers, misjudged, questions
from stages.diff.options import fractions, renumbered
from stages.diff.planted import measure
from stages.diff.settings import _part
from stages.diff.sides import Sides
from stages.diff.words import worded
from stages.mutate import mutants_of
from stages.places import ROOT
from stages.trace import expressions
from stages.trace.frames import reads, watching
from stages.trace.oplog import OpLog
from stages.trace.outward import calling
from stages.trace.slices import deciding
from stages.trace.whence import Trail

# Planted bugs that compute nothing wrong: what is asked of a generation, what ends it, what it says.
SAID = (
    "JSON as for a web page",
    "an empty answer tried again",
    "markers left out of the text",
    "pictures left out of the prompt",
    "question before the pictures",
    "sixteen steps by default",
    "stop tokens of one call kept for the next",
    "stopping rule by default",
    "the end written out",
    "the tokenizer's end alone",
)


def test_the_marked_line_is_the_one_that_was_changed():
    asked = [("diffusion_gemma", one, None) for one in mutants_of("diffusion_gemma") if one.name in SAID]
    found = list(measure(asked, search=0))
    assert len(found) == len(SAID)
    wrong = [f"{one.name}: {one.grade}, {one.at}: {one.why}" for one in found if one.grade not in ("line", "statement")]
    assert not wrong, "\n".join(wrong)


def ran(source: str, folder: str = "port") -> Any:
    """The log of a `run()` that stands in some folder of the checkout, called through its door."""
    space: dict[str, Any] = {"__name__": f"{folder}.made_up"}
    exec(compile(textwrap.dedent(source), f"{ROOT}/{folder}/made_up.py", "exec"), space)
    exec(compile("def cut():\n    return run()\n", f"{ROOT}/{folder}/cuts.py", "exec"), space)
    with watching(f"{folder}/") as watch:
        gave = space["cut"]()
    return SimpleNamespace(watch=watch, gave=gave)


def line_of(source: str, text: str) -> int:
    return next(n for n, line in enumerate(textwrap.dedent(source).splitlines(), 1) if text in line)


def beside(ours: Any, theirs: OpLog) -> Sides:
    return Sides(OpLog(watch=ours.watch), theirs, [])


STOPS = """\
    class Ends:
        def __init__(self, own, more):
            usual = {own}
            self.held = frozenset(usual | more)
        def ends(self, number):
            return number in self.held
    def run():
        ends = Ends(1, {106})
        return [number for number in (5, 50, 106, 1) if ends.ends(number)]
    """


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("frozenset(usual | more)", "frozenset(usual | more | {50})", "self.held ="),
        ("frozenset(usual | more)", "frozenset(usual)", "usual = {own}"),
        ("Ends(1, {106})", "Ends(1, {106, 50})", "ends = Ends"),
    ],
)
def test_a_number_that_a_set_has_or_lacks_is_walked_back_to_who_put_it_in(old, new, expected):
    assert old in STOPS
    source = STOPS.replace(old, new)
    theirs = answers(ran(STOPS, "oracle").watch)
    assert theirs == {(5, False), (50, False), (106, True), (1, True)}
    found = misjudged(beside(ran(source), OpLog(asked=theirs)), None)
    assert found is not None
    assert found.at is not None
    assert found.at.line == line_of(source, expected), found.why
    assert misjudged(beside(ran(STOPS), OpLog(asked=theirs)), None) is None


def test_a_statement_that_asks_for_several_numbers_is_no_question():
    log = ran("def run():\n    a, b, held = 1, 2, [2, 3]\n    return a in held or b in held\n")
    assert not list(questions(Trail(log.watch)))


STEPS = """\
    from dataclasses import dataclass
    @dataclass
    class Settings:
        steps: int
        least: int
    def share(step, steps):
        return 0.4 + 0.4 * step / steps
    def resolve(asked):
        settings = Settings(
            least=8,
            steps=asked or 48,
        )
        return settings
    def run():
        settings = resolve(None)
        for step in range(settings.steps, 0, -1):
            share(step, settings.steps)
    """


def test_the_numbers_that_a_fraction_was_computed_of_are_walked_back(tmp_path, monkeypatch):
    source = STEPS.replace("48", "16")
    theirs = fractions(ran(STEPS, "oracle").watch)
    log = ran(source)
    frame = next(one for one in log.watch.frames if one.code.co_name == "share" and one.returns[0][2] % 0.4)
    asked = {repr(0.4 + 0.4 * 47 / 48)}
    at = (frame, frame.returns[0][1], frame.returns[0][0])
    monkeypatch.setattr(expressions, "ROOT", tmp_path)
    monkeypatch.setattr(expressions, "_tree", cache(expressions._tree.__wrapped__))  # what others looked for is kept
    (tmp_path / "port").mkdir()
    (tmp_path / "port/made_up.py").write_text(textwrap.dedent(source))
    found = renumbered(theirs, Trail(log.watch), at, asked)
    assert found is not None
    assert found.line == line_of(source, "steps=asked")
    # Computed of the oracle's numbers, it is the function that is wrong.
    same = dict.fromkeys(asked, (frame.writes[0].value, frame.writes[1].value))
    assert renumbered(same, Trail(log.watch), at, asked) is None


def text_of(segments: list[str]) -> np.ndarray:
    return np.frombuffer(json.dumps(segments).encode(), np.uint8)


PIECES = """\
    TABLE = ["In", "<|tool>", "side", "<end>"]
    def add(held, number):
        piece = TABLE[number]
        held.append(piece)
        return piece
    def run():
        held = []
        for number in (0, 1, 2):
            add(held, number)
        return "".join(held)
    """


@pytest.mark.parametrize(
    ("old", "new", "ours", "expected"),
    [
        ("held.append", 'piece = "" if piece[0] == "<" else piece\n        held.append', "Inside", 'piece = ""'),
        ('return ""', 'add(held, 3)\n        return ""', "In<|tool>side<end>", "add(held, 3)"),
    ],
)
def test_a_piece_of_text_is_followed(old, new, ours, expected):
    assert old in PIECES
    source = PIECES.replace(old, new)
    sides = beside(ran(source), OpLog())
    found = worded(sides, {"segments": (text_of(["In<|tool>side"]), text_of([ours]))})
    assert found is not None
    assert found.at is not None
    assert found.at.line == line_of(source, expected)


def test_an_object_made_of_nothing_with_numbers_nobody_else_has_is_suspected_first():
    source = """\
        from dataclasses import dataclass
        @dataclass
        class Rule:
            bound: float = 0.005
        def resolve(asked):
            if not asked:
                return Rule()
            return None
        def step(rule, number):
            if rule is None:
                return number
            return number + 1
        def run():
            rule = resolve({})
            number = 1
            return step(rule, number)
        """
    log = ran(source)
    frame = next(one for one in log.watch.frames if one.code.co_name == "step")
    sides = beside(log, OpLog())
    window = Window(sides, Trail(log.watch), frame.began, log.watch.number, [frame], 0, bounded=False)
    assert suspects(window, more=True)[0].first == line_of(source, "return Rule()")


def test_what_a_caller_had_and_did_not_give_is_known():
    source = """\
        def size(width, budget=280):
            return width * budget
        def run():
            width, budget = 3, 70
            return size(width)
        """
    frame = next(one for one in ran(source).watch.frames if one.code.co_name == "size")
    assert of_its_caller(frame) == {"budget": 70}


def test_what_leaves_a_with_or_waits_for_another_decides_nothing():
    space: dict[str, Any] = {}
    source = "def f(lock, others):\n    with lock:\n        n = 0\n    yield from others\n    if n:\n        n = 1\n"
    exec(compile(source, "f.py", "exec"), space)
    assert deciding(space["f"].__code__) == {5}


def test_what_is_counted_up_is_read():
    space: dict[str, Any] = {}
    exec(compile("def f(self):\n    self.n += 1\n", "f.py", "exec"), space)
    assert ("self", "n") in reads(space["f"].__code__)[2]


def test_text_that_python_makes_itself_is_logged():
    space: dict[str, Any] = {"json": json}
    exec(compile("def f():\n    return json.dumps(['a'], sort_keys=True)\n", f"{ROOT}/port/made_up.py", "exec"), space)
    with calling("port/") as calls:
        space["f"]()
    assert [(one.name.rpartition(":")[2], one.told["sort_keys"]) for one in calls] == [("dumps", True)]


def test_the_one_text_that_two_lists_differ_in():
    mine, theirs = [{"role": "user", "content": "What is it?<>"}], [{"role": "user", "content": "<>What is it?"}]
    assert _part(mine, theirs) == "What is it?<>"
    assert _part(mine, [{"role": "you", "content": "<>What is it?"}]) is None
    assert _part(mine, mine) is None


WORDS = """\
    class Held:
        def __init__(self):
            self.word, self.text = "", ""
        def add(self, piece):
            self.word += piece
            return ""
        def finish(self):
            word = self.word.replace("_", " ")
            self.text += word
            return self.text
    def run():
        held = Held()
        held.add("_In")
        held.add("side")
        return held.finish()
    """


@pytest.mark.parametrize(
    ("old", "new", "ours", "expected"),
    [
        ("return self.text", 'return ""', "", 'return ""'),
        ("self.text += word", "self.text += word.strip()", "Inside", "self.text += word.strip()"),
    ],
)
def test_text_that_is_kept_back_or_cut_is_marked_where_it_is(old, new, ours, expected):
    assert old in WORDS
    source = WORDS.replace(old, new)
    log = ran(source)
    assert log.gave == ours
    found = worded(beside(log, OpLog()), {"segments": (text_of([" Inside"]), text_of([ours]))})
    assert found is not None
    assert found.at is not None
    lines = [n for n, line in enumerate(textwrap.dedent(source).splitlines(), 1) if expected in line]
    assert found.at.line == lines[-1]
