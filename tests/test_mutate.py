"""Planted bugs: the whole table is caught where it is expected, and what is not caught does not pass unnoticed."""

import json
import os
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from operator import truediv

import pytest
from harness import harness

from stages import mutate, ratchet
from stages.asked import table_of
from stages.errors import HarnessError
from stages.forked import Lost, each
from stages.gates import Within
from stages.places import MODELS
from stages.planted import Mutant, PlantingError, plant

CAUGHT = Mutant(
    "no router scale", "router", "moe.Router.scores", " * self.scale.array", "", "Not weighted.", ("short",)
)
EQUAL = replace(CAUGHT, name="the same", old=" * self.scale.array", new=" * (self.scale.array)")


@pytest.fixture
def only(monkeypatch):
    """A table of just these mutants."""

    def use(*mutants):
        monkeypatch.setattr(mutate, "mutants_of", lambda model: mutants if model == MODELS[0] else ())

    return use


@pytest.fixture
def call(monkeypatch, tmp_path):
    return harness(monkeypatch, tmp_path)


def statuses(said):
    return [one["status"] for one in said.document["mutants"]]


def test_all_are_caught_where_they_belong(tmp_path):
    report = mutate.run({model: mutate.mutants_of(model) for model in MODELS})
    wrong = [one.to_json() for one in report.found if one.status != "CAUGHT"]
    assert not wrong
    assert report.exit_code == 0
    mutate.save(report, tmp_path)
    kept = json.loads((tmp_path / "mutants.json").read_text())
    assert kept == report.document()
    assert len(kept["mutants"]) == len(report.found) > 150


@pytest.mark.parametrize("model", MODELS)
def test_every_stage_has_two(model):
    count = Counter(one.stage for one in mutate.mutants_of(model))
    assert not [stage.name for stage in table_of(model).stages if count[stage.name] < 2]


def test_one_that_is_caught(call, only):
    only(CAUGHT)
    said = call("mutate", "--json")
    assert said.code == 0, said.err
    (one,) = said.document["mutants"]
    assert (one["status"], one["caught_at"], one["tensor"], one["mode"]) == ("CAUGHT", "router", "scores", "forced")
    assert one["value"] > one["bound"] == 0


def test_one_that_survives(call, only):
    only(EQUAL)
    said = call("mutate", "--json")
    assert (said.code, statuses(said)) == (1, ["SURVIVED"])
    assert said.document["mutants"][0]["value"] == 0


def test_one_that_is_caught_elsewhere(call, only):
    only(replace(CAUGHT, stage="moe"))
    said = call("mutate")
    assert said.code == 1
    assert "ELSEWHERE" in said.out


def test_one_that_does_not_fit(call, only):
    only(replace(CAUGHT, old="self"), CAUGHT)
    said = call("mutate", "--json")
    assert (said.code, statuses(said)) == (4, ["ERROR", "CAUGHT"])
    assert "stands 5 times" in said.document["mutants"][0]["note"]


def test_one_that_hangs(call, only):
    only(replace(CAUGHT, new=" * self.scale.array * [None for _ in iter(int, 1)]"), CAUGHT)
    said = call("mutate", "--json", "--seconds", "10")
    assert (said.code, statuses(said)) == (4, ["ERROR", "CAUGHT"])
    assert "no result after 10 s" in said.document["mutants"][0]["note"]


def test_one_that_ends_its_process(call, only):
    only(replace(CAUGHT, new=" * __import__('os')._exit(7)"))
    said = call("mutate", "--json")
    assert (said.code, statuses(said)) == (4, ["ERROR"])
    assert "code 7" in said.document["mutants"][0]["note"]


def test_a_port_that_is_objected_to_refuses_the_run(call, only, monkeypatch):
    only(CAUGHT)

    def broken(work, *rest):
        jobs = [
            partial(job.func, job.args[0], CAUGHT, *job.args[2:]) if isinstance(job, partial) else job for job in work
        ]
        return each(jobs, *rest)

    monkeypatch.setattr(mutate, "each", broken)
    said = call("mutate")
    assert said.code == 4
    assert "objects to the port as it is" in said.error


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"where": "moe.Router.score"}, "defines no|there is no"),
        ({"where": "nowhere.Router.scores"}, "there is no"),
        ({"old": "self"}, "stands 5 times"),
        ({"old": "nothing of it"}, "stands 0 times"),
        ({"new": " * ("}, "no Python"),
        ({"where": "model.DiffusionGemma.absent"}, "there is no"),
    ],
)
def test_unfit(change, said):
    with pytest.raises(PlantingError, match=said):
        plant("diffusion_gemma", replace(CAUGHT, **change))


