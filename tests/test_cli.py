"""What a command answers: exit codes, the shape of its JSON, and an error in one line that says what to do."""

import importlib
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import harness

from goldens import canary
from goldens.store import Golden
from reports.verdict import Status
from stages import cli
from stages import run as running
from stages.cli import table_of
from stages.places import COMMITTED

TABLE = table_of("diffusion_gemma")
ONE = ("--case", "short", "--compute", "float32")
FIELDS = ["model", "stage", "occurrence", "mode", "case", "tensor", "status", "gate", "value", "bound", "where", "note"]
CUTS = importlib.import_module("port.diffusion_gemma.cuts")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def call(monkeypatch, cache):
    return harness(monkeypatch, cache)


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """For a port changed within this process, which no ledger could notice: an empty one."""
    return harness(monkeypatch, tmp_path)


def stages(document, status):
    return {row["stage"] for row in document["verdicts"] if row["status"] == status}


# Exit codes


def test_all_pass_is_0(call):
    said = call("run", "embed", *ONE)
    assert said.code == 0, said.out
    assert said.err == ""
    assert re.search(r"^embed +PASS", said.out, re.MULTILINE)


def test_a_failure_is_1_with_address_and_values(fresh, monkeypatch):
    def off(model, at, **takes):
        gives = plain(model, at, **takes)
        gives["h"][0, 1, 2] += 64
        return gives

    plain = CUTS.embed
    monkeypatch.setattr(CUTS, "embed", off)
    said = fresh("run", "embed", *ONE, "--json")
    assert said.code == 1
    failed = [row for row in said.document["verdicts"] if row["status"] == "FAIL"]
    assert {row["mode"] for row in failed} == {"forced"}
    assert {row["where"] for row in failed} == {"B=0, T=1, D=2"}
    assert all(re.fullmatch(r"oracle \S+, port \S+", row["note"]) for row in failed)


@pytest.mark.parametrize(
    ("gives", "note"),
    [
        (lambda _: {}, "the port gives no such tensor"),
        (lambda gives: gives | {"extra": gives["h"]}, "the golden does not hold it"),
        (lambda gives: {"h": gives["h"][:, :-1]}, "shape is"),
        (lambda gives: {"h": gives["h"].astype(np.float64)}, "dtype is float64, should be float32"),
        (lambda gives: {"h": np.full_like(gives["h"], np.nan)}, "port is nan here"),
        (lambda _: {"h": np.array(["a"])}, "dtype is <U1, should be float32"),
        (lambda _: {"h": None}, "dtype is object, should be float32"),
    ],
    ids=["missing", "extra", "shape", "dtype", "nan", "text", "none"],
)
def test_nothing_passes_that_cannot_be_compared(fresh, monkeypatch, gives, note):
    plain = CUTS.embed
    monkeypatch.setattr(CUTS, "embed", lambda *arguments, **takes: gives(plain(*arguments, **takes)))
    said = fresh("run", "embed", *ONE, "--json")
    assert said.code == 1
    failed = [row for row in said.document["verdicts"] if row["status"] == "FAIL"]
    assert len({row["occurrence"] for row in failed}) == 5
    assert all(note in row["note"] and row["value"] is None for row in failed)


def test_a_raising_port_is_4_and_does_not_hide_what_passes(fresh, monkeypatch):
    def raises(model, at, **takes):
        raise KeyError("why")

    monkeypatch.setattr(CUTS, "mlp", raises)
    said = fresh("run", "embed", "mlp", *ONE, "--json")
    assert said.code == 4
    assert stages(said.document, "ERROR") == {"mlp"}
    assert "embed" in stages(said.document, "PASS")
    (note,) = {row["note"] for row in said.document["verdicts"] if row["status"] == "ERROR"}
    assert re.fullmatch(r"KeyError: 'why' \(test_cli\.py:\d+\)", note)


def test_a_cut_that_returns_nothing_is_an_error_of_that_stage(fresh, monkeypatch):
    monkeypatch.setattr(CUTS, "mlp", lambda *_, **__: None)
    said = fresh("run", "mlp", *ONE, "--json")
    assert said.code == 4
    assert stages(said.document, "ERROR") == {"mlp"}


