"""Unlocking, for real: a copy of the checkout is edited, and the ledger remembers exactly what still holds."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from goldens import canary
from goldens.store import Golden
from reports.ledger import Ledger
from stages.cli import table_of

ROOT = Path(__file__).resolve().parent.parent
TABLE = table_of("diffusion_gemma")
CASES = ("--case", "short", "--case", "experts", "--compute", "float32")
FILES = ("diffusion_gemma.short.float32.h5", "diffusion_gemma.experts.float32.h5")
PLAIN = "self.proj(unit_rms(h_ND, self._eps) * self.scale.array * self._root)"
FOLDED = "self.proj(mx.fast.rms_norm(h_ND, self.scale.array * self._root, self._eps))"
VISIT = "        chosen = experts_NK.shape[-1]\n"


def recorded() -> set[str]:
    """The stages that the two cases hold."""
    held: set[str] = set()
    for name in FILES:
        with Golden.open(ROOT / "goldens/nano/recorded" / name) as golden:
            held.update(golden.stages())
    return held


def depend_on(*names: str) -> set[str]:
    """These stages and all that wait for them, however far, among those that the two cases hold."""
    return {name for name in recorded() if set(TABLE.closure([name])) & set(names)}


class Checkout:
    """A copy of the project, in which a process of its own judges two small cases."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def harness(self, *command: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "stages.cli", *command)
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)

    def run(self, *more: str) -> tuple[int, dict]:
        """(exit code, document) of `harness run`; the code that runs must be the copy's."""
        child = self.harness("run", *CASES, *more, "--json")
        assert child.stderr == ""
        return child.returncode, json.loads(child.stdout)

    def port(self, name: str) -> Path:
        return self.root / "port" / "diffusion_gemma" / name

    def ledger(self) -> dict:
        """Entries by (stage, case); an entry's time tells one judgement from the next."""
        held = Ledger.load(self.root / ".lockstep" / "ledger")
        return {tuple(name.split("/")[1:3]): held.get(name) for name in held.ids()}


def stages(document: dict, status: str) -> set[str]:
    return {row["stage"] for row in document["verdicts"] if row["status"] == status}


def rows(document: dict, stage: str, mode: str = "forced") -> list[dict]:
    return [row for row in document["verdicts"] if row["stage"] == stage and row["mode"] == mode]


