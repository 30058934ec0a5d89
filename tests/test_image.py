"""Preprocessing and splicing, held to the reference's own functions: the same bits, the same ids."""

import importlib
import io
import warnings
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from optiq.vlm.gemma4 import image_processing
from pictures import DRAWN, NAMES, file_of
from PIL import Image
from port_files import NANO

from oracle.diffusion_gemma import reference
from oracle.diffusion_gemma.vision_cuts import answering
from port.diffusion_gemma import config, image, picture, splice
from port.diffusion_gemma.tokens import Tokens
from port.errors import PictureError

CONFIG = config.read(NANO)
SIDES = st.integers(1, 4000)
door = importlib.import_module("optiq.vlm.diffusion_gemma.generate")


class Sized:
    """A picture of which only the size exists."""

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height

    def resize(self, size: tuple[int, int], resample: int) -> "Sized":
        assert resample == Image.BICUBIC
        return Sized(*size)


@example(1, 1, 280)
@example(4000, 1, 70)
@example(1, 4000, 1120)
@example(768, 816, 280)
@given(SIDES, SIDES, st.sampled_from(image.BUDGETS))
def test_sizes_are_the_references(width: int, height: int, budget: int) -> None:
    theirs = image_processing._aspect_ratio_preserving_resize(Sized(width, height), 16, budget * 9, 3).size
    ours = image.target_size(width, height, budget)
    assert ours == theirs
    assert all(side % image.BLOCK == 0 and side > 0 for side in ours)
    assert ours[0] * ours[1] <= budget * image.BLOCK**2


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return reference.load(NANO, "bfloat16")


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens(NANO)


def theirs(opened: Image.Image, budget: int) -> tuple[np.ndarray, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transparency that is dropped
        pixels, soft = image_processing.preprocess_images(opened, max_soft_tokens=budget)
    return pixels[0], soft[0]


def test_there_are_enough_pictures() -> None:
    assert len({file_of(name) for name in NAMES}) == len(NAMES) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_pixels_and_ids_are_the_references_bit_for_bit(name: str, tokenizer: Any, tokens: Tokens) -> None:
    file = file_of(name)
    decoded, opened = picture.read(io.BytesIO(file), name), Image.open(io.BytesIO(file))
    for budget in image.BUDGETS:
        ours = image.prepare(decoded, budget)
        pixels, soft = theirs(opened, budget)
        assert ours.values.dtype == pixels.dtype == np.float32
        assert ours.values.shape == pixels.shape
        assert ours.values.tobytes() == pixels.tobytes(), budget
        assert ours.soft_tokens == soft <= budget
        with answering(image_processing, "preprocess_images", lambda _images, p=pixels, n=soft: ([p], [n])):
            ids, rounded, types = door._build_image_inputs(tokenizer.model, tokenizer.tokenizer, "What?", [None])
        spliced, marked = splice.prompt(tokens, CONFIG, "What?", [ours.soft_tokens])
        assert spliced.tolist() == ids[0].tolist()
        assert marked.tolist() == types[0].tolist()
        assert mx.array_equal(image.batch([ours])[0], rounded)


def test_several_pictures_each_get_their_own_count(tokenizer: Any, tokens: Tokens) -> None:
    files = [DRAWN[name]() for name in ("1x5000", "ramp", "1x1", "ramp")]
    for budget in image.BUDGETS:
        prepared = [image.prepare(picture.read(io.BytesIO(file), ""), budget) for file in files]
        soft = [one.soft_tokens for one in prepared]
        nothing = [np.zeros((3, 1, 1), np.float32)] * len(files)
        with answering(image_processing, "preprocess_images", lambda _images, n=soft, p=nothing: (p, n)):
            ids, _, types = door._build_image_inputs(tokenizer.model, tokenizer.tokenizer, " So? ", files)
        spliced, marked = splice.prompt(tokens, CONFIG, " So? ", soft)
        assert spliced.tolist() == ids[0].tolist()
        assert marked.tolist() == types[0].tolist()
        assert marked.sum() == sum(soft)
    assert soft[0] != soft[1] == soft[3]


@pytest.mark.parametrize("places", [0, 1, 3])
def test_as_many_places_as_pictures(places: int) -> None:
    ids = [5] + [CONFIG.image_token_id] * places
    with pytest.raises(PictureError, match=f"2 pictures for {places} places"):
        splice.expand(ids, [4, 5], CONFIG)


def test_a_text_that_writes_the_placeholder_is_refused(tokens: Tokens) -> None:
    with pytest.raises(PictureError, match=r"no <.image.> of your own"):
        splice.prompt(tokens, CONFIG, "what is an <|image|>?", [4])


def test_soft_tokens_are_never_repeated_to_fill_a_prompt() -> None:
    h, places = mx.zeros((1, 6, 4)), mx.array([[False, True, True, True, False, False]])
    assert mx.array_equal(splice.merge(h, places, mx.ones((1, 3, 4))).sum(), mx.array(12.0))
    for given_ in (0, 1, 2, 4):
        with pytest.raises(PictureError, match=f"{given_} soft tokens for 3 places"):
            splice.merge(h, places, mx.ones((1, given_, 4)))


def test_budgets_are_those_that_the_model_was_made_for() -> None:
    assert [image.check_budget(budget) for budget in image.BUDGETS] == list(image.BUDGETS)
    with pytest.raises(PictureError, match="the budget is 100"):
        image.check_budget(100)


def test_the_tag_of_a_photograph_turns_nothing() -> None:
    file = DRAWN["rotated by its tag"]()
    plain = picture.read(io.BytesIO(file), "")
    assert plain.size == (90, 40)
    assert image.target_size(*plain.size) == (1200, 528)
