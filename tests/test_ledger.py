import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports import ledger as module
from reports.ledger import Entry, Ledger, LedgerWarning
from reports.verdict import Status, Verdict, Worst

ROOT = Path(module.__file__).parents[1]


def verdict(tensor="h", value=0.0, worst=()):
    status = Status.FAIL if value else Status.PASS
    return Verdict(
        "m", "moe", "encoder", "forced", "long/float32", tensor, status, "exact", value, 0.0, "", "", "", "exact", worst
    )


def entry(key="k", count=3):
    worst = (Worst((1, 2), "1.5", "1.25", "0x3fc0", "0x3fa0", 32.0),)
    return Entry(
        key,
        {"port/moe.py": "ab" * 32},
        tuple(verdict(f"h{n}", float(n % 2), worst * (n % 2)) for n in range(count)),
        1.25,
    )


@settings(deadline=None)  # writes files: how long that takes is the disk's business
@given(st.dictionaries(st.text(), st.builds(entry, st.text(), st.integers(0, 4)), max_size=4))
def test_what_is_saved_is_what_is_loaded(tmp_path_factory, entries):
    path = tmp_path_factory.mktemp("ledger") / "ledger"
    ledger = Ledger.load(path)
    for name, held in entries.items():
        ledger.put(name, held)
    ledger.save()
    again = Ledger.load(path)
    assert again.ids() == sorted(entries)
    assert {name: again.get(name) for name in again.ids()} == entries
    assert again.get("nothing by this name" + "".join(entries)) is None


def test_numbers_that_are_not_finite_survive(tmp_path):
    ledger = Ledger.load(tmp_path / "ledger")
    ledger.put("a", Entry("k", {}, (verdict(value=float("nan")), verdict(value=float("inf"))), 0.0))
    ledger.save()
    found = Ledger.load(tmp_path / "ledger").get("a")
    assert [str(v.value) for v in found.verdicts] == ["nan", "inf"]


def test_what_was_put_is_seen_before_it_is_saved_and_not_on_disk(tmp_path):
    ledger = Ledger.load(tmp_path / "deep" / "ledger")
    ledger.put("a", entry())
    assert ledger.get("a") == entry()
    assert Ledger.load(ledger.path).get("a") is None
    ledger.save()
    assert Ledger.load(ledger.path).get("a") == entry()


def test_saving_nothing_writes_nothing(tmp_path):
    Ledger.load(tmp_path / "ledger").save()
    assert list(tmp_path.iterdir()) == []


def test_the_bytes_depend_on_the_entries_alone(tmp_path):
    for path, names in ((tmp_path / "a", "xyz"), (tmp_path / "b", "zyx")):
        ledger = Ledger.load(path)
        for name in names:
            ledger.put(name, entry(name))
        ledger.save()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_two_runs_keep_each_others_entries_and_the_later_save_wins(tmp_path):
    path = tmp_path / "ledger"
    first, second = Ledger.load(path), Ledger.load(path)
    first.put("a", entry("first"))
    first.put("both", entry("first"))
    second.put("b", entry("second"))
    second.put("both", entry("second"))
    first.save()
    second.save()
    found = Ledger.load(path)
    assert {name: found.get(name).key for name in found.ids()} == {"a": "first", "b": "second", "both": "second"}
    assert second.get("a").key == "first"


def test_discarded_entries_are_gone_and_others_are_not(tmp_path):
    ledger = Ledger.load(tmp_path / "ledger")
    ledger.put("a", entry())
    ledger.put("b", entry())
    ledger.save()
    ledger.discard("a")
    assert ledger.get("a") is None
    ledger.save()
    assert Ledger.load(ledger.path).ids() == ["b"]


SAVER = """
import sys
from pathlib import Path
from reports.ledger import Entry, Ledger
for turn in range(int(sys.argv[3])):
    ledger = Ledger.load(Path(sys.argv[1]))
    ledger.put(f"{sys.argv[2]}/{turn}", Entry("k" * 1000, {}, (), 0.0))
    ledger.save()
    print(turn, flush=True)
"""


