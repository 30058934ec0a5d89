"""A golden that is not exactly what was recorded gives STALE, a cause and exit code 3; never another verdict."""

import json
import random
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import forge
import h5py
import port_files
import pytest
from harness import harness

from stages.places import COMMITTED

ROOT = Path(__file__).resolve().parent.parent
NAME = "diffusion_gemma.experts.float32.h5"
OTHER = "diffusion_gemma.window-2.float32.h5"
QUESTION = ("run", "moe", "--case", "experts", "--compute", "float32")
AT = "moe/direct/layer=2/assignments=63"
GOOD = (COMMITTED / NAME).read_bytes()

# The seal's every field, the end, and anywhere else.
OFFSETS = sorted({0, 7, 511, 512, len(GOOD) - 1, *random.Random(2).sample(range(512), 6)} |
                 set(random.Random(3).sample(range(512, len(GOOD)), 12)))  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def call(monkeypatch, cache):
    return harness(monkeypatch, cache)


@pytest.fixture
def golden(tmp_path):
    path = tmp_path / NAME
    path.write_bytes(GOOD)
    return path


def stale(call, golden, *more):
    """The cause that a run names; there is no verdict but STALE."""
    said = call(*QUESTION, "--goldens", golden.parent, *more, "--json")
    assert said.code == 3
    assert said.err == ""
    (row,) = said.document["verdicts"]
    assert (row["stage"], row["status"], row["case"]) == ("moe", "STALE", "experts/float32")
    assert (row["value"], row["gate"], row["tensor"]) == (None, "", "")
    assert row["note"].startswith(f"{golden}: ")
    assert row["note"].endswith(f"harness dump --out {golden.parent}")
    return row["note"].removeprefix(f"{golden}: ")


def test_the_golden_is_good_before_anything_is_done_to_it(call, golden):
    said = call(*QUESTION, "--goldens", golden.parent, "--json")
    assert said.code == 0
    assert said.document["summary"]["PASS"] == len(said.document["verdicts"]) > 0


@pytest.mark.parametrize("offset", OFFSETS)
def test_one_flipped_byte(call, golden, offset):
    data = bytearray(GOOD)
    data[offset] ^= 1 + random.Random(offset).randrange(255)
    golden.write_bytes(data)
    assert len(stale(call, golden)) > 20


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, len(GOOD) // 2, len(GOOD) - 1])
def test_truncated(call, golden, length):
    golden.write_bytes(GOOD[:length])
    assert f"it has {length} " in stale(call, golden)


def test_longer_than_it_was(call, golden):
    golden.write_bytes(GOOD + b"\0")
    assert stale(call, golden)


def test_a_deleted_dataset(call, golden):
    with h5py.File(golden, "r+") as file:
        del file[f"{AT}/out/h"]
    assert f"the dataset {AT}/out/h is missing" in stale(call, golden)


def test_a_deleted_stage(call, golden):
    with h5py.File(golden, "r+") as file:
        del file["moe"]
    assert "the group moe is missing" in stale(call, golden)


def test_an_edited_tensor(call, golden):
    with h5py.File(golden, "r+") as file:
        value = file[f"{AT}/out/h"][0, 0]
        file[f"{AT}/out/h"][0, 0] = 1.5 if value != 1.5 else 2.5
    assert f"{AT}/out/h changed" in stale(call, golden)


def test_an_edited_manifest_field(call, golden):
    with h5py.File(golden, "r+") as file:
        facts = json.loads(bytes(file["manifest"][:]))
        facts["oracle"]["version"] = "0.7.8"
        forge.put_text(file, "manifest", json.dumps(facts))
    assert "the manifest field 'oracle' was edited" in stale(call, golden)


def test_another_golden_under_this_name(call, golden):
    golden.write_bytes((COMMITTED / OTHER).read_bytes())
    assert "changed since it was recorded" in stale(call, golden)


def test_a_manifest_of_another_schema(call, golden):
    def later(file, listing):
        facts = json.loads(bytes(file["manifest"][:]))
        facts["schema"] += 1
        forge.put_text(file, "manifest", json.dumps(facts))

    forge.reseal(golden, later)
    assert "its manifest is of schema" in stale(call, golden)


def test_a_folder_or_a_dangling_link_in_its_place(call, golden):
    golden.unlink()
    golden.mkdir()
    assert "not a regular file" in stale(call, golden)
    golden.rmdir()
    golden.symlink_to(golden.parent / "nowhere")
    said = call(*QUESTION, "--goldens", golden.parent, "--json")
    assert said.code == 3
    assert "there is no golden" in said.document["verdicts"][0]["note"]


