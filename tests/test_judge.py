"""Every stage fails on its own bit, forced and free, and a run that left the oracle blames only where it left."""

import importlib
import json

import numpy as np
import pytest

from goldens import canary
from goldens.errors import GoldenError
from goldens.store import Golden, Record
from reports.verdict import Status
from stages.cases import plan
from stages.cli import table_of
from stages.gates import bits
from stages.judge import Judge, said
from stages.places import COMMITTED, checkpoint_path, golden_path

TABLE = table_of("diffusion_gemma")
CASES = {case.name: case for case in TABLE.cases}
CUTS = importlib.import_module("port.diffusion_gemma.cuts")
MOE = importlib.import_module("port.diffusion_gemma.moe")
with Golden.open(golden_path(COMMITTED, TABLE.model, "short", "float32")) as short:
    SHORT = [stage.name for stage in TABLE.stages if stage.name in short.stages()]


@pytest.fixture(scope="module")
def parts():
    """(golden, the port loaded, the plan) of one case. Its gates below are exact on any backend: see `judge`."""
    checkpoint = checkpoint_path("nano")
    config = json.loads((checkpoint / "config.json").read_text())
    path = golden_path(COMMITTED, TABLE.model, "short", "float32")
    return Golden.open(path), CUTS.load(checkpoint, "float32"), plan(CASES["short"], config)


@pytest.fixture(scope="module")
def own(parts):
    """What this machine's port gives at each border: where backends differ, these stand in for the oracle's."""
    golden, model, todo = parts
    given = {}
    run = importlib.import_module("port.diffusion_gemma.taps").run
    run(model, todo, lambda stage, where, ins, outs: given.__setitem__((stage, where), Record(ins, outs, {}, {})))
    if not canary.differing(golden.manifest["canary"], canary.canary()):
        for stage in golden.stages():
            for where in golden.occurrences(stage):
                recorded = golden.read(stage, where).outs
                assert recorded.keys() == given[stage, where].outs.keys()
                assert all(np.array_equal(bits(recorded[n]), bits(x)) for n, x in given[stage, where].outs.items())
    return given


class Stand:
    """A golden of the same borders, holding what this machine computes."""

    def __init__(self, golden, records):
        self.stages, self.occurrences, self.records = golden.stages, golden.occurrences, records

    def read(self, stage, occurrence):
        return self.records[stage, occurrence]


@pytest.fixture
def judge(parts, own):
    golden, model, todo = parts
    return Judge(TABLE, Stand(golden, own), "short/float32", "exact", model, todo)


def flip(tensor, index):
    changed = tensor.copy()
    if tensor.dtype == bool:
        changed[index] = not changed[index]
    else:
        bits(changed)  # raises where this would not be the same memory
        place = np.ravel_multi_index(index, tensor.shape) if index else 0
        changed.reshape(-1).view(f"u{tensor.dtype.itemsize}")[place] ^= 1
    return changed


