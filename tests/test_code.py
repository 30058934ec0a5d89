"""Which files a result depends on: those that ran, and those whose constants they read. On a small port of its own."""

import importlib
import sys

import pytest

from stages import code
from stages.code import Executed, fingerprint, unchanged, with_constants

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
    code._value_sources.cache_clear()
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


@pytest.mark.parametrize(
    ("name", "with_it"),
    [
        ("adds.py", {"adds.py", "named.py", "sizes.py"}),  # by name, and what that name was made of
        ("reads.py", {"reads.py", "sizes.py"}),  # by an attribute of the module, under another name
        ("calls.py", {"calls.py"}),  # a function betrays itself when it is called
        ("absolute.py", {"absolute.py", "sizes.py"}),
        ("inner/__init__.py", {"inner/__init__.py", "sizes.py"}),
        ("unread.py", {"unread.py"}),
    ],
)
def test_constants_come_with_the_files_that_read_them(toy, name, with_it):
    folder, _ = toy
    assert names(folder, with_constants([folder / name])) == with_it


def test_constants_are_looked_for_again_when_a_file_changed(toy):
    folder, _ = toy
    assert names(folder, with_constants([folder / "unread.py"])) == {"unread.py"}
    (folder / "unread.py").write_text("from .sizes import WIDTH\n\nOTHER = WIDTH\n")
    assert names(folder, with_constants([folder / "unread.py"])) == {"unread.py", "sizes.py"}


def test_files_that_import_each_other_are_found_once(toy):
    folder, _ = toy
    (folder / "unread.py").write_text("from .again import THIS\n\nTHAT = 1\n")
    (folder / "again.py").write_text("from .unread import THAT\n\nTHIS = 1\n")
    assert names(folder, with_constants([folder / "unread.py"])) == {"unread.py", "again.py"}


def test_a_fingerprint_holds_until_one_byte_changes(toy):
    folder, _ = toy
    recorded = fingerprint([folder / "adds.py", folder / "sizes.py"])
    assert list(recorded) == ["port/toy/adds.py", "port/toy/sizes.py"]
    assert unchanged(recorded)
    (folder / "calls.py").write_text("another file\n")
    assert unchanged(recorded)
    before = (folder / "sizes.py").read_bytes()
    (folder / "sizes.py").write_bytes(before + b"\n")
    assert not unchanged(recorded)
    (folder / "sizes.py").write_bytes(before)
    assert unchanged(recorded)
    (folder / "sizes.py").unlink()
    assert not unchanged(recorded)


def test_a_file_saved_while_its_old_code_is_judged_is_not_the_one_that_was(toy):
    folder, _ = toy
    code.as_found()
    (folder / "adds.py").write_text("saved meanwhile\n")
    (folder / "new.py").write_text("and a new one\n")
    for name in ("adds.py", "new.py"):
        assert not unchanged(fingerprint([folder / name]))
    code.as_found.cache_clear()  # the next process
    for name in ("adds.py", "new.py"):
        assert unchanged(fingerprint([folder / name]))


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
