"""The second killer of a source mutation: the project's own tests that run its lines, in a copy of the checkout.

Which those are is measured: every test file that imports the port, or starts it, is run once under coverage. Lines run
by a fixture, by another process or at import belong to no test by name, so there the whole file is asked.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from source_edits import ROOT, Edit
from source_parity import Lines, reaches

ABOUT_THE_PORT = re.compile(r'^(from|import) port\b|"-m", "port"|sides\.\w+\("port"', re.MULTILINE)
OF_THE_HARNESS = {"test_diff.py", "test_diff_search.py"}  # they plant bugs in the port to see the harness find them
LIMIT = 1800.0  # seconds that the unmutated tests of a file may take under coverage
SLOWER = 3.0  # how many times as long as that the same tests may take with a mutation, besides START, before they hang
START = 60.0
# Hypothesis' own profile for machines that are busy: the same examples each time, and no failure for being slow.
QUIET = ("-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-profile=ci")
SETTINGS = """
[run]
source = port
parallel = true
patch = subprocess
dynamic_context = test_function
concurrency = thread
data_file = {data}
"""


@dataclass(frozen=True)
class Reach:
    """What the tests of one file ran of the port.

    Attributes:
        tests: Test by test.
        rest: Its fixtures and the processes that it started.
    """

    file: str
    seconds: float
    tests: dict[str, Lines]
    rest: Lines


class Copy:
    """A copy of the checkout as it is, untracked files included, to be mutated."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def run(self, limit: float, *words: str) -> subprocess.CompletedProcess[str]:
        """Python on this copy; nothing compiled is kept, so that no mutation outlives its text.

        Raises:
            subprocess.TimeoutExpired: it takes longer than `limit` seconds.
        """
        env = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        command = (sys.executable, *words)
        with subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                out, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)  # with the processes that a test started
                raise
        return subprocess.CompletedProcess(command, process.returncode, out)

    def failing(self, edit: Edit, tests: list[str], limit: float = LIMIT) -> str:
        """The first of these tests that fails with the mutation, or "time"; nothing if all pass.

        Raises:
            RuntimeError: pytest itself fails.
        """
        path = self.folder / edit.file
        text = path.read_text(encoding="utf-8")
        path.write_text(edit.mutated(text), encoding="utf-8")
        try:
            done = self.run(limit, "-m", "pytest", *QUIET, "-x", "-rfE", *tests)
        except subprocess.TimeoutExpired:
            return f"time: no result after {limit:.0f} s"
        finally:
            path.write_text(text, encoding="utf-8")
        if not done.returncode:
            return ""
        if done.returncode == 3 and "SystemExit" in done.stdout:  # pytest does not count that as a failing test
            return "tests: Python is left as a test file is imported"
        told = re.search(r"^(?:FAILED|ERROR) tests/(.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        if told is None:
            raise RuntimeError(f"pytest left with {done.returncode}, and no test failed:\n{done.stdout}")
        return f"tests: {told[1]}"


def reached(progress: Callable[[str], None]) -> list[Reach]:
    """What each test file runs of the port, the quickest first.

    Raises:
        RuntimeError: one fails on the port as it is: no kill would mean anything.
    """
    files = [
        path.name
        for path in sorted((ROOT / "tests").glob("test_*.py"))
        if path.name not in OF_THE_HARNESS and ABOUT_THE_PORT.search(path.read_text(encoding="utf-8"))
    ]
    found = []
    with tempfile.TemporaryDirectory() as scratch, _Copies(scratch) as (pool, copies):
        jobs = [pool.submit(_reach, copies, file) for file in files]
        for job in as_completed(jobs):
            found.append(job.result())
            progress(f"{len(found)} of {len(files)} test files: {found[-1].file}, {found[-1].seconds:.0f} s")
    return sorted(found, key=lambda one: one.seconds)


def kill(edits: Iterable[Edit], reach: list[Reach], progress: Callable[[str], None]) -> Iterator[tuple[Edit, str]]:
    """(mutation, by what it was killed, or nothing), as each is known."""
    todo = [(edit, chosen) for edit in edits if (chosen := _chosen(edit, reach))]
    with tempfile.TemporaryDirectory() as scratch, _Copies(scratch) as (pool, copies):
        jobs = {pool.submit(_kill, copies, *one): one[0] for one in todo}
        for done, job in enumerate(as_completed(jobs), 1):
            progress(f"{done} of {len(todo)} by tests: {jobs[job].place} {job.result() or 'survived'}")
            yield jobs[job], job.result()


class _Copies:
    """A pool of threads, and a copy of the checkout for each."""

    def __init__(self, scratch: str) -> None:
        self.scratch, self.count = Path(scratch), os.cpu_count() or 1

    def __enter__(self) -> tuple[ThreadPoolExecutor, "SimpleQueue[Copy]"]:
        free: SimpleQueue[Copy] = SimpleQueue()
        for i in range(self.count):
            free.put(Copy(self.scratch / str(i)))
        self.pool = ThreadPoolExecutor(self.count)
        return self.pool, free

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)


def _reach(copies: "SimpleQueue[Copy]", file: str) -> Reach:
    copy = copies.get()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            settings = Path(scratch) / "settings"
            settings.write_text(SETTINGS.format(data=f"{scratch}/data"))
            start = time.perf_counter()
            done = copy.run(
                LIMIT, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *QUIET, f"tests/{file}"
            )
            if done.returncode:
                raise RuntimeError(f"{file} fails on the port as it is:\n{done.stdout}")
            contexts = _contexts(Path(scratch), copy.folder)
        rest = contexts.pop("", {})
        tests: dict[str, Lines] = {}
        for name, lines in contexts.items():
            if name.startswith(f"{file.removesuffix('.py')}."):
                tests[_node(name)] = lines
            else:  # other packages' functions whose names begin with `test`
                rest = {one: rest.get(one, set()) | lines.get(one, set()) for one in rest.keys() | lines.keys()}
        return Reach(f"tests/{file}", time.perf_counter() - start, tests, rest)
    finally:
        copies.put(copy)


def _node(context: str) -> str:
    """`test_x.test_y`, as coverage calls a test, in pytest's words."""
    module, _, name = context.partition(".")
    return f"tests/{module}.py::{name.replace('.', '::')}"


def _contexts(folder: Path, root: Path) -> dict[str, Lines]:
    from coverage import CoverageData  # noqa: PLC0415 -- only who looks for killers needs it

    found: dict[str, Lines] = defaultdict(lambda: defaultdict(set))
    for path in folder.glob("data.*"):
        data = CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            relative = str(Path(file).relative_to(root))
            for line, names in data.contexts_by_lineno(file).items():
                for name in names:
                    found[name][relative].add(line)
    return found


def _chosen(edit: Edit, reach: list[Reach]) -> list[tuple[list[str], float]]:
    """First the tests by name, then the whole files; with the seconds that each set may take."""
    named, whole, limits = [], [], [START, START]
    for one in reach:
        if some := [test for test, lines in one.tests.items() if reaches(edit, lines)]:
            named += some
            limits[0] += SLOWER * one.seconds
        if reaches(edit, one.rest):
            whole.append(one.file)
            limits[1] += SLOWER * one.seconds
    return [(tests, limit) for tests, limit in zip((named, whole), limits, strict=True) if tests]


def _kill(copies: "SimpleQueue[Copy]", edit: Edit, chosen: list[tuple[list[str], float]]) -> str:
    copy = copies.get()
    try:
        return next(filter(None, (copy.failing(edit, *some) for some in chosen)), "")
    finally:
        copies.put(copy)
