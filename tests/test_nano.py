"""The nano checkpoint: the same bytes every time, and able to see what it was made to see."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from goldens.nano import architecture as arch
from goldens.nano.build import CHECKPOINT, INLINE_DIGEST, build, digest, write

ROOT = Path(__file__).parent.parent
TEXTS = [
    "",
    "hello",
    " hello",
    "two  spaces and a trailing one ",
    "\n",
    "a\n\n\n\tb\r\n",
    "The capital of France is Paris.",
    "def f(x):\n    return x ** 2\n",
    "émigré naïve Zürich e\u0301",
    "日本語 テスト مرحبا",
    "😀👩\u200d👩\u200d👧",
    "<bos>twice",
    "<|turn>user\nhi<turn|>\n<|turn>model\n<|channel>thought\n<channel|>",
    "x<|image|>y<|image><image|><|video|><|audio|><mask><pad><eos><unk>",
    "<|tool_call>{}<tool_call|>",
    "<0x41> \x00\x01",
    " " * 7 + "a" * 50,
]


def tensors(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of a checkpoint folder, the sidecar's under the model's own names."""
    found: dict[str, np.ndarray] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as shard:
            prefix = "model.encoder." if file.name.startswith("optiq") else ""
            found |= {prefix + name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118
    return found


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inline")
    write("inline", folder)
    return folder


@pytest.fixture(scope="module")
def loaded():
    """The reference's model and tokenizer of the committed checkpoint."""
    from optiq.vlm.diffusion_gemma import load  # noqa: PLC0415

    return load(str(CHECKPOINT))


@pytest.fixture(scope="module")
def config() -> dict:
    return json.loads((CHECKPOINT / "config.json").read_text())


def test_the_command_rebuilds_the_committed_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "goldens.nano", str(tmp_path)], check=True, cwd=ROOT, capture_output=True)
    committed = {file.name: file.read_bytes() for file in CHECKPOINT.iterdir()}
    rebuilt = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert sorted(rebuilt) == sorted(committed)
    assert [name for name in committed if rebuilt[name] != committed[name]] == []


def test_the_committed_checkpoint_is_small() -> None:
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) <= 3_000_000


def test_the_inline_variant_has_the_digest_that_was_written_down() -> None:
    assert INLINE_DIGEST.read_text() == digest(build("inline")) + "\n"


def test_the_index_lists_every_tensor_of_every_shard_and_nothing_else() -> None:
    index = json.loads((CHECKPOINT / "model.safetensors.index.json").read_text())
    held = {}
    for file in sorted(CHECKPOINT.glob("model-*.safetensors")):
        with safe_open(file, framework="numpy") as shard:
            assert shard.metadata() == {"format": "mlx"}
            held |= dict.fromkeys(shard.keys(), file.name)
    assert index["weight_map"] == held
    assert list(index["weight_map"]) == sorted(held)
    assert len(set(held.values())) >= 2
    sizes = [tensor.nbytes for name, tensor in tensors(CHECKPOINT).items() if name in held]
    assert index["metadata"]["total_size"] == sum(sizes)


def test_shapes_are_ones_that_can_see(config: dict) -> None:
    text, vision = config["text_config"], config["vision_config"]
    assert text["hidden_size"] % 64 == 0
    assert not math.log(text["hidden_size"], 4).is_integer()
    assert (text["num_experts"], text["top_k_experts"]) == (16, 4)
    assert text["layer_types"] == ["sliding_attention"] * 5 + ["full_attention"]
    assert text["sliding_window"] < config["canvas_length"]
    assert text["sliding_window"] < 50
    assert text["head_dim"] != text["global_head_dim"]
    assert vision["head_dim"] == 72
    assert vision["standardize"]
    # Patches of any picture up to three and a half times as wide as it is high must have a position.
    budget = vision["default_output_length"] * vision["pooling_kernel_size"] ** 2
    assert vision["position_embedding_size"] ** 2 >= 3.5 * budget


def expected_bits(path: str) -> int:
    eight = (".self_attn.", ".router.proj", ".mlp.")
    return 8 if path.startswith("model.decoder.layers.") and any(part in path for part in eight) else 4


