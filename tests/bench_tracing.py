"""What looking costs: taps and logs of operations against the plain passes, in turn: run with `nox -s bench`.

One round is the port's ordinary run of three text cases: plain; with the taps that `harness run` judges by; with every
operation logged; and with the calls of Python around them logged too, as `harness diff` does for one occurrence.
"""

import json
import time

from bench_overhead import TABLE, _Work

from stages import sides
from stages.cases import plan
from stages.places import checkpoint_path
from stages.trace.frames import watching
from stages.trace.oplog import recording

AIM = 1.5
ROUNDS = 3
QUICK = 4
CASES = ("short", "long", "padded")


class _Port(_Work):
    """The port's side of one case."""

    def __init__(self, name: str) -> None:
        case = next(case for case in TABLE.cases if case.name == name)
        checkpoint = checkpoint_path(case.checkpoint)
        self.port_model = sides.cuts("port", TABLE.model).load(checkpoint, "float32")
        self.plan = plan(case, json.loads((checkpoint / "config.json").read_text()))

    def plain(self) -> None:
        self._port_run()

    def tapped(self) -> None:
        sides.taps("port", TABLE.model).run(self.port_model, self.plan, lambda *_: None)

    def logged(self) -> None:
        with recording():
            self._port_run()

    def called(self) -> None:
        with watching("port/") as watch, recording(watch):
            self._port_run()


def test_what_looking_costs(benchmark, capsys) -> None:
    todo = [_Port(name) for name in CASES]
    ways = {"plain": _Port.plain, "taps": _Port.tapped, "operations": _Port.logged, "and calls": _Port.called}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    computed: dict[str, list[float]] = {name: [] for name in ways}

    def one_round() -> None:
        # Of two times that are near each other, more are needed to tell them apart.
        for name in (*("plain", "taps") * QUICK, "operations", "and calls"):
            start, busy = time.perf_counter(), time.process_time()
            for work in todo:
                ways[name](work)
            taken[name].append(time.perf_counter() - start)
            computed[name].append(time.process_time() - busy)

    one_round()  # weights are read, kernels are built
    for times in (*taken.values(), *computed.values()):
        times.clear()
    benchmark.pedantic(one_round, rounds=ROUNDS, iterations=1)
    ratios = {name: min(times) / min(taken["plain"]) for name, times in taken.items()}
    busy = {name: min(times) / min(computed["plain"]) for name, times in computed.items()}
    facts = {"seconds": taken, "ratios": ratios, "CPU ratios": busy, "aim": AIM, "cases": CASES}
    benchmark.extra_info.update(facts)
    with capsys.disabled():
        print("".join(f"{name:>14}" for name in ("", *ways, "aim of taps")))
        for title, row in (("wall time", ratios), ("CPU time", busy)):
            print(f"{title:>14}" + "".join(f"{row[name]:>14.2f}" for name in ways) + f"{AIM:>14}")
        print(json.dumps(benchmark.extra_info))
