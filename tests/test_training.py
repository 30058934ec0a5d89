"""The three trainings' updates, against AdamW worked out in double precision, and their commands' doors.

The formula is algorithm 2 of "Decoupled Weight Decay Regularization" (Loshchilov and Hutter, 2019), without its
correction of how the moments begin where a training makes none. Gradients are given: they stand in for the loss' own.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click.testing
import mlx.core as mx
import numpy as np
import pytest
from metadiffusion_files import llama
from mlx.utils import tree_flatten, tree_unflatten
from PIL import Image

from goldens.nano.lessons import lessons
from goldens.nano.shapes import lessons as picture_lessons
from goldens.nano.shapes import shapes
from port.diffusion_gemma import train as teaching
from port.diffusion_gemma import train_tower as tower
from port.diffusion_gemma.floats import is_vision, unpacked
from port.diffusion_gemma.model import load
from port.diffusion_gemma.sight_lessons import Gallery
from port.diffusion_gemma.tokens import Tokens
from port.metadiffusion import train as masked
from port.metadiffusion.checkpoint import load as load_masked
from port.metadiffusion.convert import convert
from stages.places import checkpoint_path

NANO = checkpoint_path("nano")
NORM = "model.decoder.norm.weight"
Arrays = dict[str, Any]
Patch = pytest.MonkeyPatch


def adamw(arrays: Arrays, slopes: Arrays, rates: Sequence[float], *, corrected: bool) -> Arrays:
    """After updates by these gradients, cut to a norm of 1, at these rates: betas 0.9 and 0.98, decay 0.01."""
    norm = math.sqrt(sum(float((np.asarray(slope, np.float64) ** 2).sum()) for slope in slopes.values()))
    found = {}
    for name, array in arrays.items():
        x, g = np.array(array, np.float64), np.array(slopes[name], np.float64) * min(1.0, 1.0 / norm)
        m = v = np.zeros_like(x)
        for t, rate in enumerate(rates, 1):
            m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
            m_hat, v_hat = (m / (1 - 0.9**t), v / (1 - 0.98**t)) if corrected else (m, v)
            x = x - rate * 0.01 * x - rate * m_hat / (np.sqrt(v_hat) + 1e-8)
        found[name] = x
    return found


def slopes_of(arrays: Arrays) -> Arrays:
    """Gradients of every size from 0.001 to 1000, either sign."""
    rng = np.random.default_rng(0)
    return {
        name: mx.array((10 ** rng.uniform(-3, 3, array.shape) * rng.choice([-1, 1], array.shape)).astype(np.float32))
        for name, array in arrays.items()
    }


def linear(slopes: Arrays) -> Callable[[Arrays], mx.array]:
    return lambda arrays: sum((array * slopes[name]).sum() for name, array in arrays.items())


def agree(found: Arrays, expected: Arrays, rate: float) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        # A hundredth of one update, and float32's own rounding of the parameter.
        np.testing.assert_allclose(np.array(found[name]), array, rtol=1e-6, atol=rate / 100, err_msg=name)


@pytest.fixture
def school(tmp_path: Path) -> Path:
    path = tmp_path / "lessons.jsonl"
    path.write_text("".join(json.dumps(vars(lesson)) + "\n" for lesson in lessons()))
    return path


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lesson about a picture for every answer."""
    folder, drawn = tmp_path_factory.mktemp("gallery"), shapes()
    what = [lesson for lesson in picture_lessons(drawn) if lesson.kind == "what" and not lesson.held]
    taught = list({lesson.answer: lesson for lesson in what}.values())
    for (name,) in (lesson.pictures for lesson in taught):
        Image.fromarray(drawn[int(name[:4])].draw()).save(folder / name)
    (folder / "lessons.jsonl").write_text("".join(json.dumps(vars(lesson)) + "\n" for lesson in taught))
    return folder


def test_a_lessons_update_is_adamws_and_the_final_norm_begins_calm(school: Path, monkeypatch: Patch) -> None:
    before = unpacked(load(NANO, "float32"))
    slopes = slopes_of(before)
    monkeypatch.setattr(teaching, "loss_of", lambda *_: linear(slopes))
    told: list[tuple[int, Arrays]] = []
    plan = teaching.Plan(steps=200, stop=3, packed=0, peak=0.3, calm=0.15, seed=0)
    teaching.train(NANO, school, plan, lambda step, _loss, arrays: told.append((step, arrays)))
    assert [step for step, _ in told] == [1, 2, 3]
    before[NORM] = before[NORM] * 0.15
    for step, arrays in told:
        agree(arrays, adamw(before, slopes, [0.3 * k / 60 for k in range(step)], corrected=False), 0.3 / 60)


def test_the_towers_update_is_adamws(gallery: Path, monkeypatch: Patch) -> None:
    before = {name: array for name, array in unpacked(load(NANO, "float32"), vision=True).items() if is_vision(name)}
    slopes = slopes_of(before)
    monkeypatch.setattr(
        mx,
        "value_and_grad",
        lambda _: lambda now, *_: ((mx.array(1.0), mx.array(0.5)), {**slopes, tower.NAMER: now[tower.NAMER]}),
    )
    told: list[tuple[int, Arrays]] = []
    tower.train_tower(NANO, gallery, 3, 0.3, 0, lambda step, _loss, _right, arrays: told.append((step, arrays)))
    assert [step for step, _ in told] == [1, 2, 3]
    for step, arrays in told:
        found = {name: array for name, array in arrays.items() if is_vision(name)}
        agree(found, adamw(before, slopes, [0.3 * k / 30 for k in range(step)], corrected=False), 0.3 / 30)