@pytest.mark.parametrize(
    ("mutants", "said"),
    [
        ((CAUGHT, CAUGHT), "two mutants"),
        ((replace(CAUGHT, stage="nowhere"),), "expects the stage"),
        ((replace(CAUGHT, stage="rope", cases=("nothing",)),), "asks the case"),
    ],
)
def test_tables_are_checked(monkeypatch, mutants, said):
    import stages.mutants.metadiffusion as table  # noqa: PLC0415

    monkeypatch.setattr(table, "mutants", mutants)
    with pytest.raises(HarnessError, match=said):
        mutate.mutants_of("metadiffusion")


def test_nobody_is_asked(call, only):
    only(CAUGHT)
    assert call("mutate", "-k", "nothing of that name").code == 2
    assert call("mutate", "--record").code == 2


def test_work_in_processes():
    jobs = [partial(int, "1"), partial(truediv, 1, 0), partial(os._exit, 3), partial(time.sleep, 60), os.getpid]
    found = dict(each(jobs, 8.0))
    assert found[0] == 1
    assert found[1] == Lost("ZeroDivisionError: division by zero")
    assert "died with code 3" in found[2].why
    assert "no result after 8 s" in found[3].why
    assert found[4] != os.getpid()


def test_work_is_asked_for_when_there_is_room():
    done = []

    def work():
        for number in range(4):
            yield partial(len, "x" * len(done))
            assert len(done) >= number - 1  # of two at a time, one has ended before the third begins

    for _, result in each(work(), 8.0, workers=2):
        done.append(result)
    assert sorted(done)[:2] == [0, 0]
    assert len(done) == 4
    assert max(done) >= 1


def test_what_takes_longest_begins_first():
    short, long, both = (replace(CAUGHT, cases=cases) for cases in (("a",), ("b",), ("a", "b")))
    taken = {}
    tasks = mutate._in_order([("m", short), ("m", long), ("m", both)], taken)
    assert [next(tasks).goldens for _ in "ab"] == [(("a", "float32"),), (("b", "float32"),)]
    taken["m", ("a", "float32")] = 5.0
    assert next(tasks).mutant == long  # not known yet, so it is still at it
    taken["m", ("b", "float32")] = 1.0
    assert [task.mutant for task in tasks] == [both, short]


def test_bounds_are_the_recorded_ones():
    assert not ratchet.loosened()
    assert not ratchet.unreasoned()


def test_a_loosened_bound_is_seen(monkeypatch):
    stage = table_of("diffusion_gemma")["moe"]
    monkeypatch.setitem(stage.gives, "h", replace(stage.gives["h"], portable=Within(400, because="")))
    assert [line for line in ratchet.loosened() if line.startswith("diffusion_gemma/moe/h ")]
    assert ratchet.unreasoned() == ["diffusion_gemma/moe/h"]


def test_a_bound_that_lets_a_bug_through_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(ratchet, "RECORD", tmp_path / "portable.json")
    caught = mutate.Found("diffusion_gemma", CAUGHT, "SURVIVED")
    held = {"bounds": ratchet.bounds(), "mutants": {"diffusion_gemma/no router scale": {"at": "router"}}}
    ratchet.RECORD.write_text(json.dumps(held))
    with pytest.raises(HarnessError, match="let a bug through"):
        ratchet.record(mutate.Report("portable", [caught]))
    assert json.loads(ratchet.RECORD.read_text()) == held


@pytest.mark.parametrize(
    ("status", "unseen", "said"),
    [
        ("SURVIVED", "", "LOST: diffusion_gemma/no router scale is caught at no stage, and its row does not say why"),
        ("SURVIVED", "Rounding.", ""),
        ("CAUGHT", "Rounding.", "SEEN: diffusion_gemma/no router scale is caught at router: its row is not to call it"),
        ("CAUGHT", "", ""),
    ],
)
def test_what_no_bound_sees_says_why_and_only_that(tmp_path, monkeypatch, status, unseen, said):
    monkeypatch.setattr(ratchet, "RECORD", tmp_path / "none.json")
    row = mutate.Verdict("diffusion_gemma", "router", "", "forced", "", "", mutate.Status.FAIL, "", 1.0, 0.0, "", "")
    one = mutate.Found("diffusion_gemma", replace(CAUGHT, unseen=unseen), status, row)
    found = ratchet.lost(mutate.Report("portable", [one]))
    assert "".join(found).startswith(said)
    assert bool(found) == bool(said)


def test_a_mutant_is_found_by_the_number_of_its_bug(call, only):
    only(replace(CAUGHT, bugs=("M41",)), replace(CAUGHT, name="another"))
    assert len(call("mutate", "-k", "M41", "--json").document["mutants"]) == 1


def test_the_record_names_every_mutant():
    names = {f"{model}/{one.name}" for model in MODELS for one in mutate.mutants_of(model)}
    assert ratchet.committed()["mutants"].keys() == names
