"""Names are looked at only where a line may change one: nothing is missed by it. And what logging switches off."""

import gc
import sys
import textwrap

import mlx.core as mx
import pytest

from stages.places import ROOT
from stages.trace import frames
from stages.trace.frames import watching
from stages.trace.oplog import recording

SOURCE = textwrap.dedent("""\
    import contextlib

    @contextlib.contextmanager
    def opened():
        held = [1]
        yield held
        held = None

    def counted():
        count = 0
        def more():
            nonlocal count
            count += 1
            return count
        return more() + more() + count

    def given(n):
        for i in range(n):
            got = yield i
            got = (got, i)
        return got

    def several(x,
                y=2):
        first = max(
            x,
            y,
        )
        a, *rest = [first, x, y]
        if (last := rest[-1]) > 1: pass; b = last; c = b
        try:
            c = a / (x - x)
        except ZeroDivisionError as error:
            why = str(error)
        with opened() as held, contextlib.suppress(
            ValueError
        ):
            held.append(c)
            raise ValueError
        del a
        while (
            x > 0
        ):
            x -= 1
        else:
            import json as j
        match rest:
            case [one, two]:
                total = one + two
        def inner(): return 3
        assert inner() == 3
        lines = [
            (p, q)
            for p in range(2)
            for q in (x, y)
        ]
        return (
            total
            + len(lines)
        )

    class Made:
        kind = 1
        other = kind + 1

    def run(x):
        walk = given(2)
        first = next(walk)
        try:
            walk.send(5); walk.send(6)
        except StopIteration as end:
            last = end.value
        made = Made()
        made.a = made.b = several(x)
        return made.a + counted() + last[1] + first
    """)
CLOSURE = textwrap.dedent("""\
    def outer():
        x = 1
        def inner():
            return x
        return inner
    def plain(x):
        y = x
    """)


def logged() -> list[tuple[object, ...]]:
    """Everything that a log of calls holds of a run of the source above, as if it stood in the port."""
    space: dict = {"__name__": "made_up"}
    with watching("port/") as watch:
        exec(compile(SOURCE, f"{ROOT}/port/made_up.py", "exec"), space)
        assert space["run"](4) == 16
    found: list[tuple[object, ...]] = []
    for one in watch.frames:
        writes = [(write.number, write.line, write.name, type(write.value).__name__) for write in one.writes]
        found.append((one.code.co_name, one.asked, one.began, writes, [(n, line) for n, line, _ in one.returns]))
    stores = [[(write.number, write.line) for _, write in known] for known in watch.stores.values()]
    return [*found, tuple(map(tuple, stores)), (watch.number,)]


def test_nothing_is_missed_by_looking_only_where_a_name_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = logged()
    assert len([one for one in quick if len(one) == 5]) > 10
    monkeypatch.setattr(frames, "changes", lambda _code: None)
    assert logged() == quick


def test_where_another_function_may_change_a_name_every_line_may() -> None:
    space: dict = {}
    exec(CLOSURE, space)
    assert frames.changes(space["outer"].__code__) is None
    assert frames.changes(space["outer"]().__code__) is None
    assert frames.changes(space["plain"].__code__) == {7}
    assert frames.changes(compile("x = 1", "made up", "exec")) is None


def test_a_log_leaves_the_collector_and_the_tracer_as_they_were() -> None:
    def fails() -> None:
        mx.add(mx.ones(2), mx.ones(3))

    before = sys.gettrace()
    with watching("port/") as watch:
        mine = sys.gettrace()
        with pytest.raises(ValueError, match="broadcast"), recording(watch):
            fails()
        assert sys.gettrace() == mine
    assert sys.gettrace() == before
    assert gc.isenabled()
    gc.disable()
    try:
        with recording():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