def test_another_checkpoint(call, golden, tmp_path):
    folder = port_files.copy(tmp_path)
    name = "model.decoder.layers.2.router.scale"

    def nudge(tensors):
        dtype, shape, data = tensors[name]
        tensors[name] = (dtype, shape, bytes([data[0] ^ 1]) + data[1:])

    port_files.edit(port_files.shard_of(folder, name), nudge)
    cause = stale(call, golden, "--checkpoint", folder)
    assert f"the checkpoint at {folder} is not the one it was recorded from" in cause
    assert f"tensor {name} differ" in cause


def test_a_checkpoint_with_another_template(call, golden, tmp_path):
    folder = port_files.copy(tmp_path)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert "chat_template.jinja differ" in stale(call, golden, "--checkpoint", folder)


def test_one_stale_golden_does_not_silence_the_others(call, golden):
    golden.write_bytes(GOOD[:-1])
    shutil.copy(COMMITTED / OTHER, golden.parent)
    cases = ("--case", "experts", "--case", "window-2", "--compute", "float32")
    said = call("run", "decoder_masks", *cases, "--goldens", golden.parent, "--json")
    assert said.code == 3
    found = {(row["case"], row["status"]) for row in said.document["verdicts"]}
    assert found == {("experts/float32", "STALE"), ("window-2/float32", "PASS")}
    said = call("run", "decoder_masks", *cases, "--goldens", golden.parent)
    assert "STALE" in said.out
    assert "truncated" in said.out


# Sealed by whoever made it: what a run would allocate or follow is refused first.


def entry(listing, side, name):
    (row,) = (row for stage, occurrence, row in listing["records"] if f"{stage}/{occurrence}" == AT)
    return listing["tensors"][row[side][name]]


def soft_link(file, listing):
    del file[f"{AT}/out/h"]
    file[f"{AT}/out/h"] = h5py.SoftLink(f"/{AT}/in/x")


def external_link(file, listing):
    del file[f"{AT}/out/h"]
    file[f"{AT}/out/h"] = h5py.ExternalLink("/etc/hostname", "/x")


def trillion(file, listing):
    forge.claim(file, f"{AT}/out/h", (forge.TRILLION,), (1 << 20,), [forge.shuffle, forge.deflate])
    entry(listing, "out", "h")[:2] = ["float64", [forge.TRILLION]]


def trillion_behind_an_honest_listing(file, listing):
    filters = [forge.shuffle, forge.deflate]
    forge.claim(file, f"{AT}/out/h", (forge.TRILLION,), (1 << 20,), filters, dtype=forge.h5t.IEEE_F32LE)


def bomb(file, listing):
    _, shape, _ = entry(listing, "out", "h")
    packed = zlib.compress(bytes(512 << 20), 1)
    chunk = tuple(shape)
    forge.claim(file, f"{AT}/out/h", chunk, chunk, [forge.shuffle, forge.deflate], packed, forge.h5t.IEEE_F32LE)


HOSTILE = {
    soft_link: "out/h is a soft link",
    external_link: "out/h is an external link",
    trillion: "claims 8000000000000 bytes",
    trillion_behind_an_honest_listing: "has the shape [1000000000000]",
    bomb: "does not inflate to the",
}
RUN = """
import io, json, resource, sys
from contextlib import redirect_stderr, redirect_stdout
import stages.run, stages.told
from goldens import canary
from pathlib import Path
from stages.cli import main
canary.canary()
stages.run.CACHE = stages.told.CACHE = Path(sys.argv.pop(1))
if sys.platform == "linux":  # elsewhere the limit is not kept; the refusals are the same
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), resource.RLIM_INFINITY))
for folder in json.loads(sys.stdin.read()):
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main([*sys.argv[1:], "--goldens", folder], standalone_mode=False)
    except SystemExit as end:
        print(json.dumps([end.code, out.getvalue(), err.getvalue()]))
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """(exit code, output, errors) by hostile golden, of a process that may not allocate much."""
    root = tmp_path_factory.mktemp("hostile")
    folders = []
    for edit in HOSTILE:
        folder = root / edit.__name__
        folder.mkdir()
        (folder / NAME).write_bytes(GOOD)
        forge.reseal(folder / NAME, edit)
        folders.append(str(folder))
    child = subprocess.run(
        [sys.executable, "-c", RUN, str(root / "cache"), *QUESTION, "--json"],
        input=json.dumps(folders),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    return dict(zip((edit.__name__ for edit in HOSTILE), answers, strict=True))


@pytest.mark.parametrize(("edit", "says"), HOSTILE.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_hostile_golden_is_refused_before_it_allocates(refusals, edit, says):
    code, out, err = refusals[edit.__name__]
    assert code == 3
    assert err == ""
    (row,) = json.loads(out)["verdicts"]
    assert (row["stage"], row["status"]) == ("moe", "STALE")
    assert says in row["note"]
