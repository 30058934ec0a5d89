"""Record goldens from the oracle: one ordinary run, every cut replayed on it, and the oracle's own rounding."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from goldens import manifest, store

from . import sides
from .cases import plan
from .errors import HarnessError, UsageError
from .gates import FLOATS, Tensor, bits, wide
from .places import checkpoint_path, golden_path
from .spec import Case, Table

Trace = dict[str, Any]
Border = tuple[str, str]
Progress = Callable[[str], None]


class ReplayError(HarnessError):
    """A cut does not reproduce the tap it was cut from: the cut is wrong, and nothing is written."""


@dataclass(frozen=True)
class Tap:
    """One crossing of a border in the oracle's ordinary run."""

    stage: str
    occurrence: str
    ins: Trace
    outs: Trace


class Recorder:
    """Records the cases of one table; a model, once loaded, serves every case that asks for it again."""

    def __init__(self, table: Table, progress: Progress = lambda _message: None) -> None:
        self.table, self.progress = table, progress
        self.oracle = sides.package("oracle", table.model)
        self.cuts, self.taps = sides.cuts("oracle", table.model), sides.taps("oracle", table.model)
        self._models: dict[tuple[Path, str, str], Any] = {}

    @cached_property
    def provenance(self) -> dict[str, str]:
        """The oracle's name, version and files: looked through once, as they cannot change under this process."""
        return manifest.oracle(self.oracle.PACKAGE)

    def model(self, checkpoint: Path, compute: str, kind: str = "") -> Any:
        """The oracle as it computes, or (kind "float64" or "float32") its wide twin."""
        key = (checkpoint, compute, kind)
        if key not in self._models:
            load = self.cuts.load_wide if kind else self.cuts.load
            self._models[key] = load(checkpoint, compute, *([kind] if kind else []))
        return self._models[key]

    def record(self, case: Case, compute: str, folder: Path, *, full: bool, rounding: bool = True) -> Path:
        """Record one case in one compute dtype; returns the golden's path.

        Without `rounding` no wide replay is made: such a golden is for the exact tier alone.

        The oracle runs through its public door with taps at the borders; each cut is then replayed on its tapped
        inputs and must give its tapped outputs bit for bit; a wide replay gives its rounding, forced and free.

        Raises:
            ReplayError: a cut and its tap disagree.
        """
        checkpoint = checkpoint_path(case.checkpoint)
        todo = plan(case, json.loads((checkpoint / "config.json").read_text()))
        name = f"{case.name}/{compute}"

        self.progress(f"{name}: the oracle's ordinary run")
        model = self.model(checkpoint, compute)
        run: list[Tap] = []
        self.taps.run(model, todo, lambda *crossing: run.append(Tap(*crossing)))
        kept = [tap for tap in run if full or _keeps(case, tap)]
        _check_covered(self.table, run)

        self.progress(f"{name}: replaying {len(kept)} cuts")
        for tap in kept:
            _replay(self.table, self.cuts, model, tap)

        self.progress(f"{name}: wide replay")
        yardsticks = _Wide(self, checkpoint, compute, todo) if rounding else None
        facts = manifest.collect(
            model=self.table.model,
            case=case.facts(),
            compute=compute,
            seed=case.seed,
            checkpoint=checkpoint,
            oracle=self.provenance,
            framework=self.oracle.FRAMEWORK,
            recorder=[Path(__file__).parent, Path(str(self.cuts.__file__)).parent],
            kept="all" if full else f"layers {list(case.keep) or 'all'} without {list(case.leave)}",
        )
        path = golden_path(folder, self.table.model, case.name, compute)
        with store.writing(path, facts) as golden:
            for tap in kept:
                deltas, noise = yardsticks.of(tap) if yardsticks else ({}, {})
                golden.put(tap.stage, tap.occurrence, ins=tap.ins, outs=tap.outs, wide=deltas, noise=noise)
        return path


def _keeps(case: Case, tap: Tap) -> bool:
    at = sides.parse(tap.occurrence)
    layer_kept = not case.keep or "direct" in at or at.get("layer", case.keep[0]) in case.keep
    step_kept = not case.steps or at.get("step", case.steps[0]) in case.steps
    return layer_kept and step_kept and tap.stage not in case.leave


def _check_covered(table: Table, run: list[Tap]) -> None:
    """Every border reported is one of the table's, tensor for tensor."""
    for tap in run:
        ins, outs = ({n: (str(x.dtype), x.shape) for n, x in side.items()} for side in (tap.ins, tap.outs))
        if wrong := table[tap.stage].unlike(ins, outs):
            raise HarnessError(f"{tap.stage}[{tap.occurrence}] {wrong}; mend oracle/{table.model}/taps.py or the table")


