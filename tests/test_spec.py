"""The table is what it says: ordered, without loose ends, and cut on both sides exactly as declared."""

import importlib
import inspect

import pytest

from stages.cli import table_of
from stages.gates import Exact, Within
from stages.places import MODELS
from stages.spec import Case, Out, Stage, Table

LOOSE = Within(2, because="test")
ISSUE = (
    "config weights tokenize chat_template image_preprocess image_splice patch_embed vision_layer vision_tower "
    "vision_project embed merge_vision rope attention mlp router select_experts moe layer encoder_masks image_masks "
    "kv_cache encoder image_encoder decoder_masks soft_embeddings self_conditioning decoder logits "
    "temperature token_confidence token_entropy accept_confidence accept_entropy renoise stopping sampler_step "
    "denoise_canvas generate generate_image"
)
GEMMA = table_of("diffusion_gemma")
# Oracles in another framework are held to the same in tests/torch, where that framework is.
SIDES = [(side, model) for model in MODELS for side in ("port", "oracle")
         if side == "port" or importlib.import_module(f"oracle.{model}").FRAMEWORK == "mlx"]  # fmt: skip
CUT = [(side, model, stage) for side, model in SIDES for stage in table_of(model).stages]
OUTS = [(model, stage.name, name, out) for model in MODELS for stage in table_of(model).stages
        for name, out in stage.gives.items()]  # fmt: skip


def stage(name: str, *after: str) -> Stage:
    return Stage(name, {"x": "T"}, {"h": Out("T", portable=LOOSE)}, after=after)


def table(*stages: Stage, cases: tuple[Case, ...] = ()) -> Table:
    return Table("made_up", stages, cases)


# The grammar


def test_a_stage_waits_only_for_what_stands_before_it():
    table(stage("one"), stage("two", "one"))
    with pytest.raises(ValueError, match="'one' waits for 'two', which does not stand before it"):
        table(stage("one", "two"), stage("two"))


def test_a_stage_does_not_wait_for_one_that_nobody_knows_nor_for_itself():
    with pytest.raises(ValueError, match="'one' waits for 'zero'"):
        table(stage("one", "zero"))
    with pytest.raises(ValueError, match="'one' waits for 'one'"):
        table(stage("one", "one"))


def test_a_name_stands_once():
    with pytest.raises(ValueError, match="stage 'one' stands twice in the table of made_up"):
        table(stage("one"), stage("two"), stage("one"))
    with pytest.raises(ValueError, match="case 'short' stands twice in the table of made_up"):
        table(stage("one"), cases=(Case("short", "why"), Case("long", "why"), Case("short", "why")))


def test_closure_is_everything_waited_for_in_table_order():
    made = table(stage("a"), stage("b", "a"), stage("c"), stage("d", "b"), stage("e", "c", "d"))
    assert made.closure(["d"]) == ["a", "b", "d"]
    assert made.closure(["c", "b"]) == ["a", "b", "c"]
    assert made.closure(["e"]) == ["a", "b", "c", "d", "e"]
    assert made.closure(["a"]) == ["a"]
    assert made.closure([]) == []


def test_an_output_of_every_layer_is_declared_once():
    family = Stage("encoder", {}, {"h": Out("T", portable=LOOSE), "keys.*": Out("S", portable=LOOSE)})
    assert family.out("keys.0") is family.out("keys.11") is family.gives["keys.*"]
    assert family.out("h") is family.gives["h"]
    for unknown in ("keys", "h.0", "values.0", "x", ""):
        assert family.out(unknown) is None


def test_the_tier_chooses_the_gate():
    out = Out("T", portable=LOOSE)
    assert out.gate("exact") == Exact()
    assert out.gate("portable") is LOOSE


ROW = Stage("a", {"x": "T D", "past.*": "S"}, {"h": Out("T", portable=LOOSE)})
TAKEN = {"x": ("float32", (3, 4)), "past.0": ("float32", (2,)), "past.1": ("float32", (5,))}
GIVEN = {"h": ("float32", (3,))}


def test_a_recording_like_the_row_is_like_it():
    assert not ROW.unlike(TAKEN, GIVEN)
    assert not ROW.unlike(TAKEN | {"x": ("float32", (0,))}, GIVEN)  # absent


@pytest.mark.parametrize(
    ("ins", "outs", "named"),
    [
        ({"past.0": TAKEN["past.0"]}, GIVEN, "'x'"),
        (TAKEN | {"y": ("float32", (1,))}, GIVEN, "'y'"),
        (TAKEN, {}, "'h'"),
        (TAKEN, GIVEN | {"g": ("float32", (1,))}, "'g'"),
        (TAKEN | {"x": ("float32", (3, 4, 5))}, GIVEN, "x with 3 axes"),
        (TAKEN | {"past.1": ("float32", (5, 1))}, GIVEN, "past.1 with 2 axes"),
        (TAKEN, {"h": ("float32", ())}, "h with 0 axes"),
    ],
)
def test_a_recording_unlike_the_row_is_named(ins, outs, named):
    assert named in ROW.unlike(ins, outs)


# The tables there are


def test_the_stages_are_those_of_a_forward_pass_and_the_engine_in_order():
    assert [stage.name for stage in GEMMA.stages] == ISSUE.split()


@pytest.mark.parametrize(("side", "model", "stage"), CUT, ids=lambda value: getattr(value, "name", value))
def test_both_sides_cut_exactly_the_table(side, model, stage):
    cut = getattr(importlib.import_module(f"{side}.{model}.cuts"), stage.name)
    parameters = list(inspect.signature(cut).parameters.values())
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters[:2])
    assert parameters[1].name == "at"
    assert all(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters[2:])
    assert [p.name for p in parameters[2:]] == [name.removesuffix(".*") for name in stage.takes]


@pytest.mark.parametrize(("side", "model"), SIDES)
def test_each_side_can_be_loaded_and_tapped_by_the_same_call(side, model):
    load = importlib.import_module(f"{side}.{model}.cuts").load
    run = importlib.import_module(f"{side}.{model}.taps").run
    assert list(inspect.signature(load).parameters) == ["checkpoint", "compute"]
    assert list(inspect.signature(run).parameters)[1:] == ["plan", "emit"]


@pytest.mark.parametrize(("model", "stage", "name", "out"), OUTS, ids=lambda v: "" if isinstance(v, Out) else str(v))
def test_every_gate_has_a_reason_and_every_exact_tier_is_exact(model, stage, name, out):
    assert isinstance(out.exact, Exact)
    for gate in (out.exact, out.portable):
        assert len(gate.because.split()) > 3
        assert gate.bound >= 0
    if out.label:
        assert out.label in table_of(model)[stage].gives


def test_a_case_is_called_by_one_name_whatever_the_model():
    names = [case.name for model in MODELS for case in table_of(model).cases]
    assert len(set(names)) == len(names)


def test_only_an_oracle_of_the_ports_framework_can_be_equal_bit_for_bit():
    for model in MODELS:
        assert table_of(model).exact == (importlib.import_module(f"oracle.{model}").FRAMEWORK == "mlx")


@pytest.mark.parametrize("model", MODELS)
def test_every_case_says_what_only_it_can_see(model):
    cases = table_of(model).cases
    assert all(case.why for case in cases)
    assert len({case.why for case in cases}) == len(cases)
    stages = {stage.name for stage in table_of(model).stages}
    assert all(set(case.leave) <= stages for case in cases)
    assert all(sum(case.chunks) == case.tokens for case in cases if case.chunks)
