"""From files and a question to what the encoder takes, beside the reference's own door."""

import importlib
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from pictures import DRAWN
from PIL import Image
from port_files import NANO, copy, edit_json

from oracle.diffusion_gemma import reference
from port.diffusion_gemma import image, model, picture, weights
from port.diffusion_gemma.sight import see
from port.errors import PictureError

door = importlib.import_module("optiq.vlm.diffusion_gemma.generate")


@pytest.fixture(scope="module")
def port() -> model.DiffusionGemma:
    return model.load(NANO)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = []
    for name in ("words", "ramp", "1x1"):
        made.append(tmp_path / f"{name}.png")
        made[-1].write_bytes(DRAWN[name]())
    return made


def test_ids_types_and_pixels_are_the_doors(port: model.DiffusionGemma, files: list[Path]) -> None:
    theirs = reference.load(NANO, "bfloat16")
    shown = [files[0], files[0]]
    ids, pixels, types = door._build_image_inputs(
        theirs.model, theirs.tokenizer, "Twice?", [Image.open(path) for path in shown]
    )
    sight = see(port, "Twice?", shown)
    assert mx.array_equal(sight.ids, ids)
    assert mx.array_equal(sight.types, types)
    ours = image.batch([image.prepare(picture.read(path)) for path in shown])
    assert mx.array_equal(mx.concatenate(ours), pixels)
    assert sight.features.shape == (1, int(types.sum().item()), 192)


def test_an_answer_depends_on_the_pictures_and_on_their_order(
    port: model.DiffusionGemma, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "BUDGETS", (6,))  # smaller than any that is published: this asks of order, not of detail
    seen = []
    for shown in (files, files[::-1], files[:1], files[1:2]):
        sight = see(port, "What?", shown, budget=6)
        cache = port.new_cache()
        port.encode(sight.ids, cache, None, sight.features, sight.types)
        canvas = port.decode(mx.arange(6)[None], cache)
        seen.append(np.array(canvas.astype(mx.float32)).tobytes())
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("text", "names", "budget", "said"),
    [
        ("what <|image|>?", ["words.png"], 70, "1 pictures for 2 places"),
        ("what?", ["words.png", "absent.png"], 70, "absent.png: it is not there"),
        ("what?", [], 70, "there are none"),
        ("what?", ["words.png"], 71, "the budget is 71"),
        ("what?", ["ramp.png"], 1120, "Expected: at most 2520"),
    ],
)
def test_refusals(port: Any, files: list[Path], text: str, names: list[str], budget: int, said: str) -> None:
    with pytest.raises(PictureError, match=said.replace("|", ".").replace("?", ".")):
        see(port, text, [files[0].parent / name for name in names], budget=budget)


def test_a_model_without_eyes_says_so(tmp_path: Path, files: list[Path]) -> None:
    directory = copy(tmp_path)
    edit_json(directory / "config.json", lambda raw: raw.pop("vision_config"))
    (directory / "optiq" / weights.SIDECAR).unlink(missing_ok=True)
    (directory / weights.SIDECAR).unlink(missing_ok=True)
    with pytest.raises(PictureError, match="the model has no vision tower"):
        see(model.load(directory), "what?", files[:1])