@pytest.mark.parametrize("name", SHORT)
def test_one_bit_of_any_output_fails_its_stage_at_its_address(judge, monkeypatch, name):
    stage, plain = TABLE[name], getattr(CUTS, name)
    first = judge.golden.occurrences(name)[0]
    for tensor, value in judge.golden.read(name, first).outs.items():
        if not value.size:
            continue
        index = tuple(side // 2 for side in value.shape)

        def wrong(*arguments, tensor=tensor, index=index, **takes):
            gives = plain(*arguments, **takes)
            return gives | {tensor: flip(np.asarray(gives[tensor]), index)}

        monkeypatch.setattr(CUTS, name, wrong)
        verdicts = [row for row in judge.forced(stage) if row.occurrence == first]
        failed = [row for row in verdicts if row.status is not Status.PASS]
        assert [(row.tensor, row.status, row.value) for row in failed] == [(tensor, Status.FAIL, 1.0)]
        (row,) = failed
        axes = stage.out(tensor).axes.split()
        address = ", ".join(f"{axis}={i}" for axis, i in zip(axes, index, strict=True))
        assert row.where.startswith(address)
        (worst,) = row.worst
        assert worst.index == index
        assert int(worst.oracle_bits, 16) ^ int(worst.port_bits, 16) == 1
        assert len(verdicts) == len(judge.golden.read(name, first).outs)
    monkeypatch.setattr(CUTS, name, plain)
    assert {row.status for row in judge.forced(stage)} == {Status.PASS}


def test_a_table_of_named_rows_says_which_row(judge, monkeypatch):
    plain = CUTS.config
    row = 3

    def wrong(*arguments, **takes):
        gives = plain(*arguments, **takes)
        return gives | {"values": flip(gives["values"], (row, 0))}

    name = plain(judge.model, {})["names"][row].tobytes().rstrip(b"\0").decode()
    monkeypatch.setattr(CUTS, "config", wrong)
    (failed,) = [verdict for verdict in judge.forced(TABLE["config"]) if verdict.status is not Status.PASS]
    assert failed.where == f"P={row}, byte=0, {name}"


def every(judge):
    return {stage.name: judge.free(stage) for stage in TABLE.stages}


def test_an_ordinary_run_like_the_golden_passes_everywhere(judge):
    rows = every(judge)
    assert {row.status for found in rows.values() for row in found} == {Status.PASS}
    for stage in judge.golden.stages():
        assert {row.occurrence for row in rows[stage]} == set(judge.golden.occurrences(stage))


def test_a_run_fails_where_it_left_the_oracle_and_in_what_contains_that(judge, monkeypatch):
    plain, calls = MOE.Router.scores, []

    def once(self, h):
        calls.append(h)
        scores = plain(self, h)
        return scores + 1e-3 if len(calls) == 3 else scores  # in the prompt's pass, at the layer that is kept

    monkeypatch.setattr(MOE.Router, "scores", once)
    rows = every(judge)
    failed = {(row.stage, row.occurrence) for found in rows.values() for row in found if row.status is Status.FAIL}
    # The layer and the whole pass were entered as the oracle entered them.
    assert failed == {("router", "encoder/layer=2"), ("layer", "encoder/layer=2"), ("encoder", "encoder")}
    locked = [row for found in rows.values() for row in found if row.status is Status.LOCKED]
    assert {"select_experts", "attention", "decoder", "logits"} <= {row.stage for row in locked}
    assert all("router[encoder/layer=2]" in row.note and not row.worst for row in locked)
    before = [row for row in rows["attention"] if row.occurrence == "encoder/layer=2"]
    assert {row.status for row in before} == {Status.PASS}


def test_what_happened_in_a_layer_that_is_not_kept_is_said_to_come_from_before(judge, monkeypatch):
    plain, calls = MOE.Router.scores, []

    def once(self, h):
        calls.append(h)
        scores = plain(self, h)
        return scores + 1e-3 * scores if len(calls) == 1 else scores

    monkeypatch.setattr(MOE.Router, "scores", once)
    rows = [row for found in every(judge).values() for row in found if row.status is not Status.PASS]
    assert {row.stage for row in rows if row.status is Status.FAIL} == {"encoder"}
    locked = [row for row in rows if row.status is Status.LOCKED]
    assert locked
    assert all("what comes before" in row.note and "not kept in this golden" in row.note for row in locked)


def test_a_border_that_the_run_never_crosses_fails(judge, monkeypatch):
    judge.plan = judge.plan | {"canvases": judge.plan["canvases"][:0]}
    rows = every(judge)
    assert {row.status for row in rows["encoder"]} == {Status.PASS}
    assert {(row.status, row.note) for row in rows["decoder"]} == {
        (Status.FAIL, "the port's ordinary run never comes by here")
    }


def test_a_border_crossed_twice_fails(judge, monkeypatch):
    taps = importlib.import_module("port.diffusion_gemma.taps")
    ordinary = taps.run

    def twice(model, plan, emit):
        ordinary(model, plan, emit)
        ordinary(model, plan, emit)

    monkeypatch.setattr(taps, "run", twice)
    again = [row for row in judge.free(TABLE["mlp"]) if row.status is Status.FAIL]
    assert len(again) == len(judge.golden.occurrences("mlp"))
    assert all("twice" in row.note for row in again)


def test_a_golden_refused_in_the_middle_of_a_run_is_no_verdict_on_the_port(judge, monkeypatch):
    def refused(stage, occurrence):
        raise GoldenError("refused", "golden.h5")

    monkeypatch.setattr(judge.golden, "read", refused)
    with pytest.raises(GoldenError, match="refused"):
        judge.free(TABLE["embed"])


def test_said_names_the_innermost_place():
    def inner():
        raise ValueError("why")

    with pytest.raises(ValueError, match="why") as raised:
        inner()
    assert said(raised.value) == f"ValueError: why (test_judge.py:{inner.__code__.co_firstlineno + 1})"


def test_many_values_at_an_address_are_shown_short(judge, monkeypatch):
    plain = CUTS.logits
    monkeypatch.setattr(CUTS, "logits", lambda *a, **takes: {"logits": -plain(*a, **takes)["logits"]})
    judge.tier = "portable"
    failed = [row for row in judge.forced(TABLE["logits"]) if row.status is Status.FAIL]
    assert failed
    for row in failed:
        assert row.gate == "kl"
        assert len(row.note) < 500
