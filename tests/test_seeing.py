"""The trained nano sees: what it says follows the picture, so a port that looks amiss, or not at all, is caught."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from PIL import Image

from goldens.nano.shapes import COLOURS, SHAPES, Shape, plain, shapes
from goldens.nano.shapes import lessons as picture_lessons
from goldens.store import Golden
from port.diffusion_gemma import cuts
from port.diffusion_gemma.floats import is_vision, unpacked
from port.diffusion_gemma.generate import generate
from port.diffusion_gemma.model import DiffusionGemma, load
from port.diffusion_gemma.options import Options
from port.diffusion_gemma.pack import write
from port.diffusion_gemma.sight import Sight, see
from port.diffusion_gemma.sight_lessons import Gallery
from port.diffusion_gemma.tokens import Tokens
from port.diffusion_gemma.train_tower import train_tower
from port.errors import PortError
from reports.verdict import Status
from stages.asked import table_of
from stages.cases import plan
from stages.judge import Judge
from stages.places import COMMITTED, checkpoint_path, golden_path

ROOT = Path(__file__).resolve().parent.parent
TABLE = table_of("diffusion_gemma")
TRAINED = checkpoint_path("nano-trained")
SHORT = Options(max_tokens=12, max_canvas=12, steps=8)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def model() -> DiffusionGemma:
    return load(TRAINED)


@pytest.fixture(scope="module")
def ask(model: DiffusionGemma, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    folder, tokens = tmp_path_factory.mktemp("shapes"), Tokens(TRAINED)

    def asked(question: str, *shown: Shape, blind: bool = False) -> str:
        files = [folder / f"{i}.png" for i in range(len(shown))]
        for file, one in zip(files, shown, strict=True):
            Image.fromarray(one.draw()).save(file)
        sight = see(model, question, files, budget=70, tokens=tokens)
        mx.random.seed(0)
        return generate(model, tokens, Sight(sight.ids, sight.types, sight.features * (not blind)), SHORT)

    return asked


def said_of(one: Shape) -> str:
    return f"A {one.colour} {one.shape}."


def held_back(each: int) -> list[Shape]:
    """Pictures that training left out, `each` of every colour and shape."""
    made = shapes()
    size = len(made) // (len(COLOURS) * len(SHAPES))
    return [made[i] for last in range(size, len(made) + 1, size) for i in range(last - each, last)]


def test_pictures_that_it_never_saw_are_named(ask: Callable[..., str]) -> None:
    shown = held_back(2)
    assert len(shown) == 30
    right = [ask("What is this?", one) == said_of(one) for one in shown]
    assert sum(right) >= 24


def test_colour_and_shape_are_asked_for_apart(ask: Callable[..., str]) -> None:
    shown = [plain("red", "square"), plain("blue", "circle"), plain("green", "square")]
    assert [ask("What colour is it?", one) for one in shown] == [f"It is {one.colour}." for one in shown]
    assert [ask("What shape is it?", one) for one in shown] == [f"It is a {one.shape}." for one in shown]


def test_another_picture_is_another_answer_and_none_is_no_answer(ask: Callable[..., str]) -> None:
    shown = [plain("red", "square"), plain("blue", "circle"), plain("green", "square")]
    seen = [ask("What is this?", one) for one in shown]
    assert seen == [said_of(one) for one in shown]
    unseen = {ask("What is this?", one, blind=True) for one in shown}
    assert len(unseen) == 1
    assert unseen.isdisjoint(seen)


def test_the_command_names_a_file(tmp_path: Path) -> None:
    file = tmp_path / "red_square.png"
    Image.fromarray(plain("red", "square", 200).draw()).save(file)
    words = ("What is this?", "--image", str(file), "--soft-tokens", "70", "--seed", "0", "--max-tokens", "16")
    command = (sys.executable, "-m", "port", "generate", *words, "--checkpoint", "goldens/nano/trained")
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == "A red square."


# Goldens


def judge_of(case_name: str, compute: str) -> Judge:
    case = next(case for case in TABLE.cases if case.name == case_name)
    todo = plan(case, json.loads((TRAINED / "config.json").read_text()))
    golden = Golden.open(golden_path(COMMITTED, TABLE.model, case_name, compute))
    return Judge(TABLE, golden, f"{case_name}/{compute}", "exact", cuts.load(TRAINED, compute), todo)


def recorded(case: str, compute: str) -> list[str]:
    """What the oracle said in each run of a case."""
    with Golden.open(golden_path(COMMITTED, TABLE.model, case, compute)) as golden:
        runs = [golden.read("generate_image", where) for where in golden.occurrences("generate_image")]
    return ["".join(json.loads(run.outs["segments"].tobytes())) for run in runs]


def test_goldens_hold_answers_that_follow_the_picture() -> None:
    assert recorded("answers", "float32")[:3] == ["A red square.", "It is red.", "It is a square."]
    assert recorded("answers-other", "float32") == ["A blue circle.", "It is blue.", "It is a circle."]


def wrong_runs(judge: Judge) -> int:
    rows = [row for row in judge.forced(TABLE["generate_image"]) if row.tensor == "tokens"]
    assert len(rows) >= 3
    return sum(row.status is Status.FAIL for row in rows)


def looking(patch: Patch, change: Callable[[mx.array], mx.array]) -> None:
    """Let the encoder get other soft tokens than it is given."""
    encode = DiffusionGemma.encode

    def other(
        self: DiffusionGemma, ids: mx.array, cache: Any, padding: Any = None, features: Any = None, types: Any = None
    ) -> mx.array:
        return encode(self, ids, cache, padding, None if features is None else change(features), types)

    patch.setattr(DiffusionGemma, "encode", other)


CASES = (("answers", "float32"), ("answers-other", "float32"), ("answers-three", "bfloat16"))


@pytest.mark.parametrize(("case", "compute"), CASES)
def test_a_blind_port_is_caught_in_most_runs(case: str, compute: str, monkeypatch: Patch) -> None:
    judge = judge_of(case, compute)
    assert wrong_runs(judge) == 0
    looking(monkeypatch, lambda features: features * 0)
    assert wrong_runs(judge) >= 3


def test_two_pictures_in_the_wrong_order_are_caught(monkeypatch: Patch) -> None:
    judge = judge_of("answers-three", "bfloat16")
    looking(monkeypatch, lambda soft: mx.concatenate([soft[:, 4:8], soft[:, :4], soft[:, 8:]], axis=1))
    assert wrong_runs(judge) >= 2


# The recipe


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    drawn = shapes()
    taught = [lesson for lesson in picture_lessons(drawn) if not lesson.held]
    few = taught[:60] + taught[-12:]
    for name in {name for lesson in few for name in lesson.pictures}:
        Image.fromarray(drawn[int(name[:4])].draw()).save(folder / name)
    (folder / "lessons.jsonl").write_text("".join(json.dumps(vars(lesson)) + "\n" for lesson in few))
    return folder


def test_pictures_are_the_same_on_every_run() -> None:
    first, second = shapes(), shapes()
    assert first == second
    assert list(picture_lessons(first)) == list(picture_lessons(second))


def test_pictures_held_back_are_in_no_lesson_that_is_taught() -> None:
    made = list(picture_lessons(shapes()))
    taught = {name for lesson in made if not lesson.held for name in lesson.pictures}
    held = {name for lesson in made if lesson.held for name in lesson.pictures}
    assert taught.isdisjoint(held)
    assert len(held) == 150


def test_the_tower_takes_the_same_steps_from_the_same_seed(gallery: Path, tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        news: list[tuple[Any, ...]] = []
        train_tower(TRAINED, gallery, 2, 1e-3, 0, lambda *told, news=news: news.append(told))
        runs.append([told[:3] for told in news])
    assert len(runs[0]) == 2
    assert runs[0] == runs[1]
    before, after = unpacked(load(TRAINED, "float32"), vision=True), news[-1][3]
    same = {name: bool(mx.array_equal(array, after[name])) for name, array in before.items()}
    assert not any(same[name] for name in same if is_vision(name))
    assert all(same[name] for name in same if not is_vision(name))


def test_what_a_tower_learned_is_written_into_its_sidecar(tmp_path: Path) -> None:
    learned = {name: array * 2 for name, array in unpacked(load(TRAINED, "float32"), vision=True).items()}
    write(TRAINED, learned, tmp_path)
    kept = unpacked(load(tmp_path, "float32"), vision=True)
    assert all(mx.array_equal(kept[name], array) for name, array in learned.items() if is_vision(name))


def test_a_folder_without_lessons_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PortError, match="lessons about pictures"):
        Gallery(tmp_path, Tokens(TRAINED), load(TRAINED).config)
