"""Recording: a golden appears whole or not at all, and holds nothing that could not be judged."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from goldens import writer
from goldens.store import Golden, GoldenError, writing

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = {"case": {"name": "long"}, "compute": "bfloat16"}
NOISE = {"h": {"forced": 0.25, "free": None, "kind": "float64"}}


@pytest.fixture(autouse=True)
def _no_port(monkeypatch):
    """Other tests of this process may have imported the port; these are no recordings of an oracle."""
    monkeypatch.delitem(sys.modules, "port", raising=False)


def record(path, *steps, manifest=MANIFEST):
    """Record one good occurrence, then do the steps with the open recording."""
    with writing(path, manifest) as golden:
        golden.put("mlp", "encoder", {}, {"h": np.arange(3)})
        for step in steps:
            step(golden)
    return path


def put(stage="moe", occurrence="encoder", ins=None, outs=None, **more):
    return lambda golden: golden.put(stage, occurrence, ins or {}, {"h": np.zeros(3)} if outs is None else outs, **more)


def test_nothing_appears_when_recording_fails(tmp_path):
    with pytest.raises(ZeroDivisionError):
        record(tmp_path / "a.h5", lambda golden: golden.put("moe", "never", {}, {"h": np.zeros(1 // 0)}))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_recording_leaves_the_golden_that_was_there(tmp_path):
    before = record(tmp_path / "a.h5").read_bytes()
    with pytest.raises(GoldenError, match="recorded twice"):
        record(tmp_path / "a.h5", put(), put())
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]
    assert (tmp_path / "a.h5").read_bytes() == before


def test_a_golden_appears_only_when_it_is_whole(tmp_path):
    with writing(tmp_path / "a.h5", MANIFEST) as golden:
        golden.put("moe", "encoder", {}, {"h": np.zeros(3)})
        assert list(tmp_path.glob("*.h5")) == []
        assert [path.suffix for path in tmp_path.iterdir()] == [writer.SUFFIX]
        golden.manifest["failures"] = {"lora_grad": "raises ValueError"}
    with Golden.open(tmp_path / "a.h5") as whole:
        assert whole.manifest["failures"] == {"lora_grad": "raises ValueError"}


def test_only_the_leftovers_of_dead_recorders_are_removed(tmp_path):
    program = (
        "import sys, time, numpy as np\nfrom goldens.store import writing\n"
        "with writing(sys.argv[1], {}) as golden:\n"
        "    golden.put('moe', 'encoder', {}, {'h': np.zeros(3)})\n"
        "    print('recording', flush=True)\n"
        "    time.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(tmp_path / "slow.h5")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout.readline() == b"recording\n"
        (alive,) = tmp_path.glob(f".*{writer.SUFFIX}")
        record(tmp_path / "a.h5")
        assert alive.exists()
        child.kill()
    assert alive.exists()
    record(tmp_path / "b.h5")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "b.h5"]


def test_a_process_that_imported_the_port_records_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "port", sys)
    with pytest.raises(GoldenError, match="imported `port`"):
        record(tmp_path / "a.h5", lambda _: pytest.fail("recording began"))
    monkeypatch.delitem(sys.modules, "port")
    with pytest.raises(GoldenError, match="imported `port`"):
        record(tmp_path / "a.h5", lambda _: monkeypatch.setitem(sys.modules, "port", sys))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a b", "../x", "a/../b", "a//b", "/a", "a/", "-x", "é", "a\n", "a\0", "x" * 129, "in", "wide"],
)
def test_names_that_are_refused(tmp_path, name):
    with pytest.raises(GoldenError, match="the name|these words"):  # noqa: RUF043, either
        record(tmp_path / "a.h5", put(occurrence=name))
    if name not in ("in", "wide"):
        with pytest.raises(GoldenError, match="the name"):
            record(tmp_path / "a.h5", put(outs={name: np.zeros(3)}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("outs", "wide", "noise", "says"),
    [
        ({}, None, None, "gives no tensor"),
        ({"h": [1.0]}, None, None, "is a list, which should be a numpy array"),
        ({"h": np.zeros(2, complex)}, None, None, "complex128"),
        ({"h": np.array(["a"])}, None, None, "str"),
        ({"h": np.array([None])}, None, None, "object"),
        ({"h": np.zeros(2, "f4,f4")}, None, None, "void"),
        ({"h": np.broadcast_to(np.float32(0), (1 << 20, 1 << 20))}, None, None, "the limit is"),
        ({"h": np.zeros(2)}, {"h": np.zeros(3)}, None, "the output"),
        ({"h": np.zeros(2)}, {"x": np.zeros(2)}, None, "is not an output"),
        ({"h": np.zeros(2)}, None, {"x": NOISE["h"]}, "none of its outputs"),
        ({"h": np.zeros(2)}, None, {"h": {"forced": 1.0}}, "should have forced, free and a kind"),
        ({"h": np.zeros(2)}, None, {"h": NOISE["h"] | {"forced": float("nan")}}, "should be finite"),
        ({"h": np.zeros(2)}, None, {"h": NOISE["h"] | {"free": -1.0}}, "should be finite"),
        ({"h": np.zeros(2)}, None, {"h": NOISE["h"] | {"kind": "float16"}}, "a kind of"),
    ],
)
def test_records_that_are_refused(tmp_path, outs, wide, noise, says):
    with pytest.raises(GoldenError, match=says):
        record(tmp_path / "a.h5", put(outs=outs, wide=wide, noise=noise))
    assert list(tmp_path.iterdir()) == []


def test_a_record_put_in_part_spoils_the_golden(tmp_path):
    def put_half(golden):
        with pytest.raises(GoldenError, match="complex"):
            golden.put("moe", "encoder", {"x": np.zeros(3)}, {"h": np.zeros(3, complex)})

    with pytest.raises(GoldenError, match=r"moe\[encoder\] was put only in part"):
        record(tmp_path / "a.h5", put_half)
    with pytest.raises(GoldenError, match=r"moe\[encoder\] was put only in part"):
        record(tmp_path / "a.h5", put_half, put("router"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("manifest", [{"a": object()}, {"a": float("nan")}, {"a": {1, 2}}])
def test_a_manifest_that_is_not_json_is_refused(tmp_path, manifest):
    with pytest.raises(GoldenError, match="not JSON"):
        record(tmp_path / "a.h5", manifest=manifest)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_golden_is_refused(tmp_path):
    with pytest.raises(GoldenError, match="nothing was recorded"), writing(tmp_path / "a.h5", MANIFEST):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GoldenError, match="cannot be written"):
        record(tmp_path / "file" / "a.h5", lambda _: pytest.fail("recording began"))
