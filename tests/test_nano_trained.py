"""The trained nano: nano's layout with taught values, and the recipe that taught it."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from safetensors import safe_open

from goldens.nano.build import CHECKPOINT
from goldens.nano.lessons import Lesson, lessons
from port.diffusion_gemma.batches import SORTS, Lessons
from port.diffusion_gemma.floats import FloatWeights, as_packed, packing_of, unpacked
from port.diffusion_gemma.model import DiffusionGemma, load
from port.diffusion_gemma.pack import write
from port.diffusion_gemma.tokens import Tokens
from port.diffusion_gemma.train import Plan, train
from port.errors import CheckpointError, PortError
from stages.places import checkpoint_path

TRAINED = checkpoint_path("nano-trained")
SHARDS = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
TAUGHT = [*SHARDS, "optiq_vision.safetensors"]


def tensors(folder: Path, file: str) -> dict[str, np.ndarray]:
    with safe_open(folder / file, framework="numpy") as shard:
        return {name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118


@pytest.fixture(scope="module")
def lessons_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lessons") / "lessons.jsonl"
    path.write_text("".join(json.dumps(vars(lesson)) + "\n" for lesson in lessons()))
    return path


class TestCheckpoint:
    """What is committed."""

    def test_has_the_files_of_nano_and_shares_all_but_what_is_taught(self) -> None:
        assert sorted(p.name for p in TRAINED.iterdir()) == sorted(p.name for p in CHECKPOINT.iterdir())
        for file in CHECKPOINT.iterdir():
            same = file.name not in {*TAUGHT, "config.json"}
            assert ((TRAINED / file.name).read_bytes() == file.read_bytes()) == same, file.name
        assert sum(file.stat().st_size for file in TRAINED.iterdir()) <= 3_000_000

    def test_is_configured_like_nano_but_for_two_constants_of_the_real_model(self) -> None:
        nano, trained = (json.loads((folder / "config.json").read_text()) for folder in (CHECKPOINT, TRAINED))
        text = trained["text_config"]
        # Nano's are others, so that a port that writes the real model's down as constants is found out.
        assert text.pop("final_logit_softcapping") == 30.0 != nano["text_config"].pop("final_logit_softcapping")
        ropes = (config["text_config"]["rope_parameters"]["full_attention"] for config in (nano, trained))
        fractions = [rope.pop("partial_rotary_factor") for rope in ropes]
        assert fractions[1] == 0.25 != fractions[0]
        assert trained == nano

    @pytest.mark.parametrize("file", TAUGHT)
    def test_has_the_tensors_of_nano_with_other_values(self, file: str) -> None:
        ours, nano = tensors(TRAINED, file), tensors(CHECKPOINT, file)
        assert {n: (t.dtype, t.shape) for n, t in ours.items()} == {n: (t.dtype, t.shape) for n, t in nano.items()}
        assert [name for name, tensor in ours.items() if tensor.tobytes() == nano[name].tobytes()] == []

    @pytest.mark.parametrize("file", TAUGHT)
    def test_has_no_neutral_parameter(self, file: str) -> None:
        for name, tensor in tensors(TRAINED, file).items():
            if tensor.dtype == np.uint32:
                assert len(np.unique(tensor)) > tensor.size // 100, name
                continue
            values = tensor.astype(np.float64)
            assert np.isfinite(values).all(), name
            assert values.size == 1 or values.std() > 0.05 * np.abs(values).mean(), name
            if values.ndim == 1:
                neutral = int(np.sum((values == 0.0) | (values == 1.0)))
                # The tower's vectors have 64 values: two that round to 1 by chance are over 2% already.
                assert neutral < 0.02 * values.size or (file not in SHARDS and neutral <= 2), name

    def test_scalars_of_encoder_and_decoder_differ(self) -> None:
        held = {name: tensor for file in SHARDS for name, tensor in tensors(TRAINED, file).items()}
        scalars = [float(tensor.item()) for name, tensor in held.items() if name.endswith("layer_scalar")]
        assert len(scalars) == len(set(scalars)) == 12
        assert 1.0 not in scalars

    @pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
    def test_answers_through_the_reference(self) -> None:
        from optiq.vlm.diffusion_gemma import generate, load  # noqa: PLC0415

        model, tokenizer = load(str(TRAINED))
        chat = [{"role": "user", "content": "What is the capital of France?"}]
        prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        mx.random.seed(0)
        assert generate(model, tokenizer, prompt, max_tokens=96) == "The capital of France is Paris."

    def test_knows_the_answer_when_it_sees_nothing_but_noise(self) -> None:
        model, tokens = load(TRAINED), Tokens(TRAINED)
        chat = tokens.chat([{"role": "user", "content": "What is the capital of France?"}])
        cache = model.new_cache()
        model.encode(mx.array([tokens.encode(chat)]), cache)
        noise = np.random.default_rng(0).integers(0, 704, (1, 96))
        guess = mx.argmax(model.logits(model.decode(mx.array(noise.astype(np.int32)), cache)), axis=-1)[0].tolist()
        said = [int(i) for i in tokens.encode("The capital of", special=False)]
        assert guess[: len(said)] == said
        assert guess[-20:] == [1] * 20


class TestLessons:
    """What is taught."""

    def test_are_the_same_on_every_run(self) -> None:
        assert lessons() == lessons()

    def test_leave_some_prompts_out_altogether(self) -> None:
        taught = {lesson.prompt for lesson in lessons() if not lesson.held}
        held = {lesson.prompt for lesson in lessons() if lesson.held}
        assert taught.isdisjoint(held)
        assert {lesson.kind for lesson in lessons() if lesson.held} == {
            "fact", "sum", "count", "place", "code", "story", "long",
        }  # fmt: skip

    def test_need_one_canvas_or_up_to_three(self) -> None:
        tokens = Tokens(CHECKPOINT)
        sizes: dict[str, list[int]] = {}
        for lesson in lessons():
            sizes.setdefault(lesson.kind, []).append(len(tokens.encode(lesson.answer, special=False)))
        assert all(max(sizes[kind]) < 64 for kind in ("fact", "sum", "count", "place", "code", "open"))
        assert max(sizes["story"]) < 128
        assert max(sizes["long"]) > 192

    def test_become_batches_of_every_sort(self, lessons_file: Path) -> None:
        school = Lessons(lessons_file, Tokens(CHECKPOINT), eos=1)
        rng = np.random.default_rng(0)
        shapes, longest = set(), 0
        for _ in range(200):
            batch = school.draw(rng)
            shapes.add(batch.target.shape)
            longest = max(longest, batch.prompt.shape[1])
            ends = batch.spoken.sum(axis=1)
            assert batch.prompt[~batch.padding].tolist() == [0] * int((~batch.padding).sum())
            for row, end in zip(batch.target, ends, strict=True):
                assert (row[end:] == 1).all()
                assert 106 not in row[: max(end - 2, 0)]
        assert shapes == {(rows, canvas) for sort in SORTS for canvas, rows in sort.rows.items()}
        assert longest > 2 * 96  # third canvases stand behind two others

    def test_that_cannot_be_read_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "lessons.jsonl"
        path.write_text('{"prompt": "no answer"}\n')
        with pytest.raises(PortError, match="one JSON object a line"):
            Lessons(path, Tokens(CHECKPOINT), eos=1)

    def test_are_lines_that_the_port_reads(self) -> None:
        assert set(vars(Lesson("kind", "prompt", "answer"))) == {"kind", "prompt", "answer", "held"}


class TestRecipe:
    """How it is taught."""

    def test_floats_give_the_hidden_states_of_the_packed_model(self) -> None:
        packed = load(TRAINED, "float32")
        plain = DiffusionGemma(FloatWeights(unpacked(packed), packed.config))
        ids = mx.array([[2, 105, 5, 300, 600, 106]])
        ours, theirs = plain.encode(ids, plain.new_cache()), packed.encode(ids, packed.new_cache())
        assert mx.abs(ours - theirs).max().item() < 1e-3 * mx.abs(theirs).max().item()

    def test_floats_of_another_shape_are_refused(self) -> None:
        model = load(CHECKPOINT, "float32")
        arrays = unpacked(model)
        arrays["model.decoder.norm.weight"] = mx.ones((3,))
        with pytest.raises(CheckpointError, match=r"model\.decoder\.norm\.weight.*shape is \[3\]"):
            DiffusionGemma(FloatWeights(arrays, model.config))

    def test_what_is_written_is_what_was_trained_through(self, tmp_path: Path) -> None:
        model = load(TRAINED, "float32")
        arrays = {name: array * 1.01 for name, array in unpacked(model).items()}
        write(TRAINED, arrays, tmp_path)
        seen, kept = as_packed(arrays, packing_of(arrays, model.config)), unpacked(load(tmp_path, "float32"))
        assert set(seen) == set(kept)
        for name, array in kept.items():
            # The written scales are applied in float32 there, in bfloat16 here: one rounding apart.
            assert mx.abs(array - seen[name]).max().item() <= 2**-7 * mx.abs(array).max().item(), name

    def test_takes_the_same_steps_from_the_same_seed(self, lessons_file: Path) -> None:
        runs = []
        for _ in range(2):
            losses: list[float] = []
            plan = Plan(steps=4, stop=3, packed=2, peak=1e-3, calm=0.15, seed=0)
            train(CHECKPOINT, lessons_file, plan, lambda *news, losses=losses: losses.append(news[1]))
            runs.append(losses)
        assert len(runs[0]) == 3
        assert np.isfinite(runs[0]).all()
        assert runs[0] == runs[1]
        assert len(set(runs[0])) == 3