@pytest.mark.parametrize("variant", ["sidecar", "inline"])
def test_every_quantized_module_is_mapped_with_its_own_bits(variant: str, inline: Path) -> None:
    folder = CHECKPOINT if variant == "sidecar" else inline
    config = json.loads((folder / "config.json").read_text())
    held = tensors(folder)
    mapped = {path: entry for path, entry in config["quantization"].items() if isinstance(entry, dict)}
    assert {"group_size": 64, "bits": 4, "mode": "affine"} | mapped == config["quantization"]
    assert config["quantization_config"] == config["quantization"]
    assert set(mapped) == {name.removesuffix(".scales") for name in held if name.endswith(".scales")}
    for path, entry in mapped.items():
        words, scales, biases = (held[f"{path}.{part}"] for part in ("weight", "scales", "biases"))
        assert entry == {"group_size": 64, "bits": expected_bits(path)}, path
        assert words.dtype == np.uint32
        assert scales.dtype.name == biases.dtype.name == "bfloat16"
        assert words.shape[-1] * 32 // entry["bits"] == scales.shape[-1] * 64 == biases.shape[-1] * 64, path


def test_the_inline_variant_quantizes_vision_wherever_columns_make_whole_groups(inline: Path) -> None:
    held = tensors(inline)
    quantized = {name.split("vision_tower.")[-1] for name in held if name.endswith(".scales") and ".encoder." in name}
    assert "patch_embedder.input_proj.scales" in quantized
    assert "model.encoder.embed_vision.embedding_projection.scales" in quantized
    assert "encoder.layers.0.mlp.gate_proj.linear.scales" in quantized
    assert "encoder.layers.0.mlp.down_proj.linear.scales" not in quantized
    assert held["model.encoder.vision_tower.encoder.layers.0.mlp.down_proj.linear.weight"].dtype.name == "bfloat16"
    assert not (inline / "optiq_vision.safetensors").exists()


def test_full_layers_have_no_value_projection(config: dict) -> None:
    held = tensors(CHECKPOINT)
    for layer, kind in enumerate(config["text_config"]["layer_types"]):
        present = f"model.decoder.layers.{layer}.self_attn.v_proj.weight" in held
        assert present == (kind == "sliding_attention")


@pytest.mark.parametrize("variant", ["sidecar", "inline"])
def test_no_parameter_is_neutral(variant: str, inline: Path) -> None:
    held = tensors(CHECKPOINT if variant == "sidecar" else inline)
    for name, tensor in held.items():
        if tensor.dtype == np.uint32:
            continue
        values = tensor.astype(np.float64)
        assert np.isfinite(values).all(), name
        assert values.size == 1 or values.std() > 0.05 * np.abs(values).mean(), name
        if values.ndim == 1:
            assert not (values == 0.0).any(), name
            assert name.endswith("std_bias") or not (values == 1.0).any(), name


def test_layer_scalars_all_differ() -> None:
    held = tensors(CHECKPOINT)
    scalars = [float(tensor.item()) for name, tensor in held.items() if name.endswith("layer_scalar")]
    assert len(scalars) == 2 * arch.LAYERS
    assert len(set(scalars)) == len(scalars)
    assert all(0.45 < scalar < 1.55 and abs(scalar - 1.0) > 0.05 for scalar in scalars)


def test_special_tokens_have_their_ids(config: dict) -> None:
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    wanted = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3, "<mask>": 4, "<|turn>": 105, "<turn|>": 106}
    assert {token: tokenizer.token_to_id(token) for token in wanted} == wanted
    text = config["text_config"]
    assert tokenizer.get_vocab_size() == text["vocab_size"]
    assert sorted(tokenizer.get_vocab().values()) == list(range(text["vocab_size"]))
    media = {"<|image>": "boi_token_id", "<|image|>": "image_token_id", "<image|>": "eoi_token_id"}
    assert all(tokenizer.token_to_id(token) == config[field] for token, field in media.items())
    others = ["<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>"]
    others += ["<|tool_response>", "<tool_response|>", "<|video|>", "<|audio|>"]
    for token in [*wanted, *media, *others]:
        assert tokenizer.encode(token, add_special_tokens=False).ids == [tokenizer.token_to_id(token)]
    generation = json.loads((CHECKPOINT / "generation_config.json").read_text())
    assert config["eos_token_id"] == [1, 106]
    assert generation["eos_token_id"] == [1, 106, 50]


def test_text_survives_the_tokenizer() -> None:
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert ids[0] == arch.BOS
        assert tokenizer.decode(ids[1:], skip_special_tokens=False) == text


