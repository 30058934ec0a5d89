"""The manifest says what a golden was recorded from, refuses an edited oracle, and names a swapped part."""

import base64
import hashlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from goldens import canary, checkpoint, manifest
from goldens.errors import GoldenError
from goldens.store import Golden, writing

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "fake-oracle"


@pytest.fixture(autouse=True)
def _no_port(monkeypatch):
    """Other tests of this process may have imported the port; these are no recordings of an oracle."""
    monkeypatch.delitem(sys.modules, "port", raising=False)


@pytest.fixture
def oracle(tmp_path, monkeypatch):
    """An installed distribution with a RECORD, as pip leaves it."""
    site = tmp_path / "site"
    info = site / "fake_oracle-1.2.3.dist-info"
    info.mkdir(parents=True)
    (site / "fake_oracle.py").write_text("ANSWER = 42\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-oracle\nVersion: 1.2.3\n")
    (info / "INSTALLER").write_text("pip\n")
    write_record(site)
    monkeypatch.syspath_prepend(str(site))
    return site


def write_record(site, *extra):
    lines = []
    for path in ("fake_oracle.py", "fake_oracle-1.2.3.dist-info/METADATA", "fake_oracle-1.2.3.dist-info/INSTALLER"):
        digest = base64.urlsafe_b64encode(hashlib.sha256((site / path).read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{(site / path).stat().st_size}")
    lines += ["fake_oracle-1.2.3.dist-info/RECORD,,", *extra]
    (site / "fake_oracle-1.2.3.dist-info" / "RECORD").write_text("\n".join(lines) + "\n")


def make_checkpoint(folder, scale=1.0, norm=2.0, shards=1):
    folder.mkdir(exist_ok=True)
    tensors = {
        "model.decoder.layers.0.scale": np.full((2, 3), scale, np.float32),
        "model.decoder.norm.weight": np.full(4, norm, ml_dtypes.bfloat16),
        "model.embed.weight": np.arange(8, dtype=np.uint32),
        "model.empty": np.zeros((0, 4), np.float32),
    }
    names = sorted(tensors)
    for shard in range(shards):
        part = {name: tensors[name] for name in names[shard::shards]}
        save_file(part, folder / f"model-{shard + 1:05}-of-{shards:05}.safetensors", metadata={"format": "mlx"})
    (folder / "config.json").write_text('{"model_type": "diffusion_gemma"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "generation_config.json").write_text("{}")
    (folder / "README.md").write_text("not a part")
    return folder


def collect(tmp_path, monkeypatch, **changes):
    monkeypatch.setattr(canary, "compute", lambda: {"matmul": "1"})
    fields = {
        "model": "diffusion_gemma",
        "case": {"name": "long"},
        "compute": "bfloat16",
        "seed": 3,
        "checkpoint": make_checkpoint(tmp_path / "nano"),
        "recorder": [ROOT / "goldens"],
        "oracle": manifest.oracle(PACKAGE),
        "kept": [0, 5],
        "cache": tmp_path / "cache",
    }
    return manifest.collect(**fields | changes)


def test_the_manifest_says_everything(tmp_path, monkeypatch, oracle):
    found = collect(tmp_path, monkeypatch)
    assert found["oracle"] == {"name": PACKAGE, "version": "1.2.3", "files": manifest.wheel_digest(PACKAGE)}
    assert found["packages"]["mlx"] == version("mlx")
    assert found["packages"]["numpy"] == np.__version__
    assert found["canary"] == {"matmul": "1"}
    assert found["backend"].keys() >= {"device", "blas", "threads", "platform", "cpu"}
    assert found["checkpoint"]["digest"] == checkpoint.digest(tmp_path / "nano").digest
    assert (found["case"], found["seed"], found["compute"]) == ({"name": "long"}, 3, "bfloat16")
    assert found == collect(tmp_path, monkeypatch)
    assert str(tmp_path) not in json.dumps(found)


def test_a_golden_keeps_its_manifest(tmp_path, monkeypatch, oracle):
    found = collect(tmp_path, monkeypatch)
    with writing(tmp_path / "a.h5", found) as golden:
        golden.put("moe", "encoder", {}, {"h": np.zeros(3)})
    with Golden.open(tmp_path / "a.h5") as golden:
        assert golden.manifest == found | {"port_imported": False}


def test_importing_the_manifest_imports_no_oracle_and_no_port():
    program = "import sys, goldens.manifest, goldens.store; print([m for m in sys.modules if m in %r])"
    strangers = {
        "optiq",
        "mlx_lm",
        "mlx_vlm",
        "transformers",
        "torch",
        "port",
        "oracle",
        "stages",
        "reports",
        "mlx.core",
    }
    child = subprocess.run([sys.executable, "-c", program % strangers], cwd=ROOT, capture_output=True, check=True)
    assert child.stdout == b"[]\n", "a bare clone judges without any of these"


def test_an_installers_notes_are_no_part_of_the_wheel(oracle):
    before = manifest.wheel_digest(PACKAGE)
    (oracle / "fake_oracle-1.2.3.dist-info" / "INSTALLER").write_text("another\n")
    write_record(oracle, "../../../bin/fake,sha256=AAAA,3", "__pycache__/fake_oracle.cpython-311.pyc,,")
    assert manifest.wheel_digest(PACKAGE) == before


def test_another_wheel_has_another_digest(oracle):
    before = manifest.wheel_digest(PACKAGE)
    (oracle / "fake_oracle.py").write_text("ANSWER = 43\n")
    write_record(oracle)
    assert manifest.wheel_digest(PACKAGE) != before


def test_an_edited_oracle_is_refused(oracle, tmp_path, monkeypatch):
    (oracle / "fake_oracle.py").write_text("ANSWER = 41\n")
    with pytest.raises(GoldenError, match=r"fake_oracle\.py is not the file of its wheel") as caught:
        collect(tmp_path, monkeypatch)
    assert str(caught.value).endswith("fake-oracle==1.2.3")


def test_an_oracle_that_lacks_a_file_is_refused(oracle):
    (oracle / "fake_oracle.py").unlink()
    with pytest.raises(GoldenError, match=r"lacks its file fake_oracle\.py"):
        manifest.wheel_digest(PACKAGE)


def test_an_oracle_without_a_record_is_refused(oracle):
    (oracle / "fake_oracle-1.2.3.dist-info" / "RECORD").unlink()
    with pytest.raises(GoldenError, match="has no RECORD"):
        manifest.wheel_digest(PACKAGE)


def test_an_absent_oracle_is_named(tmp_path, monkeypatch):
    with pytest.raises(GoldenError, match="no-such-oracle is not installed") as caught:
        manifest.oracle("no-such-oracle")
    assert "pip install" in str(caught.value)


def test_the_recorder_is_known_by_its_sources(tmp_path):
    place = tmp_path / "recorder"
    (place / "inner").mkdir(parents=True)
    (place / "a.py").write_text("1")
    (place / "inner" / "b.py").write_text("2")
    (place / "notes.txt").write_text("x")
    before = manifest.sources_digest([place])
    (place / "notes.txt").write_text("y")
    assert manifest.sources_digest([place]) == before
    (place / "inner" / "b.py").rename(place / "b.py")
    moved = manifest.sources_digest([place])
    assert moved != before
    (place / "b.py").write_text("3")
    assert manifest.sources_digest([place]) not in (before, moved)
    with pytest.raises(GoldenError, match="no Python source"):
        manifest.sources_digest([tmp_path / "nowhere.py"])


def test_checkpoints_are_equal_however_they_are_sharded(tmp_path):
    one = checkpoint.digest(make_checkpoint(tmp_path / "one"))
    two = checkpoint.digest(make_checkpoint(tmp_path / "two", shards=2))
    assert one == two
    assert {
        "tensor model.decoder.norm.weight",
        "tensor model.empty",
        "config.json",
        "tokenizer.json",
    } <= one.parts.keys()
    assert "README.md" not in one.parts


def test_a_swapped_part_is_named(tmp_path):
    before = checkpoint.digest(make_checkpoint(tmp_path / "a"))
    after = checkpoint.digest(make_checkpoint(tmp_path / "a", norm=3.0))
    assert after.digest != before.digest
    assert checkpoint.differing(before.parts, after.parts) == ["tensor model.decoder.norm.weight"]
    short = {name: sha256[: manifest.PART_DIGITS] for name, sha256 in before.parts.items()}
    assert checkpoint.differing(short, after.parts) == ["tensor model.decoder.norm.weight"]
    assert checkpoint.differing(short, before.parts) == []


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"])
def test_every_file_that_matters_counts(tmp_path, name):
    folder = make_checkpoint(tmp_path / "a")
    before = checkpoint.digest(folder)
    (folder / name).write_text('{"other": 1}')
    assert checkpoint.differing(before.parts, checkpoint.digest(folder).parts) == [name]
    (folder / name).unlink()
    assert checkpoint.differing(before.parts, checkpoint.digest(folder).parts) == [name]


def test_dtype_and_shape_count_as_much_as_bytes(tmp_path):
    def parts(tensor):
        tmp_path.joinpath("a").mkdir(exist_ok=True)
        save_file({"w": tensor}, tmp_path / "a" / "model.safetensors")
        return checkpoint.digest(tmp_path / "a").digest

    zeros = np.zeros((2, 4), np.float32)
    kinds = [zeros, zeros.T.copy(), zeros.view(np.uint32), zeros.reshape(8), np.zeros((2, 8), ml_dtypes.bfloat16)]
    assert len({parts(tensor) for tensor in kinds}) == len(kinds)


def test_a_tensor_digest_is_that_of_its_dtype_shape_and_bytes(tmp_path):
    found = checkpoint.digest(make_checkpoint(tmp_path / "a")).parts["tensor model.decoder.layers.0.scale"]
    assert found == hashlib.sha256(b"F32:2x3:" + np.ones(6, "<f4").tobytes()).hexdigest()


def test_a_name_in_two_shards_is_two_parts(tmp_path):
    folder = make_checkpoint(tmp_path / "a")
    save_file({"model.empty": np.ones(3, np.float32)}, folder / "model-other.safetensors")
    assert "tensor model.empty (model-other.safetensors)" in checkpoint.digest(folder).parts


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data[:5],
        lambda _: b"",
        lambda data: (1 << 62).to_bytes(8, "little") + data[8:],
        lambda data: data[:9] + b"\xff" + data[10:],
        lambda data: data.replace(b"data_offsets", b"data_offstes"),
        lambda data: data.replace(b'"F32"', b'"F99"'),
    ],
)
def test_a_shard_that_cannot_be_parsed_counts_by_its_bytes(tmp_path, spoil):
    folder = make_checkpoint(tmp_path / "a")
    (shard,) = folder.glob("*.safetensors")
    shard.write_bytes(spoil(shard.read_bytes()))
    found = checkpoint.digest(folder)
    assert [name for name in found.parts if not name.endswith((".json", ".jinja"))] == [f"file {shard.name}"]


@pytest.mark.parametrize("make", [lambda _: None, lambda path: path.mkdir(), lambda path: path.write_text("x")])
def test_no_checkpoint_is_an_error(tmp_path, make):
    make(tmp_path / "none")
    with pytest.raises(GoldenError, match="missing, or holds neither tensors"):
        checkpoint.digest(tmp_path / "none")
