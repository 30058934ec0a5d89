"""Recording: a cut that does not do what the oracle's run did stops it, and what is written can be made again."""

import importlib
import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from harness import harness

from goldens import canary
from goldens.store import Golden
from stages import dump
from stages.cases import plan
from stages.cli import table_of
from stages.dump import Recorder, ReplayError, Tap, wanted
from stages.errors import HarnessError, UsageError
from stages.gates import bits
from stages.places import COMMITTED, checkpoint_path, golden_path

TABLE = table_of("diffusion_gemma")
CASES = {case.name: case for case in TABLE.cases}
CONFIG = json.loads((checkpoint_path("nano") / "config.json").read_text())
CUTS = importlib.import_module("oracle.diffusion_gemma.cuts")
TAPS = importlib.import_module("oracle.diffusion_gemma.taps")
# The public door to these is their cut: there is no other run that could disagree with it.
DIRECT = {"config", "weights", "tokenize", "chat_template", "image_preprocess", "image_splice", "generate_image"}


@pytest.fixture
def no_port(monkeypatch):
    """Other tests of this process have imported the port; a recorder must not have."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "port"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture(scope="module")
def recorder():
    return Recorder(TABLE)


@pytest.fixture(scope="module")
def run(recorder):
    """The borders of ordinary runs of the oracle: a short prompt, a picture, and small generations."""
    model = recorder.model(checkpoint_path("nano"), "float32")
    tower = model.model.model.encoder.vision_tower
    taps: list[Tap] = []
    with pytest.MonkeyPatch.context() as patch:
        # Room for this one picture only: the tower computes all of its room.
        for holder, name, value in (
            (tower, "max_patches", 72),
            (tower, "default_output_length", 8),
            (tower.pooler, "default_output_length", 8),
        ):
            patch.setattr(holder, name, value)
        for case in ("short", "image", "confidence", "converging"):
            TAPS.run(model, plan(CASES[case], CONFIG), lambda *crossing: taps.append(Tap(*crossing)))
        yield model, taps


def flipped(tensor):
    changed = np.ascontiguousarray(tensor).copy()
    changed.reshape(-1).view(np.uint8)[0] ^= 1
    return changed


# A wrong cut


@pytest.mark.parametrize("stage", [stage.name for stage in TABLE.stages if stage.name not in DIRECT])
def test_a_cut_that_is_one_bit_off_its_tap_is_noticed(run, monkeypatch, stage):
    model, taps = run
    plain = getattr(CUTS, stage)
    tap = next(tap for tap in taps if tap.stage == stage and all(x.size for x in tap.outs.values()))
    dump._replay(TABLE, CUTS, model, tap)
    for name in tap.outs:

        def wrong(*arguments, name=name, **takes):
            gives = plain(*arguments, **takes)
            return gives | {name: flipped(gives[name])}

        monkeypatch.setattr(CUTS, stage, wrong)
        with pytest.raises(ReplayError, match=rf"{stage}\[{tap.occurrence}\] does not reproduce '{name}'"):
            dump._replay(TABLE, CUTS, model, tap)


@pytest.mark.parametrize(
    "change",
    [
        lambda _: {},
        lambda gives: gives | {"more": gives["h"]},
        lambda gives: {"h": gives["h"].astype(np.float64)},
        lambda gives: {"h": gives["h"][None]},
    ],
    ids=["missing", "extra", "dtype", "shape"],
)
def test_a_cut_that_gives_something_else_is_noticed(run, monkeypatch, change):
    model, taps = run
    plain = CUTS.mlp
    monkeypatch.setattr(CUTS, "mlp", lambda *arguments, **takes: change(plain(*arguments, **takes)))
    with pytest.raises(ReplayError, match=r"mlp\[encoder/layer=0\]"):
        dump._replay(TABLE, CUTS, model, next(tap for tap in taps if tap.stage == "mlp"))


def test_a_wrong_cut_writes_nothing(recorder, monkeypatch, tmp_path, no_port):
    plain = CUTS.rope
    monkeypatch.setattr(CUTS, "rope", lambda *arguments, **takes: {"x": flipped(plain(*arguments, **takes)["x"])})
    before = golden_path(tmp_path, TABLE.model, "short", "float32")
    before.write_text("what was there")
    with pytest.raises(ReplayError, match="nothing was written"):
        recorder.record(CASES["short"], "float32", tmp_path, full=False)
    assert [path.name for path in tmp_path.iterdir()] == [before.name]
    assert before.read_text() == "what was there"


def test_a_tap_that_the_table_does_not_know_is_refused(run):
    _, taps = run
    embed = next(tap for tap in taps if tap.stage == "embed")
    for wrong in (
        replace(embed, outs=embed.outs | {"more": embed.outs["h"]}),
        replace(embed, outs={}),
        replace(embed, ins={}),
        replace(embed, ins={"ids": embed.ins["ids"][0]}),
    ):
        with pytest.raises(HarnessError, match=r"embed\[encoder\]"):
            dump._check_covered(TABLE, [*taps, wrong])
    dump._check_covered(TABLE, taps)


def test_a_recorder_that_imported_the_port_is_refused(recorder, monkeypatch, tmp_path):
    importlib.import_module("port.diffusion_gemma.cuts")
    said = harness(monkeypatch, tmp_path)("dump", "--case", "experts", "--compute", "float32", "--out", tmp_path)
    assert said.code == 3
    assert "port" in said.error
    assert not list(tmp_path.glob("*.h5"))


# Recording again


@pytest.mark.parametrize(("case", "compute"), [("experts", "float32"), ("text", "bfloat16")])
def test_recording_again_gives_the_same_payload(recorder, no_port, tmp_path, case, compute):
    path = recorder.record(CASES[case], compute, tmp_path, full=False)
    with Golden.open(path) as golden:
        again, facts = golden.payload(), golden.manifest
        foreign = canary.differing(facts["canary"], canary.canary())
    assert not foreign
    with Golden.open(golden_path(COMMITTED, TABLE.model, case, compute)) as golden:
        committed, recorded = golden.payload(), golden.manifest
    for same in ("schema", "model", "case", "compute", "seed", "kept", "checkpoint", "oracle"):
        assert facts[same] == recorded[same]
    if canary.differing(recorded["canary"], facts["canary"]):  # another backend: its bits are its own, and repeat
        path.unlink()
        with Golden.open(recorder.record(CASES[case], compute, tmp_path, full=False)) as golden:
            committed = golden.payload()
    assert again == committed


def test_checking_compares_and_writes_nothing(recorder, monkeypatch, no_port, tmp_path):
    call = harness(monkeypatch, tmp_path / "cache")
    monkeypatch.setattr(dump, "Recorder", lambda *_: recorder)  # the oracle is loaded by now
    path = tmp_path / "diffusion_gemma.experts.float32.h5"
    arguments = ("dump", "--case", "experts", "--compute", "float32", "--out", tmp_path)
    assert call(*arguments).code == 0
    recorded = path.read_bytes()
    assert "every byte of payload is the same" in call(*arguments, "--check").out
    other = CASES["experts"]
    monkeypatch.setattr("stages.dump.plan", lambda _case, config: plan(replace(other, seed=11), config))
    said = call(*arguments, "--check")
    assert said.code == 3
    assert "moe/direct/layer=2/assignments=63/in/x" in said.error
    assert path.read_bytes() == recorded
    path.unlink()
    said = call(*arguments, "--check")
    assert said.code == 3
    assert f"{path.name} is not there" in said.error


def test_asking_for_what_is_never_recorded_is_not_success(monkeypatch, tmp_path):
    call = harness(monkeypatch, tmp_path)
    for command in (("dump",), ("dump", "--check"), ("run",)):
        said = call(*command, "--case", "text", "--compute", "float32")
        assert said.code == 2
        assert "text" in said.error
        assert "float32" in said.error


def test_wanted_names_cases_in_table_order():
    every = [(case.name, compute) for case, compute in wanted(TABLE, (), ())]
    assert every == [(case.name, compute) for case in TABLE.cases for compute in case.computes]
    found = [(case.name, compute) for case, compute in wanted(TABLE, ("long", "text"), ())]
    assert found == [("text", "bfloat16"), ("long", "bfloat16"), ("long", "float32")]
    assert [case.name for case, _ in wanted(TABLE, ("long", "text"), ("float32",))] == ["long"]
    with pytest.raises(UsageError, match="text"):
        list(wanted(TABLE, ("text",), ("float32",)))


def test_a_yardstick_keeps_four_significant_bits():
    draws = np.random.default_rng(0)
    delta = draws.standard_normal(1000) * 10.0 ** draws.integers(-30, 3, 1000)
    kept = dump._four_bits(delta)
    assert np.abs(kept - delta).max() <= (np.abs(delta) / 16).max()
    assert (np.abs(kept - delta) <= np.abs(delta) / 16).all()
    assert (dump._four_bits(kept) == kept).all()
    mantissas = np.frexp(kept)[0] * 16
    assert (mantissas == np.round(mantissas)).all()
    assert not dump._four_bits(np.zeros(3)).any()


# The plan


def leaves(value, path=""):
    """(path, leaf) of every leaf in a plan."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [leaf for key, item in enumerate(value) for leaf in leaves(item, f"{path}.{key}")]
    return [(path, value)]