def test_a_tower_learns_from_what_it_is_told_about_pictures(gallery: Path) -> None:
    told: list[Arrays] = []
    # The first update is made at a rate of 0, the second moves the naming layer away from zeros, the third the tower.
    tower.train_tower(NANO, gallery, 3, 0.03, 0, lambda _step, _loss, _right, arrays: told.append(arrays))
    for name in filter(is_vision, told[0]):
        second, third = (np.array(arrays[name], np.float64) for arrays in told[1:])
        # Decay alone takes 2e-5 of a parameter at this rate; AdamW moves one with a gradient by up to the rate, 2e-3.
        assert np.abs(third - second).max() > 1e-4, name


def test_the_share_named_rightly_is_counted(gallery: Path, monkeypatch: Patch) -> None:
    told: list[tuple[float, float]] = []
    seen: list[tuple[mx.array, mx.array]] = []
    entropy = tower.nn.losses.cross_entropy
    monkeypatch.setattr(
        tower.nn.losses,
        "cross_entropy",
        lambda logits, answers: seen.append((logits, answers)) or entropy(logits, answers),
    )
    tower.train_tower(NANO, gallery, 4, 0.3, 0, lambda _step, _loss, right, _arrays: told.append(right))
    named = [float((np.array(logits).argmax(-1) == np.array(answers)).mean()) for logits, answers in seen]
    assert told == pytest.approx(named)


def test_what_is_marked_as_a_picture_are_the_places_of_its_soft_tokens(tmp_path: Path) -> None:
    drawn, config = shapes(), load(NANO).config
    taught = [lesson for lesson in picture_lessons(drawn) if not lesson.held]
    few = list({lesson.kind: lesson for lesson in taught}.values())
    for name in {name for lesson in few for name in lesson.pictures}:
        Image.fromarray(drawn[int(name[:4])].draw()).save(tmp_path / name)
    (tmp_path / "lessons.jsonl").write_text("".join(json.dumps(vars(lesson)) + "\n" for lesson in few))
    batch, shown = Gallery(tmp_path, Tokens(NANO), config).draw(np.random.default_rng(0))
    assert (shown.types == (batch.prompt == config.image_token_id)).all()
    assert shown.types.any(axis=1).all()


def test_a_masked_update_is_adamws(tmp_path: Path, monkeypatch: Patch) -> None:
    convert(llama(tmp_path / "llama"), tmp_path / "model")
    before = dict(tree_flatten(load_masked(tmp_path / "model").parameters()))
    slopes = slopes_of(before)
    monkeypatch.setattr(
        masked.nn, "value_and_grad", lambda *_: lambda _: (mx.array(1.0), tree_unflatten([*slopes.items()]))
    )
    recipe = masked.Recipe(steps=4, batch=2, length=8, rate=0.01, warmup=2)
    last = masked.train(tmp_path / "model", np.arange(4, 40, dtype=np.int32) % 26, recipe, tmp_path / "run")
    after = dict(tree_flatten(load_masked(last).parameters()))
    agree(after, adamw(before, slopes, [0.005, 0.0075, 0.01, 0.01], corrected=True), 0.01)


# The commands: what is written when, and what they refuse


def reporting(*losses: float) -> Callable[..., None]:
    """A training that only reports, in the shape of either."""

    def run(checkpoint: Path, _about: Path, how: Any, *rest: Any) -> None:
        report = next(one for one in rest if callable(one))
        arrays = unpacked(load(checkpoint, "float32"), vision=True)
        for step, loss in enumerate(losses, 1):
            report(step, loss, *([0.5] if how.__class__ is int else []), arrays)

    return run


@pytest.mark.parametrize("module", [teaching, tower])
def test_a_checkpoint_is_written_every_so_often_and_at_the_end(
    module: Any, school: Path, gallery: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(module, "EVERY", 2)
    monkeypatch.setattr(module, module.__name__.rpartition(".")[2], reporting(4.0, 2.0, 1.5, 0.5, 7.0))
    about = gallery if module is tower else school
    words = [str(NANO), str(about), str(tmp_path / "out"), "--steps", "5"]
    said = click.testing.CliRunner().invoke(module.main, words)
    assert said.exit_code == 0, said.output
    # Every second step, the mean loss since the last writing.
    assert [line.partition(",")[0] for line in said.stdout.splitlines()] == [
        "step 2: loss 3.000", "step 4: loss 1.000", "step 5: loss 7.000",
    ]  # fmt: skip
    assert (tmp_path / "out" / "config.json").read_bytes() == (NANO / "config.json").read_bytes()


def test_lessons_to_look_at_are_a_folder(school: Path, tmp_path: Path) -> None:
    words = [str(NANO), str(school), str(tmp_path / "out"), "--pictures", str(school)]
    said = click.testing.CliRunner().invoke(teaching.main, words)
    assert said.exit_code == 2
    assert f"Directory '{school}' is a file" in said.stderr
    said = click.testing.CliRunner().invoke(teaching.main, [*words[:-1], str(tmp_path / "absent")])
    assert said.exit_code == 2
    assert "does not exist" in said.stderr