def saver(path, name, turns):
    command = [sys.executable, "-W", "error", "-c", SAVER, str(path), name, str(turns)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_processes_that_save_at_once_lose_nothing(tmp_path):
    path = tmp_path / "ledger"
    running = [saver(path, name, 15) for name in "abc"]
    for process in running:
        process.communicate(timeout=120)
    assert [process.returncode for process in running] == [0, 0, 0]
    assert Ledger.load(path).ids() == sorted(f"{name}/{turn}" for name in "abc" for turn in range(15))


def test_a_killed_saver_leaves_a_whole_ledger_and_no_lock(tmp_path):
    path = tmp_path / "ledger"
    for attempt in range(6):
        process = saver(path, f"run{attempt}", 100_000)
        assert process.stdout.readline() == "0\n"
        time.sleep(0.003 * attempt)
        process.kill()
        process.communicate()
        assert f"run{attempt}/0" in Ledger.load(path).ids()  # warnings are errors: nothing was set aside
    ledger = Ledger.load(path)
    ledger.put("after", entry())
    ledger.save()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger", "ledger.lock"]
    assert Ledger.load(path).get("after") == entry()


def test_a_write_that_fails_leaves_the_ledger_as_it_was(tmp_path, monkeypatch):
    ledger = Ledger.load(tmp_path / "ledger")
    ledger.put("a", entry())
    ledger.save()
    before = ledger.path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ledger.put("b", entry())
    with pytest.raises(OSError, match="No space"):
        ledger.save()
    assert ledger.path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger", "ledger.lock"]


def damaged(how, data):
    if how == "flipped":
        return data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]
    if how == "first line":
        return data.replace(b"lockstep-ledger 2", b"lockstep-ledger 1", 1)
    return {
        "truncated": data[: len(data) // 2],
        "empty": b"",
        "foreign": b"SQLite format 3\0",
        "binary": bytes(range(256)) * 9,
    }[how]


@pytest.mark.parametrize("how", ["flipped", "first line", "truncated", "empty", "foreign", "binary"])
def test_what_is_no_ledger_is_set_aside_with_its_bytes_and_named(tmp_path, how):
    path = tmp_path / "ledger"
    ledger = Ledger.load(path)
    ledger.put("a", entry())
    ledger.save()
    data = damaged(how, path.read_bytes())
    path.write_bytes(data)
    with pytest.warns(LedgerWarning, match=r"ledger is not a ledger.*now ledger\.unusable-1"):
        found = Ledger.load(path)
    assert found.ids() == []
    assert (tmp_path / "ledger.unusable-1").read_bytes() == data
    path.write_bytes(data)
    with pytest.warns(LedgerWarning, match=r"unusable-2"):
        found = Ledger.load(path)
    found.put("b", entry())
    found.save()
    assert Ledger.load(path).ids() == ["b"]


def test_a_ledger_damaged_while_a_run_holds_it_is_set_aside_when_it_saves(tmp_path):
    ledger = Ledger.load(tmp_path / "ledger")
    ledger.put("a", entry())
    ledger.path.write_text("not this")
    with pytest.warns(LedgerWarning, match="unusable-1"):
        ledger.save()
    assert Ledger.load(ledger.path).ids() == ["a"]


def test_a_folder_in_its_place_is_set_aside(tmp_path):
    (tmp_path / "ledger").mkdir()
    with pytest.warns(LedgerWarning, match="it is a folder"):
        assert Ledger.load(tmp_path / "ledger").ids() == []


def test_an_entry_of_another_version_is_judged_anew(tmp_path):
    path = tmp_path / "ledger"
    module._write(path, {"old": '["key",{},1.0,1,[["only"],["three"],["columns"]]]', "new": module._encode(entry())})
    ledger = Ledger.load(path)
    with pytest.warns(LedgerWarning, match="'old' cannot be read"):
        assert ledger.get("old") is None
    assert ledger.get("new") == entry()