def same(one, other):
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(
        a == b and (type(x) is type(y)) and (np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y)
        for (a, x), (b, y) in pairs
    )


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_made_of_its_case_alone(name):
    case = CASES[name]
    first = plan(case, CONFIG)
    np.random.seed(5)  # the state that a plan must not look at
    assert same(first, plan(case, CONFIG))
    assert same(first, plan(replace(case, why="", keep=(), leave=(), computes=()), CONFIG))
    if case.tokens or case.assignments:
        assert not same(first, plan(replace(case, seed=case.seed + 100), CONFIG))


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_what_its_case_says(name):
    case, text = CASES[name], CONFIG["text_config"]
    made = plan(case, CONFIG)
    if case.tokens:
        assert made["ids"].shape == (1, case.tokens)
        assert made["ids"].dtype == np.int32
        assert made["ids"][0, case.padding] == text["bos_token_id"]
        assert 0 <= made["ids"].min() <= made["ids"].max() < text["vocab_size"]
    if case.padding:
        assert made["padding"].tolist() == [[False] * case.padding + [True] * (case.tokens - case.padding)]
        assert set(made["ids"][0, : case.padding].tolist()) == {text["pad_token_id"]}
    assert (made["chunks"] or []) == list(case.chunks)
    assert [[step["signal"] for step in canvas["steps"]] for canvas in made["canvases"]] == list(map(list, case.blocks))
    for canvas in made["canvases"]:
        assert all(step["ids"].shape == (1, case.canvas) for step in canvas["steps"])
        assert canvas["finished"].shape == (1, case.canvas)
    for direct, pairs in zip(made["direct_moe"], case.assignments, strict=True):
        assert direct["experts"].size == direct["assignments"] == pairs
        assert all(len(set(row)) == len(row) for row in direct["experts"].tolist())
        assert direct["x"].shape == (len(direct["experts"]), text["hidden_size"])
        assert (direct["weights"] > 0).all()
        for floats in (direct["x"], direct["weights"]):  # the same number in either compute dtype
            assert (floats == floats.astype("float32")).all()