def _replay(table: Table, cuts: Any, model: Any, tap: Tap) -> None:
    again = sides.call(cuts, model, table[tap.stage], tap.occurrence, tap.ins)
    where = f"{tap.stage}[{tap.occurrence}]"
    if again.keys() != tap.outs.keys():
        raise ReplayError(f"the oracle's cut of {where} gives {sorted(again)}, its run gave {sorted(tap.outs)}")
    for name, tensor in tap.outs.items():
        same = again[name].dtype == tensor.dtype and again[name].shape == tensor.shape
        if not same or not np.array_equal(bits(again[name]), bits(tensor)):
            raise ReplayError(
                f"the oracle's cut of {where} does not reproduce {name!r} of its own run bit for bit: "
                f"mend oracle/{table.model}/cuts.py or taps.py; nothing was written"
            )


class _Wide:
    """The oracle's own rounding: each kept cut once more, wide, and one free wide run.

    float64 where the backend computes it (MLX's CPU does, Metal does not), else float32.
    """

    def __init__(self, recorder: Recorder, checkpoint: Path, compute: str, todo: dict[str, Any]) -> None:
        self._table, self._cuts = recorder.table, recorder.cuts
        for kind in ("float64", "float32"):
            self._free: dict[Border, Trace] = {}
            try:
                self._model = recorder.model(checkpoint, compute, kind)
                recorder.taps.run(self._model, todo, self._remember)
            except (ValueError, RuntimeError) as refused:
                last = refused
            else:
                self.kind = kind
                return
        raise HarnessError(f"no wide run of the oracle is possible here: {last}")

    def _remember(self, stage: str, occurrence: str, _ins: Trace, outs: Trace) -> None:
        self._free[stage, occurrence] = outs

    def of(self, tap: Tap) -> tuple[Trace, dict[str, dict[str, Any]]]:
        """(wide minus oracle, {"forced", "free", "kind"} of rms) for each float output of a tap."""
        floats = {name: tensor for name, tensor in tap.outs.items() if tensor.dtype in FLOATS and tensor.size}
        if not floats:
            return {}, {}
        outs = self._replayed(tap)
        free = self._free.get((tap.stage, tap.occurrence), {})
        deltas: Trace = {}
        noise: dict[str, dict[str, Any]] = {}
        for name, tensor in floats.items():
            if outs[name].shape != tensor.shape:
                continue  # a trajectory that decides for itself may take another number of steps when wide
            delta = wide(outs[name]) - wide(tensor)
            out = self._table[tap.stage].out(name)
            # Where the oracle did not round at all, its noise of 0 says so in no space.
            if out is not None and out.portable.name == "within" and delta.any():
                deltas[name] = _four_bits(delta)
            travelled = None
            if name in free and free[name].shape == tensor.shape:  # another trajectory has others
                travelled = _rms(wide(free[name]) - wide(tensor))
            noise[name] = {"forced": _rms(delta), "free": travelled, "kind": self.kind}
        return deltas, noise

    def _replayed(self, tap: Tap) -> Trace:
        ins = {name: x.astype(self.kind) if x.dtype in FLOATS else x for name, x in tap.ins.items()}
        return sides.call(self._cuts, self._model, self._table[tap.stage], tap.occurrence, ins)


def _four_bits(delta: Tensor) -> Tensor:
    """Rounded to four significant bits: a yardstick is read to no more, and packs to half the size."""
    mantissa, exponent = np.frexp(delta)
    rounded: Tensor = np.ldexp(np.round(mantissa * 16) / 16, exponent)
    return rounded


def _rms(gap: Tensor) -> float:
    return float(np.sqrt(np.mean(gap**2)))


def wanted(table: Table, names: tuple[str, ...], computes: tuple[str, ...]) -> Iterator[tuple[Case, str]]:
    """The (case, compute) pairs of a table that a command asked for; all where it named none.

    Raises:
        UsageError: it asked for cases in dtypes that they are not recorded in, so that nothing would be done.
    """
    named = [case for case in table.cases if not names or case.name in names]
    pairs = [(case, compute) for case in named for compute in case.computes if not computes or compute in computes]
    if not pairs:
        raise UsageError(f"{', '.join(names)} of {table.model} is not recorded in {', '.join(computes)}")
    yield from pairs