def test_a_port_that_leaves_is_an_error_not_a_success(fresh, monkeypatch):
    monkeypatch.setattr(CUTS, "mlp", lambda *_, **__: sys.exit(0))
    said = fresh("run", "mlp", *ONE, "--json")
    assert said.code == 4
    (note,) = {row["note"] for row in said.document["verdicts"] if row["status"] == "ERROR"}
    assert note.startswith("SystemExit: 0 (test_cli.py:")
    monkeypatch.setattr(CUTS, "load", lambda *_, **__: sys.exit(0))
    said = fresh("run", "mlp", *ONE, "--again", "--json")
    assert said.code == 4
    assert "the port ended the process, with code 0" in said.error


def test_what_a_port_prints_is_no_part_of_the_document(fresh, monkeypatch):
    plain = CUTS.mlp

    def talks(*arguments, **takes):
        print("here", flush=True)
        return plain(*arguments, **takes)

    monkeypatch.setattr(CUTS, "mlp", talks)
    said = fresh("run", "mlp", *ONE, "--json")
    assert said.code == 0
    assert said.document["summary"]["PASS"]
    assert set(said.err.split()) == {"here"}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("run", "experts"), "no stage of diffusion_gemma is called 'experts'; there are: config, weights"),
        (("run", "Moe"), "no stage of diffusion_gemma is called 'Moe'"),
        (("run", "--case", "shorter"), "no case of diffusion_gemma is called 'shorter'; there are: text, templates"),
        (("dump", "--case", "shorter"), "no case of diffusion_gemma is called 'shorter'"),
        (("run", "--compute", "float16"), "'float16'"),
        (("run", "--tier", "loose"), "'loose'"),
        (("run", "--model", "llama"), "'llama'"),
        (("run", "--unheard-of"), "--unheard-of"),
        (("judge-me",), "judge-me"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_not_there_is_2(call, command, names):
    said = call(*command)
    assert said.code == 2
    assert names in said.err
    assert "Traceback" not in said.err


def test_the_exact_tier_is_not_to_be_had_on_another_backend(call, monkeypatch):
    here = canary.canary()
    name = min(here)
    monkeypatch.setattr(running.canary, "canary", lambda *_: here | {name: "0" * 64})
    said = call("run", "embed", *ONE, "--tier", "exact")
    assert said.code == 2
    assert f"{name} differ" in said.error
    assert "harness dump" in said.error
    said = call("run", "embed", *ONE, "--json")
    assert said.document["tier"] == "portable"
    assert name in said.document["backend"]["differs"]["short/float32"]


def test_the_portable_tier_is_to_be_had_anywhere(call):
    said = call("run", "embed", *ONE, "--tier", "portable", "--json")
    assert said.code == 0
    assert said.document["tier"] == "portable"
    assert {row["gate"] for row in said.document["verdicts"] if row["stage"] == "embed"} == {"within"}


def test_a_missing_golden_is_3_and_names_its_recording(call, tmp_path):
    said = call("run", "embed", *ONE, "--goldens", tmp_path, "--json")
    assert said.code == 3
    (row,) = said.document["verdicts"]
    assert row["status"] == "STALE"
    assert str(tmp_path / "diffusion_gemma.short.float32.h5") in row["note"]
    assert "harness dump --case short" in row["note"]
    for command in (("ls",), ("verify",)):
        said = call("goldens", *command, "--goldens", tmp_path)
        assert said.code == 3
        assert "there is no golden in this folder" in said.error


def test_a_stage_that_nobody_recorded_is_not_a_pass(call):
    said = call("run", "tokenize", *ONE, "--json")  # `short` leaves text to the case `text`
    assert said.code == 1
    (row,) = said.document["verdicts"]
    assert row["status"] == "FAIL"
    assert "nothing was compared" in row["note"]


def test_a_narrow_question_is_about_what_its_cases_hold(call):
    said = call("run", "--case", "experts", "--compute", "float32", "--json")
    assert said.code == 0
    assert stages(said.document, "PASS") == {"moe"}


@pytest.mark.parametrize("mode", ["free", "forced"])
def test_one_mode_can_be_asked_for(call, mode):
    said = call("run", "embed", *ONE, f"--{mode}", "--json")
    assert said.code == 0
    assert {row["mode"] for row in said.document["verdicts"]} == {mode}


def test_a_failure_that_is_not_shown_still_locks(fresh, monkeypatch):
    plain = CUTS.router
    monkeypatch.setattr(
        CUTS, "router", lambda *arguments, **takes: {"scores": 2 * plain(*arguments, **takes)["scores"]}
    )
    said = fresh("run", "select_experts", *ONE, "--free", "--json")
    assert said.code == 1
    (row,) = [row for row in said.document["verdicts"] if row["stage"] == "select_experts"]
    assert (row["status"], row["note"]) == ("LOCKED", "waits for router")


# JSON, exactly


def test_run_prints_one_document(call):
    document = call("run", "embed", *ONE, "--json").document
    assert list(document) == ["schema", "tier", "backend", "verdicts", "summary"]
    assert document["schema"] == 1
    assert document["tier"] in {"exact", "portable"}
    assert document["backend"]["mlx"]
    assert document["verdicts"]
    for row in document["verdicts"]:
        assert list(row) == FIELDS
        assert row["case"] == "short/float32"
        assert row["model"] == "diffusion_gemma"
        assert row["mode"] in {"forced", "free"}
    assert list(document["summary"]) == [str(status) for status in Status]
    assert document["summary"]["PASS"] == sum(document["summary"].values()) == len(document["verdicts"])


def test_an_error_is_a_document_too(call, tmp_path):
    said = call("run", "embed", *ONE, "--checkpoint", tmp_path / "nowhere", "--json")
    assert said.code == 4
    document = said.document
    assert document["schema"] == 1
    assert document["error"] == said.error
    assert document["verdicts"] == []


def test_list_prints_the_table(call):
    call("run", "tokenize", "--case", "text")
    said = call("list", "--json")
    assert said.code == 0
    assert list(said.document) == ["schema", "models"]
    rows = said.document["models"]["diffusion_gemma"]
    assert [row["name"] for row in rows] == [stage.name for stage in TABLE.stages]
    for row, stage in zip(rows, TABLE.stages, strict=True):
        assert list(row) == ["name", "after", "state", "cases", "occurrences"]
        assert row["after"] == list(stage.after)
        assert row["state"] in set(map(str, Status))
        assert row["occurrences"] >= len(row["cases"]) > 0
    standing = {row["name"]: row["state"] for row in rows}
    assert standing["tokenize"] == "PASS"
    assert standing["decoder"] == "LOCKED"
    said = call("list")
    assert said.code == 0
    assert all(stage.name in said.out for stage in TABLE.stages)


def test_goldens_ls_says_what_is_recorded(call, tmp_path):
    name = "diffusion_gemma.experts.float32.h5"
    shutil.copy(COMMITTED / name, tmp_path)
    said = call("goldens", "ls", "--goldens", tmp_path, "--json")
    assert said.code == 0
    assert list(said.document) == ["schema", "goldens", "broken"]
    (row,) = said.document["goldens"]
    with Golden.open(tmp_path / name) as golden:
        assert row["occurrences"] == sum(len(golden.occurrences(stage)) for stage in golden.stages()) == 3
        assert row["differs"] == canary.differing(golden.manifest["canary"], canary.canary())
    assert (row["file"], row["model"], row["case"], row["compute"]) == (name, "diffusion_gemma", "experts", "float32")
    assert row["oracle"] == "mlx-optiq 0.7.7"
    assert row["bytes"] == (tmp_path / name).stat().st_size
    assert name in call("goldens", "ls", "--goldens", tmp_path).out


def test_goldens_ls_lists_the_others_beside_a_broken_one(call, tmp_path):
    for case in ("experts", "window-2"):
        shutil.copy(COMMITTED / f"diffusion_gemma.{case}.float32.h5", tmp_path)
    (tmp_path / "diffusion_gemma.experts.float32.h5").write_bytes(b"short")
    said = call("goldens", "ls", "--goldens", tmp_path, "--json")
    assert said.code == 3
    assert [row["case"] for row in said.document["goldens"]] == ["window-2"]
    assert "truncated" in said.document["broken"]["diffusion_gemma.experts.float32.h5"]
    said = call("goldens", "ls", "--goldens", tmp_path)
    assert said.code == 3
    assert "diffusion_gemma.window-2.float32.h5" in said.out
    assert "STALE" in said.out


def test_goldens_verify_counts_the_whole_and_names_the_broken(call, tmp_path):
    for case in ("experts", "window-2"):
        shutil.copy(COMMITTED / f"diffusion_gemma.{case}.float32.h5", tmp_path)
    assert call("goldens", "verify", "--goldens", tmp_path).code == 0
    broken = tmp_path / "diffusion_gemma.experts.float32.h5"
    broken.write_bytes(broken.read_bytes()[:-1])
    said = call("goldens", "verify", "--goldens", tmp_path, "--json")
    assert said.code == 3
    assert said.document["whole"] == 1
    assert list(said.document["broken"]) == [broken.name]
    assert "truncated" in said.document["broken"][broken.name]
    said = call("goldens", "verify", "--goldens", tmp_path)
    assert said.code == 3
    assert "1 of 2 goldens are whole" in said.out


def test_doctor_says_which_tier_is_to_be_had(call, tmp_path, monkeypatch):
    said = call("doctor", "--json")
    assert said.code == 0
    assert list(said.document) == ["schema", "backend", "goldens", "exact", "do"]
    committed = said.document["goldens"]["committed"]
    assert committed["files"] == len(list(COMMITTED.glob("*.h5")))
    assert committed["broken"] == []
    assert committed["tier"] == ("portable" if committed["differs"] else "exact")
    assert "mlx" in call("doctor").out
    broken = shutil.copy(COMMITTED / "diffusion_gemma.experts.float32.h5", tmp_path)
    Path(broken).write_bytes(b"not a golden")
    monkeypatch.setattr(cli, "COMMITTED", tmp_path)
    document = call("doctor", "--json").document
    assert document["do"].endswith(f"harness dump --out {tmp_path}")
    committed = document["goldens"]["committed"]
    assert committed["tier"] is None
    assert "a foreign file" in committed["broken"][0] or "truncated" in committed["broken"][0]


def test_a_run_appends_its_table_for_a_job_summary(call, tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    assert call("run", "embed", *ONE, "--markdown", summary).code == 0
    assert summary.read_text().startswith("before\n")
    assert "| embed" in summary.read_text()


def test_a_bug_of_the_harness_is_one_line_and_4(call, monkeypatch):
    monkeypatch.setattr(cli, "Run", replace)  # anything that cannot be called so
    monkeypatch.delenv("LOCKSTEP_TRACEBACK", raising=False)
    said = call("run")
    assert said.code == 4
    assert "LOCKSTEP_TRACEBACK=1" in said.error


def test_json_is_json_even_where_a_number_is_not(fresh, monkeypatch):
    plain = CUTS.embed
    monkeypatch.setattr(CUTS, "embed", lambda *a, **takes: {"h": 1 + plain(*a, **takes)["h"]})
    said = fresh("run", "embed", *ONE, "--tier", "portable", "--json")
    assert said.code == 1

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    json.loads(said.out, parse_constant=refuse)


def test_a_ledger_answers_for_the_same_port_unless_asked_again(fresh, monkeypatch):
    assert fresh("run", "mlp", *ONE).code == 0

    def raises(model, at, **takes):
        raise KeyError("why")

    monkeypatch.setattr(CUTS, "mlp", raises)  # no file changed
    assert fresh("run", "mlp", *ONE).code == 0
    assert fresh("run", "mlp", *ONE, "--again").code == 4
