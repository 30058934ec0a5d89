"""Which code a result depends on: files that ran, what any file constructs, the taps. On a small port of its own."""

import importlib
import sys

import pytest

from stages import code
from stages.code import Executed, fingerprint, unchanged

FILES = {
    "__init__.py": "",
    "sizes.py": "WIDTH: int = 3\nDEEP, (HIGH, _) = 1, (2, 3)\n\n\ndef helper():\n    return 1\n",
    "named.py": "from .sizes import WIDTH\n\nAREA = WIDTH * WIDTH\n",
    "unread.py": "OTHER = 1\n",
    "adds.py": (
        "from . import unread\nfrom .named import AREA\nfrom .sizes import helper\n\n\n"
        "def add(x):\n    return x + AREA\n"
    ),
    "reads.py": "from . import sizes as s\n\n\ndef high():\n    return s.HIGH\n",
    "calls.py": "from .sizes import helper\n\n\ndef call():\n    return helper()\n",
    "absolute.py": "from port.toy.sizes import WIDTH\n\n\ndef width():\n    return WIDTH\n",
    "built.py": (
        "class Built:\n    def __init__(self):\n        self.x = 1\n\n    def use(self):\n        return self.x\n\n\n"
        "def raises():\n    raise ValueError('on purpose')\n"
    ),
    "inner/__init__.py": "from ..sizes import WIDTH\n\n\ndef inner():\n    return WIDTH\n",
}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A checkout whose port is the package above, as (folder, import a module of it)."""
    folder = tmp_path / "port" / "toy"
    for name, text in {"../__init__.py": "", **FILES}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in [name for name in sys.modules if name.partition(".")[0] == "port"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    monkeypatch.setattr(code, "PORT", tmp_path / "port")
    code.observing.cache_clear()
    code.as_found.cache_clear()
    yield folder.resolve(), lambda name: importlib.import_module(f"port.toy.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "port"]:
        del sys.modules[name]
    code.as_found.cache_clear()


def names(folder, files):
    return {path.relative_to(folder).as_posix() for path in files}


def watch(function, *arguments, constructors=True):
    executed = Executed()
    with executed.watching():
        function(*arguments)
    return executed.files(constructors=constructors)


def test_files_are_those_whose_functions_ran(toy):
    folder, module = toy
    add, calls = module("adds").add, module("calls")
    assert names(folder, watch(add, 1)) == {"adds.py"}
    assert names(folder, watch(calls.call)) == {"calls.py", "sizes.py"}
    assert not watch(len, "nothing of the port")


def test_importing_is_not_running(toy):
    _, module = toy
    assert not watch(module, "named")
    assert not watch(module, "built")


def test_a_constructor_counts_where_it_is_asked_for(toy):
    folder, module = toy
    built = module("built").Built
    assert names(folder, watch(built)) == {"built.py"}
    assert not watch(built, constructors=False)
    assert names(folder, watch(built().use, constructors=False)) == {"built.py"}


def test_a_call_that_raises_was_run(toy):
    folder, module = toy
    executed, raises = Executed(), module("built").raises
    with pytest.raises(ValueError, match="on purpose"), executed.watching():
        raises()
    assert names(folder, executed.files(constructors=True)) == {"built.py"}


def test_watching_ends_and_gives_back_the_profiler_before_it(toy):
    _, module = toy
    seen = []

    def before(frame, event, argument):
        seen.append(event)

    add, executed, was = module("adds").add, Executed(), sys.getprofile()
    sys.setprofile(before)
    try:
        with executed.watching():
            pass
        assert sys.getprofile() is before
    finally:
        sys.setprofile(was)
    add(1)
    assert not executed.files(constructors=True)


def anew():
    """What the next process would find."""
    code.as_found.cache_clear()
    code.observing.cache_clear()


def test_a_fingerprint_holds_until_the_code_changes(toy):
    folder, _ = toy
    recorded = fingerprint([folder / "adds.py"], "toy")
    assert "port/toy/adds.py" in recorded
    assert "port/toy/calls.py" not in recorded
    assert unchanged(recorded, "toy")
    for name, text, holds in (
        ("adds.py", FILES["adds.py"] + "\n", False),  # a file that ran: any byte
        ("calls.py", FILES["calls.py"].replace("return helper()", "return 2"), True),  # what another function does
        ("calls.py", FILES["calls.py"] + "\n# a comment\n", True),
        ("sizes.py", FILES["sizes.py"].replace("= 3", "= 4"), False),  # a constant
        ("sizes.py", FILES["sizes.py"].replace("def helper()", "def helper(x=1)"), False),  # a default
        ("sizes.py", FILES["sizes.py"].replace("def helper", "@staticmethod\ndef helper"), False),
        ("built.py", FILES["built.py"].replace("self.x = 1", "self.x = 2"), False),  # what a constructor builds
        ("built.py", FILES["built.py"].replace("class Built:", "class Built:\n    y = 1\n"), False),
        ("built.py", FILES["built.py"].replace("return self.x", "return -self.x"), True),
        ("new.py", "NEW = 1\n", False),
    ):
        (folder / name).write_text(text)
        anew()
        assert unchanged(recorded, "toy") is holds, (name, text)
        if name in FILES:
            (folder / name).write_text(FILES[name])
        else:
            (folder / name).unlink()
    anew()
    assert unchanged(recorded, "toy")
    (folder / "calls.py").unlink()
    anew()
    assert not unchanged(recorded, "toy")


def test_another_model_is_none_of_its_business(toy):
    folder, _ = toy
    recorded = fingerprint([folder / "adds.py"], "toy")
    other = folder.parent / "other"
    other.mkdir()
    (other / "model.py").write_text("WIDTH = 1\n")
    anew()
    assert unchanged(recorded, "toy")
    (folder.parent / "shared.py").write_text("WIDTH = 1\n")
    anew()
    assert not unchanged(recorded, "toy")


def test_a_file_saved_while_its_old_code_is_judged_is_not_the_one_that_was(toy):
    folder, _ = toy
    code.as_found()
    (folder / "adds.py").write_text("saved = 'meanwhile'\n")
    recorded = fingerprint([folder / "adds.py"], "toy")
    assert unchanged(recorded, "toy")
    anew()
    assert not unchanged(recorded, "toy")


def test_what_only_cuts_and_taps_import_observes(toy):
    folder, _ = toy
    (folder / "model.py").write_text("from .adds import add\n")
    (folder / "cuts.py").write_text("from .model import add\nfrom . import reads\n")
    (folder / "taps.py").write_text(
        "from port.shared import ours\nfrom . import cuts, watch\nfrom .calls import call\n"
    )
    (folder / "../shared.py").resolve().write_text("ours = 1\n")
    (folder / "watch.py").write_text("import json\n")
    anew()
    own = {f"toy/{name}" for name in ("cuts.py", "taps.py", "watch.py", "reads.py", "calls.py")}
    assert names(folder.parent, code.observing("toy")) == {"shared.py", *own}


def test_a_changed_judge_is_another_judge(tmp_path, monkeypatch):
    before = code.harness_digest()
    for path in code.Path(code.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(code, "__file__", str(tmp_path / "code.py"))
    assert code.harness_digest() == before
    for name in ("gates", "judge", "cases", "sides"):
        text = (tmp_path / f"{name}.py").read_text()
        (tmp_path / f"{name}.py").write_text(f"{text}# changed\n")
        assert code.harness_digest() != before
        (tmp_path / f"{name}.py").write_text(text)
