"""A golden that changed in any way is refused, and named for what changed."""

import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from forge import H, X, put_text, record

from goldens import diagnose, reader
from goldens.store import Golden, GoldenError, verify, writing

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _no_port(monkeypatch):
    """Other tests of this process may have imported the port; these are no recordings of an oracle."""
    monkeypatch.delitem(sys.modules, "port", raising=False)


def test_any_flipped_bit_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    with writing(path, {}) as golden:
        golden.put("moe", "encoder", {}, {"h": np.arange(6, dtype=np.float32)})
    monkeypatch.setattr(reader.diagnose, "explain", lambda *_: "changed")
    whole = path.read_bytes()
    for position in [*range(512), *range(512, len(whole), 11)]:
        broken = bytearray(whole)
        broken[position] ^= 1 << position % 8
        path.write_bytes(broken)
        with pytest.raises(GoldenError, match=r"changed|not the one that was sealed"):
            Golden.open(path)
    for length in range(0, len(whole), 101):
        path.write_bytes(whole[:length])
        with pytest.raises(GoldenError, match="changed"):
            Golden.open(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(GoldenError, match="changed"):
        Golden.open(path)
    path.write_bytes(whole)
    verify(path)


def test_a_golden_replaced_while_it_is_opened(tmp_path, monkeypatch):
    path = record(tmp_path / "a.h5")
    opened = reader.guard.open_file

    def swap(name):
        record(path)
        return opened(name)

    monkeypatch.setattr(reader.guard, "open_file", swap)
    with pytest.raises(GoldenError, match="replaced while it was being opened"):
        Golden.open(path)


def test_errors_cross_processes_and_end_with_the_command(tmp_path):
    error = GoldenError("truncated", tmp_path / "a.h5")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.cause, again.path) == (str(error), "truncated", tmp_path / "a.h5")
    assert str(error).endswith(f"harness dump --out {tmp_path}")
    committed = GoldenError("truncated", ROOT / "goldens" / "nano" / "recorded" / "a.h5")
    assert str(committed).endswith("git checkout -- goldens/nano/recorded/a.h5")


def edited(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def set_field(file):
    text = bytes(file["manifest"][:]).decode().replace('"seed":3', '"seed":4')
    put_text(file, "manifest", text)


def drop_field(file):
    put_text(file, "manifest", json.dumps({"case": "long", "port_imported": False}))


def add_field(file):
    put_text(file, "manifest", bytes(file["manifest"][:]).decode().replace("{", '{"extra":1,', 1))


def respell(file):
    put_text(file, "manifest", json.dumps(json.loads(bytes(file["manifest"][:])), indent=2))


def set_element(file):
    file[X][0, 0] = 2.0


def set_attribute(file):
    file[X].attrs.modify("sha256", np.bytes_(b"0" * 64))


def set_listing(file):
    file["listing"][5] = ord("!")


def set_many(file):
    for path in (X, H, "mlp/encoder/in/keys", "mlp/encoder/out/h"):
        dataset = file[path]
        dataset[...] = np.zeros(dataset.shape, dataset.dtype)


def link_away(file):
    del file[X]
    file[X] = h5py.SoftLink(f"/{H}")


def remove(*paths):
    def change(file):
        for path in paths:
            del file[path]

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (remove(X), f"the dataset {X} is missing"),
        (remove("moe"), "the group moe is missing"),
        (remove("manifest"), "its manifest cannot be read"),
        (remove("listing"), "its listing cannot be read"),  # HDF5 gives back the space: not `truncated`
        (set_field, "the manifest field 'seed' was edited"),
        (drop_field, "the manifest field 'seed' was removed"),
        (add_field, "the manifest field 'extra' was added"),
        (respell, "the manifest was rewritten"),
        (set_element, f"the tensor {X} changed"),
        (set_attribute, f"the attribute sha256 of {X} is '000"),
        (set_listing, "its listing was changed"),
        (set_many, "(and 1 more)"),
        (link_away, f"{X} became a link"),
        (lambda file: file.create_dataset("moe/y", data=1), "moe/y is not in the listing"),
        (lambda file: file.attrs.update(note="mine"), "bytes outside its tensors, listing and manifest"),
    ],
)
def test_a_changed_golden_is_named_for_its_change(tmp_path, change, says):
    path = record(tmp_path / "a.h5")
    edited(path, change)
    with pytest.raises(GoldenError) as caught:
        Golden.open(path)
    assert says in caught.value.cause
    assert caught.value.path == path
    assert str(caught.value).endswith(f"harness dump --out {path.parent}")