def test_chunks_and_whole_are_one_prompt():
    assert np.array_equal(plan(CASES["chunks"], CONFIG)["ids"], plan(CASES["whole"], CONFIG)["ids"])


# What is committed


@pytest.mark.parametrize(("case", "compute"), [(c.name, d) for c, d in wanted(TABLE, (), ())])
def test_a_committed_golden_is_of_the_plan(case, compute):  # noqa: C901, PLR0912 -- one short branch a kind of case
    made = plan(CASES[case], CONFIG)
    with Golden.open(golden_path(COMMITTED, TABLE.model, case, compute)) as golden:
        assert golden.manifest["compute"] == compute
        if case == "text":
            texts = [golden.read("tokenize", f"text={i}").ins["text"] for i in range(len(made["texts"]))]
            assert [text.tobytes().decode() for text in texts] == made["texts"]
        elif case == "templates":
            chats = [golden.read("chat_template", f"chat={i}").ins["messages"] for i in range(len(made["chats"]))]
            assert [json.loads(chat.tobytes()) for chat in chats] == made["chats"]
        elif case == "behind":  # of a full layer's attention alone
            assert golden.occurrences("attention") == [f"encoder/chunk={i}/layer=5" for i in range(2)]
        elif case == "experts":
            for direct in made["direct_moe"]:
                ins = golden.read("moe", f"direct/layer=2/assignments={direct['assignments']}").ins
                assert np.array_equal(ins["experts"], direct["experts"])
                assert str(ins["x"].dtype) == compute
        elif CASES[case].made:
            stages = {one["stage"] for one in made["made"]}
            assert {stage: len(golden.occurrences(stage)) for stage in stages} == Counter(
                one["stage"] for one in made["made"]
            )
        elif CASES[case].generations:
            for one in made["generations"]:
                stage = "generate_image" if one["pictures"] else "generate"
                ins = golden.read(stage, f"{one['prefix']}whole").ins
                assert json.loads(ins["options"].tobytes()) == one["options"]
                assert int(ins["seed"]) == one["seed"]
                assert one["ids"] is None or np.array_equal(ins["ids"], one["ids"])
        elif case == "overlay":
            for i, direct in enumerate(made["direct_masks"]):
                ins = golden.read("image_masks", f"direct={i}").ins
                assert all(np.array_equal(ins[name], value) for name, value in direct.items())
        elif made["pictures"]:
            for i, picture in enumerate(made["pictures"]):
                ins = golden.read("image_preprocess", f"image={i}").ins
                assert all(np.array_equal(ins[name], value) for name, value in picture.items())
            assert golden.read("image_splice", "prompt").ins["text"].tobytes().decode() == made["question"]
        else:
            parts = [o for o in golden.occurrences("encoder") if not o.startswith("canvas")]
            ids = [golden.read("encoder", occurrence).ins["ids"] for occurrence in parts]
            assert np.array_equal(np.concatenate(ids, axis=1), made["ids"])
            padding = golden.read("encoder", parts[0]).ins["padding"]
            assert np.array_equal(padding, made["padding"] if CASES[case].padding else np.zeros(0, bool))
            assert len(golden.occurrences("decoder")) == sum(map(len, CASES[case].blocks))


def test_every_stage_is_recorded_in_every_compute_dtype():
    recorded = {compute: set() for compute in ("bfloat16", "float32")}
    for case, compute in wanted(TABLE, (), ()):
        with Golden.open(golden_path(COMMITTED, TABLE.model, case.name, compute)) as golden:
            recorded[compute].update(golden.stages())
    assert recorded["bfloat16"] == {stage.name for stage in TABLE.stages}
    assert recorded["bfloat16"] - recorded["float32"] == {"tokenize", "chat_template"}  # which have no compute dtype


def test_equal_tensors_have_equal_bits():
    tensor = np.array([[1.0, -0.0], [np.nan, 3.0]], np.float32)
    assert np.array_equal(bits(tensor), bits(tensor.copy()))
    assert not np.array_equal(bits(tensor), bits(flipped(tensor)))
