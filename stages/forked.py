"""Work in processes of their own, each with a time limit.

They are forked from a server that has imported everything and computed nothing: MLX's threads do not survive a fork.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from .planted import PlantingError


@dataclass(frozen=True)
class Lost:
    """A process that gave no result.

    Attributes:
        why: It ran too long, died, or raised.
        unfit: Whether it was the mutant that did not fit.
    """

    why: str
    unfit: bool = False


@dataclass
class _Running:
    index: int
    process: ForkServerProcess
    pipe: Connection
    until: float


def each(
    work: Iterable[Callable[[], Any]], seconds: float, imports: Sequence[str] = (), workers: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Do everything, a few at a time, and give (its number, its result or `Lost`) as each ends.

    Args:
        work: Functions without arguments; they and what they return are pickled. The next is asked for when there is
            room for it, so that what it is may depend on what was given before.
        seconds: How long each may take.
        imports: Modules that the server imports for all; those of the first call hold for the process' life.
        workers: How many at a time; one a CPU if not given.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(imports))
    waiting = enumerate(work)
    running: list[_Running] = []
    try:
        while True:
            room = (workers or os.cpu_count() or 1) - len(running)
            running += [_start(context, *one, seconds) for one in islice(waiting, room)]
            if not running:
                return
            patience = max(0.0, min(one.until for one in running) - time.monotonic())
            ready = wait([one.pipe for one in running], timeout=patience)
            for one in [one for one in running if one.pipe in ready or time.monotonic() >= one.until]:
                running.remove(one)
                yield one.index, _result(one, seconds)
    finally:
        for one in running:
            one.process.kill()


def _start(context: ForkServerContext, index: int, job: Callable[[], Any], seconds: float) -> _Running:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(job, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Running(index, process, ours, time.monotonic() + seconds)


def _result(one: _Running, seconds: float) -> Any:
    try:
        found = one.pipe.recv() if one.pipe.poll() else Lost(f"no result after {seconds:g} s: it was ended")
    except EOFError:
        one.process.join()
        found = Lost(f"the process died with code {one.process.exitcode}")
    one.process.kill()
    one.process.join()
    one.pipe.close()
    return found


def _child(job: Callable[[], Any], pipe: Connection) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # whatever the port prints is no part of the answer
    os.dup2(quiet, 2)
    try:
        pipe.send(job())
    except PlantingError as error:
        pipe.send(Lost(str(error), unfit=True))
    except Exception as error:  # noqa: BLE001 -- said by the parent, in its own words
        pipe.send(Lost(f"{type(error).__name__}: {error}"))
    pipe.close()