def cut(data):
    return data[:-100]


def cut_in_the_seal(data):
    return data[:300]


def empty(data):
    return b""


def spoil_seal(data):
    return data[:30] + b"x" + data[31:]


def spoil_padding(data):
    return data[:511] + b"x" + data[512:]


def spoil_superblock(data):
    return data[:520] + b"\xff" * 40 + data[560:]


def other_kind(data):
    return b"PK\3\4" + data


def bare_hdf5(data):
    return data[512:]


def longer(data):
    return data + b"tail"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (cut, "truncated: it has"),
        (cut_in_the_seal, "truncated: it has 300 bytes"),
        (empty, "truncated: it has 0 bytes"),
        (spoil_seal, "its seal was changed"),
        (spoil_padding, "its seal was changed"),
        (spoil_superblock, "HDF5 cannot read it"),
        (other_kind, "a foreign file: it starts with b'PK"),
        (bare_hdf5, "a foreign file: HDF5 data without a golden's seal"),
        (longer, "bytes outside its tensors, listing and manifest"),
    ],
)
def test_a_spoiled_file_is_named_for_its_state(tmp_path, spoil, says):
    path = record(tmp_path / "a.h5")
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(GoldenError) as caught:
        Golden.open(path)
    assert says in caught.value.cause


def test_a_flipped_bit_in_a_chunk_names_its_tensor(tmp_path):
    path = record(tmp_path / "a.h5")
    with h5py.File(path) as file:
        offset = file[H].id.get_chunk_info(0).byte_offset
    broken = bytearray(path.read_bytes())
    broken[512 + offset + 2000 if offset < 512 else offset + 2000] ^= 4
    path.write_bytes(broken)
    with pytest.raises(GoldenError, match=H):
        verify(path)


def test_a_golden_that_is_no_file(tmp_path):
    with pytest.raises(GoldenError, match="No such file"):
        Golden.open(tmp_path / "a.h5")
    with pytest.raises(GoldenError, match="not a regular file"):
        Golden.open(tmp_path)
    os.mkfifo(tmp_path / "pipe.h5")
    with pytest.raises(GoldenError, match="not a regular file"):
        Golden.open(tmp_path / "pipe.h5")


def test_a_diagnosis_that_never_ends_is_ended(tmp_path, monkeypatch):
    path = record(tmp_path / "a.h5")
    edited(path, set_element)
    monkeypatch.setattr(diagnose, "SECONDS", 0.01)
    with pytest.raises(GoldenError, match="HDF5 cannot read it: it did not finish"):
        Golden.open(path)


def test_a_diagnosis_that_dies_still_refuses(tmp_path, monkeypatch):
    path = record(tmp_path / "a.h5")
    edited(path, set_element)
    monkeypatch.setattr(diagnose.sys, "executable", shutil.which("false"))
    with pytest.raises(GoldenError, match="HDF5 cannot read it: it failed"):
        Golden.open(path)


def test_a_diagnosis_limits_its_memory(tmp_path, monkeypatch, capsys):
    path = record(tmp_path / "a.h5")
    edited(path, set_element)
    limits = []
    monkeypatch.setattr(diagnose.resource, "setrlimit", lambda *limit: limits.append(limit))
    diagnose.main(str(path), "12345")
    assert limits == [(diagnose.resource.RLIMIT_AS, (12345, 12345))]
    assert json.loads(capsys.readouterr().out) == [f"the tensor {X} changed: its SHA-256 is not the recorded one"]
