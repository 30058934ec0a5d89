"""What looking costs: taps and logs of operations against the plain passes, in turn: run with `nox -s bench`.

One round is the port's ordinary run of three text cases: plain; with the taps that `harness run` judges by; with every
operation logged; and with the calls of Python around them logged too, as `harness diff` does for one occurrence.
"""

import json
import time

from bench_overhead import TABLE, _Work

from stages import sides
from stages.cases import plan
from stages.frames import watching
from stages.oplog import recording
from stages.places import checkpoint_path

AIM = 1.5
ROUNDS = 3
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

    def one_round() -> None:
        for name, way in ways.items():
            start = time.perf_counter()
            for work in todo:
                way(work)
            taken[name].append(time.perf_counter() - start)

    one_round()  # weights are read, kernels are built
    for times in taken.values():
        times.clear()
    benchmark.pedantic(one_round, rounds=ROUNDS, iterations=1)
    ratios = {name: min(times) / min(taken["plain"]) for name, times in taken.items()}
    benchmark.extra_info.update({"seconds": taken, "ratios": ratios, "aim": AIM, "cases": CASES})
    with capsys.disabled():
        print("".join(f"{name:>14}" for name in (*ways, "aim of taps")))
        print("".join(f"{ratios[name]:>14.2f}" for name in ways) + f"{AIM:>14}")
        print(json.dumps(benchmark.extra_info))