def judged_anew(before: dict, after: dict) -> set[str]:
    assert before.keys() == after.keys()
    return {stage for stage, case in before if before[stage, case] != after[stage, case]}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The copy, judged once: everything there is PASS in the exact tier."""
    root = tmp_path_factory.mktemp("checkout")
    for package in ("port", "oracle", "goldens", "stages", "reports"):
        ignored = shutil.ignore_patterns("__pycache__", "html", "local", "recorded")
        shutil.copytree(ROOT / package, root / package, ignore=ignored)
    (root / "README.md").write_text("A copy.\n")
    (root / "goldens/nano/recorded").mkdir()
    for name in FILES:
        shutil.copy(ROOT / "goldens/nano/recorded" / name, root / "goldens/nano/recorded")
    (root / ".lockstep").mkdir()
    for path in (ROOT / ".lockstep").glob("canary-*.json"):  # spares the copy a second
        shutil.copy(path, root / ".lockstep")
    checkout = Checkout(root)
    with Golden.open(root / "goldens/nano/recorded" / FILES[0]) as golden:
        foreign = canary.differing(golden.manifest["canary"], canary.canary())
    if foreign:  # then bits can only be held to goldens of this machine
        assert checkout.harness("dump", *CASES).returncode == 0
    code, document = checkout.run()
    assert code == 0, document
    assert document["tier"] == "exact"
    assert stages(document, "PASS") == {row["stage"] for row in document["verdicts"]} > depend_on("router")
    return checkout


@pytest.fixture
def checkout(copied):
    """The copy, put back as it was afterwards."""
    kept = {path: path.read_bytes() for path in (copied.root / "port").rglob("*.py")}
    yield copied
    for path, data in kept.items():
        path.write_bytes(data)


def test_nothing_changed_is_nothing_judged(checkout):
    path = checkout.root / ".lockstep" / "ledger"
    before = path.read_bytes()
    code, document = checkout.run()
    assert code == 0
    assert stages(document, "PASS") == {row["stage"] for row in document["verdicts"]}
    (checkout.root / "README.md").write_text("Another README.\n")
    assert checkout.run() == (0, document)
    assert path.read_bytes() == before


def test_one_operator_fails_its_stage_and_locks_what_waits_for_it(checkout):
    before = checkout.ledger()
    moe = checkout.port("moe.py")
    was = moe.read_text()
    assert PLAIN in was
    moe.write_text(was.replace(PLAIN, FOLDED))
    code, document = checkout.run()
    assert code == 1

    # `router` fails, at an address, with both values.
    failed = [row for row in rows(document, "router") if row["status"] == "FAIL"]
    assert stages(document, "FAIL") == {"router"}
    assert failed
    for row in failed:
        assert row["gate"] == "exact"
        assert row["value"] > 0 == row["bound"]
        assert re.fullmatch(r"N=\d+, E=\d+", row["where"])
        values = re.fullmatch(r"oracle (\S+), port (\S+)", row["note"])
        assert values
        assert values[1] != values[2]

    # What waits for it is locked, and says for what; nothing of it was judged.
    locked = depend_on("router") - {"router"}
    assert stages(document, "LOCKED") - {"router"} == locked == {"select_experts", "moe", "layer", "encoder", "decoder"}
    for name in locked:
        waits = [after for after in TABLE[name].after if after in depend_on("router")]
        assert {row["note"] for row in rows(document, name)} == {f"waits for {', '.join(waits)}"}
        assert all(row["value"] is None for row in rows(document, name))

    # Everything before and beside stays PASS without having been judged again.
    untouched = {stage for stage, _ in before} - depend_on("router")
    assert stages(document, "PASS") - {"router"} == untouched
    assert judged_anew(before, checkout.ledger()) == {"router"}

    # Undone, it is green again, and what had been locked is remembered.
    moe.write_text(was)
    code, document = checkout.run()
    assert code == 0
    assert stages(document, "PASS") == {row["stage"] for row in document["verdicts"]}
    assert judged_anew(before, checkout.ledger()) == {"router"}


def test_a_touched_file_asks_again_for_what_runs_it_and_what_waits_for_that(checkout):
    before = checkout.ledger()
    rope = checkout.port("rope.py")
    rope.write_text(rope.read_text() + "\n# Touched.\n")
    code, _ = checkout.run()
    assert code == 0
    assert judged_anew(before, checkout.ledger()) == depend_on("rope")
    assert not {"mlp", "router"} & depend_on("rope")


def test_a_stage_that_raises_says_where_and_takes_no_other_down(checkout):
    moe = checkout.port("moe.py")
    was = moe.read_text()
    assert VISIT in was
    moe.write_text(was.replace(VISIT, f"{VISIT}        raise ValueError('on purpose')\n"))
    code, document = checkout.run()
    assert code == 4
    line = was[: was.index(VISIT)].count("\n") + 2
    assert stages(document, "ERROR") == {"moe"}
    assert {row["note"] for row in rows(document, "moe")} == {f"ValueError: on purpose (moe.py:{line})"}
    for stage in {row["stage"] for row in document["verdicts"]} - depend_on("moe"):
        assert {row["status"] for row in rows(document, stage)} == {"PASS"}
    for stage in depend_on("moe") - {"moe"}:
        assert {row["status"] for row in rows(document, stage)} == {"LOCKED"}
    # The ordinary run did not get as far as the second layer's router, and does not blame it.
    assert not stages(document, "FAIL")
    stopped = [row for row in rows(document, "router", "free") if row["status"] == "LOCKED"]
    assert stopped
    assert all(f"stopped before this: ValueError: on purpose (moe.py:{line})" in row["note"] for row in stopped)

    moe.write_text(was)
    assert checkout.run()[0] == 0


def test_a_raising_stage_is_asked_again_once_its_file_is_mended(checkout):
    mlp = checkout.port("mlp.py")
    was = mlp.read_text()
    mlp.write_text(re.sub(r"^( +)return self\.down_proj", r"\1raise OSError('no')\n\g<0>", was, flags=re.MULTILINE))
    assert mlp.read_text() != was
    code, document = checkout.run("mlp")
    assert code == 4
    assert stages(document, "ERROR") == {"mlp"}
    mlp.write_text(was)
    assert checkout.run("mlp")[0] == 0


def test_a_file_saved_while_its_old_code_is_judged_is_asked_again(checkout):
    embed, mlp = checkout.port("embed.py"), checkout.port("mlp.py")
    was = mlp.read_text()
    broken = re.sub(r"^( +)return self\.down_proj", r"\1raise OSError('no')\n\g<0>", was, flags=re.MULTILINE)
    saves = f"\n__import__('pathlib').Path({str(mlp)!r}).write_text({broken!r})\n"
    (checkout.root / "saves.py").write_text(saves)
    text = embed.read_text()
    embed.write_text(re.sub(r"^( +)return ", r"\1import saves  # noqa\n\g<0>", text, flags=re.MULTILINE))
    code, _ = checkout.run("mlp", "embed")
    assert mlp.read_text() == broken
    assert code == 0  # of the code that was there when the run began
    embed.write_text(text)
    code, document = checkout.run("mlp")
    assert code == 4
    assert stages(document, "ERROR") == {"mlp"}


def test_a_port_that_cannot_be_imported_is_one_error(checkout):
    rope = checkout.port("rope.py")
    rope.write_text(rope.read_text() + "\ndef (\n")
    child = checkout.harness("run", *CASES, "rope")
    assert child.returncode == 4
    assert len(child.stderr.splitlines()) == 1
    assert "SyntaxError" in child.stderr
    assert "rope.py" in child.stderr


def test_a_tightened_gate_locks_what_waits_for_it_remembered_or_not(checkout):
    table = checkout.root / "stages" / "diffusion_gemma.py"
    was = table.read_text()
    plain = '{"ids": "B T"}, {"h": Out("B T D", portable=ONE_OP)}'
    assert plain in was
    try:
        never = plain.replace("portable=ONE_OP", 'exact=Within(-1, because="test"), portable=ONE_OP')
        table.write_text(was.replace(plain, never))
        code, document = checkout.run()
    finally:
        table.write_text(was)
    assert code == 1
    assert stages(document, "FAIL") == {"embed"}
    assert stages(document, "LOCKED") == depend_on("embed") - {"embed"}


def test_a_case_edited_after_its_recording_is_stale(checkout):
    table = checkout.root / "stages" / "text_cases.py"
    was = table.read_text()
    assert was.count("seed=1,") == 1
    try:
        table.write_text(was.replace("seed=1,", "seed=100,"))
        code, document = checkout.run("embed")
    finally:
        table.write_text(was)
    assert code == 3
    notes = [row["note"] for row in document["verdicts"] if row["status"] == "STALE"]
    assert notes
    assert all("case 'short' changed since it was recorded: seed differ" in note for note in notes)