# The reference leaves config.json to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
class TestOracle:
    """What the reference makes of the checkpoint."""

    @pytest.mark.parametrize("variant", ["sidecar", "inline"])
    def test_loads_every_parameter(self, variant: str, inline: Path) -> None:
        from mlx.utils import tree_flatten  # noqa: PLC0415
        from optiq.vlm.diffusion_gemma import load  # noqa: PLC0415

        folder = CHECKPOINT if variant == "sidecar" else inline
        model, _ = load(str(folder))
        assert {name for name, _ in tree_flatten(model.parameters())} == set(tensors(folder))

    def test_reads_text_as_the_tokenizer_file_does(self, loaded) -> None:
        _, wrapped = loaded
        plain = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
        assert (wrapped.pad_token_id, wrapped.eos_token_id, wrapped.bos_token_id) == (arch.PAD, arch.EOS, arch.BOS)
        for text in TEXTS:
            for special in (True, False):
                assert (
                    wrapped.encode(text, add_special_tokens=special)
                    == plain.encode(text, add_special_tokens=special).ids
                )

    def test_streams_text_back(self, loaded) -> None:
        _, wrapped = loaded
        for text in TEXTS:
            stream = wrapped.detokenizer
            stream.reset()
            for token in wrapped.encode(text, add_special_tokens=False):
                stream.add_token(token)
            stream.finalize()
            assert stream.text == text

    def test_writes_a_conversation(self, loaded) -> None:
        _, wrapped = loaded
        chat = [
            {"role": "system", "content": " Be brief. "},
            {"role": "user", "content": "Hi\n"},
            {"role": "assistant", "content": "<|channel>thought\nhm<channel|>Yes."},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        ]
        closed = "<|turn>model\n<|channel>thought\n<channel|>"
        assert wrapped.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
            "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nYes.<turn|>\n"
            "<|turn>user\n<|image|>What?<turn|>\n" + closed
        )
        thinking = wrapped.apply_chat_template(
            chat[1:2], tokenize=False, add_generation_prompt=True, enable_thinking=True
        )
        assert thinking == "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n"
        with pytest.raises(Exception, match="role tool"):
            wrapped.apply_chat_template([{"role": "tool", "content": "x"}], tokenize=False)

    def test_magnitudes_keep_it_alive(self, loaded, monkeypatch: pytest.MonkeyPatch) -> None:
        import mlx.core as mx  # noqa: PLC0415
        from optiq.vlm._mlxvlm.models.diffusion_gemma import language  # noqa: PLC0415

        model, wrapped = loaded
        hidden: list[float] = []
        scores: list[float] = []
        chosen: dict[int, list[np.ndarray]] = {}

        def rms(x: mx.array) -> float:
            return float(mx.sqrt(mx.mean(mx.square(x.astype(mx.float32)))))

        def layer(self, x, *rest, **named):
            out = plain_layer(self, x, *rest, **named)
            hidden.append(rms(out))
            return out

        def router(self, x):
            experts, weights = plain_router(self, x)
            normed = mx.fast.rms_norm(x, None, self.eps) * self.scale * self._root_size
            scores.append(rms(self.proj(normed)))
            chosen.setdefault(id(self), []).append(np.sort(np.array(experts), axis=-1))
            return experts, weights

        plain_layer, plain_router = language.DecoderLayer.__call__, language.Router.__call__
        monkeypatch.setattr(language.DecoderLayer, "__call__", layer)
        monkeypatch.setattr(language.Router, "__call__", router)
        corpus = (CHECKPOINT.parent / "corpus.txt").read_text("utf-8")
        prompt = mx.array(wrapped.encode(corpus)[:50])[None]
        canvas = mx.array(np.random.default_rng(0).integers(0, arch.VOCAB, (1, 24)))
        out = model(input_ids=prompt, canvas_ids=canvas)
        raw = model.model.decoder.embed_tokens.as_linear(out.hidden_states[0])
        assert len(hidden) == 2 * arch.LAYERS
        assert 0.3 < min(hidden) < max(hidden) < 10
        assert 1.0 < min(scores) < max(scores) < 3.0
        for runs in chosen.values():
            tokens = np.concatenate(runs)
            assert set(tokens.flatten().tolist()) == set(range(arch.EXPERTS))
            assert len({tuple(row) for row in tokens.tolist()}) > len(tokens) // 2
        assert 8 < rms(raw) < 25
        beyond = float(mx.mean((mx.abs(raw) > 30).astype(mx.float32)))
        assert 0.005 < beyond < 0.2
        assert bool(mx.all(mx.abs(out.logits) <= 30))

    def test_sees_a_picture_in_both_layouts(self, inline: Path) -> None:
        import mlx.core as mx  # noqa: PLC0415
        from optiq.vlm.diffusion_gemma import load  # noqa: PLC0415

        ramp = np.linspace(0.1, 0.9, 3 * 96 * 144, dtype=np.float32).reshape(1, 3, 96, 144)
        for folder in (CHECKPOINT, inline):
            model, _ = load(str(folder))
            features = model.model.encoder.get_image_features(mx.array(ramp).astype(mx.bfloat16))
            assert features.shape == (1, 6, arch.HIDDEN)
            assert bool(mx.all(mx.isfinite(features)))
            assert 0.3 < float(mx.sqrt(mx.mean(mx.square(features.astype(mx.float32))))) < 10
