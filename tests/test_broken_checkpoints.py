"""A checkpoint that is not what a model can be made of: one clear error that names it, and exit code 4."""

import json
import re
from pathlib import Path

import port_files
import pytest
from harness import harness

QUESTION = ("run", "embed", "--case", "short", "--compute", "float32")
SCALE = "model.decoder.layers.2.router.scale"
NORM = "model.decoder.norm.weight"


def edit_tensor(folder, name, change):
    """Replace a tensor of a shard by what `change` makes of (dtype, shape, bytes); None removes it."""

    def edit(tensors):
        changed = change(*tensors.pop(name))
        if changed:
            tensors[name] = changed

    port_files.edit(port_files.shard_of(folder, name), edit)


def edit_index(folder, change):
    port_files.edit_json(folder / port_files.INDEX, lambda index: change(index["weight_map"]))


def missing_from_its_shard(folder):
    edit_tensor(folder, SCALE, lambda *_: None)
    return SCALE, "it is missing from the file"


def missing_everywhere(folder):
    edit_tensor(folder, SCALE, lambda *_: None)
    edit_index(folder, lambda files: files.pop(SCALE))
    return SCALE, "it is missing"


def extra(folder):
    shard = port_files.shard_of(folder, SCALE)
    port_files.edit(shard, lambda tensors: tensors.update({"model.decoder.spare": ("BF16", [2], bytes(4))}))
    edit_index(folder, lambda files: files.update({"model.decoder.spare": shard.name}))
    return "model.decoder.spare", "no part of the model uses it"


def extra_and_not_in_the_index(folder):
    shard = port_files.shard_of(folder, SCALE)
    port_files.edit(shard, lambda tensors: tensors.update({"model.decoder.spare": ("BF16", [2], bytes(4))}))
    return "model.decoder.spare", "not listed there"


def wrong_shape(folder):
    edit_tensor(folder, SCALE, lambda dtype, shape, data: (dtype, [2, shape[0] // 2], data))
    return SCALE, "as config.json demands"


def wrong_dtype(folder):
    edit_tensor(folder, SCALE, lambda _dtype, shape, data: ("F16", shape, data))
    return SCALE, "it is F16"


def truncated_shard(folder):
    shard = folder / port_files.SHARDS[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    return shard.name, "truncated"


def empty_shard(folder):
    shard = folder / port_files.SHARDS[0]
    shard.write_bytes(b"")
    return shard.name, "cannot be opened"


def missing_shard(folder):
    (folder / port_files.SHARDS[0]).unlink()
    return port_files.SHARDS[0], "cannot be opened"


def index_climbs_out(folder):
    outside = folder.parent / port_files.SHARDS[0]
    outside.write_bytes((folder / port_files.SHARDS[0]).read_bytes())
    edit_index(folder, lambda files: files.update({SCALE: f"../{outside.name}"}))
    return SCALE, f"'../{port_files.SHARDS[0]}'"


def index_points_elsewhere(folder):
    edit_index(folder, lambda files: files.update({SCALE: "/etc/model.safetensors"}))
    return SCALE, "'/etc/model.safetensors'"


def index_is_no_index(folder):
    (folder / port_files.INDEX).write_text("[]")
    return port_files.INDEX, "it cannot be read"


def unknown_config_key(folder):
    port_files.edit_json(folder / "config.json", lambda config: config["text_config"].update(shared_experts=2))
    return "config.json", "text_config has the unknown key shared_experts"


def wrong_model_type(folder):
    port_files.edit_json(folder / "config.json", lambda config: config.update(model_type="gemma4"))
    return "config.json", "model_type is 'gemma4'"


def broken_config(folder):
    (folder / "config.json").write_text("{")
    return "config.json", "it cannot be read"


def missing_config(folder):
    (folder / "config.json").unlink()
    return "config.json", "it cannot be read"


def nan_weights(folder):
    edit_tensor(folder, NORM, lambda dtype, shape, data: (dtype, shape, data[:4] + b"\xc0\x7f" + data[6:]))
    return NORM, "1 of 192 values are NaN or infinite, the first at [2]"


def infinite_scales(folder):
    name = "model.decoder.layers.3.mlp.up_proj.scales"
    edit_tensor(folder, name, lambda dtype, shape, data: (dtype, shape, b"\x80\x7f" + data[2:]))
    return name, "NaN or infinite"


BROKEN = [
    missing_from_its_shard,
    missing_everywhere,
    extra,
    extra_and_not_in_the_index,
    wrong_shape,
    wrong_dtype,
    truncated_shard,
    empty_shard,
    missing_shard,
    index_climbs_out,
    index_points_elsewhere,
    index_is_no_index,
    unknown_config_key,
    wrong_model_type,
    broken_config,
    missing_config,
    nan_weights,
    infinite_scales,
]


@pytest.fixture
def call(monkeypatch, tmp_path):
    return harness(monkeypatch, tmp_path / "cache")


def refused(call, folder: Path, *names: str) -> None:
    said = call(*QUESTION, "--checkpoint", folder, "--json")
    assert said.code == 4, said
    assert said.document["error"] == said.error
    assert said.document["verdicts"] == []
    for name in (str(folder), *names):
        assert name in said.error
    assert "Traceback" not in said.out + said.err
    assert "LOCKSTEP_TRACEBACK" not in said.error  # the error was expected, not stumbled upon


@pytest.mark.parametrize("damage", BROKEN, ids=lambda damage: damage.__name__)
def test_a_broken_checkpoint_is_one_clear_error(call, tmp_path, damage):
    folder = port_files.copy(tmp_path)
    refused(call, folder, *damage(folder))


def test_what_is_no_checkpoint_at_all(call, tmp_path):
    refused(call, tmp_path / "nowhere", "missing")
    (tmp_path / "empty").mkdir()
    refused(call, tmp_path / "empty")
    (tmp_path / "file").write_text("text")
    refused(call, tmp_path / "file")
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "config.json").write_text(json.dumps({"model_type": "diffusion_gemma"}))
    refused(call, tmp_path / "words", "lacks the key text_config")


def test_without_json_the_error_is_the_one_line_there_is(call, tmp_path):
    folder = port_files.copy(tmp_path)
    wrong_model_type(folder)
    said = call(*QUESTION, "--checkpoint", folder)
    assert said.code == 4
    assert said.out == ""
    assert re.search(r"model_type is 'gemma4'\. Expected: 'diffusion_gemma'\. To mend it: ", said.error)


def test_the_same_checkpoint_elsewhere_is_judged_as_ever(call, tmp_path):
    folder = port_files.copy(tmp_path)
    said = call(*QUESTION, "--checkpoint", folder, "--json")
    assert said.code == 0
    assert said.document["summary"]["PASS"] == len(said.document["verdicts"]) > 0
