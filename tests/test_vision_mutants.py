"""Every way to see wrongly that is known of ports, planted in this one: each is caught at the stage it belongs to.

A stage is fed what the oracle fed its own, so the first stage of the table that fails is the one that is at fault.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from PIL import Image

from goldens.store import Golden
from port.diffusion_gemma import (
    cuts,
    embed,
    image,
    model,
    patches,
    picture,
    splice,
    vision,
    vision_attention,
    vision_cuts,
)
from port.diffusion_gemma.grid import Grid
from port.diffusion_gemma.image import Pixels
from port.diffusion_gemma.masks import encoder_mask
from port.diffusion_gemma.patches import PatchEmbedding
from port.diffusion_gemma.vision import VisionTower
from port.diffusion_gemma.vision_rope import PlaneRope
from reports.verdict import Status, Verdict
from stages.cases import plan
from stages.cli import table_of
from stages.judge import Judge
from stages.places import COMMITTED, checkpoint_path, golden_path

TABLE = table_of("diffusion_gemma")
STAGES = (
    "image_preprocess", "image_splice", "patch_embed", "vision_layer", "vision_tower", "vision_project",
    "merge_vision", "image_masks", "image_encoder",
)  # fmt: skip
Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]


def judge_of(case_name: str, compute: str) -> Judge:
    case = next(case for case in TABLE.cases if case.name == case_name)
    where = checkpoint_path(case.checkpoint)
    todo = plan(case, json.loads((where / "config.json").read_text()))
    golden = Golden.open(golden_path(COMMITTED, TABLE.model, case_name, compute))
    return Judge(TABLE, golden, f"{case_name}/{compute}", "exact", cuts.load(where, compute), todo)


@pytest.fixture(scope="module")
def judges() -> Callable[..., Judge]:
    held: dict[tuple[str, str], Judge] = {}

    def of(case: str, compute: str = "bfloat16") -> Judge:
        if (case, compute) not in held:
            held[case, compute] = judge_of(case, compute)
            held[case, compute]._free = defaultdict(list)  # what is looked at here are forced verdicts
        return held[case, compute]

    return of


def caught(judge: Judge) -> tuple[str, list[Verdict]]:
    """The first stage that is not PASS, and its verdicts that are not."""
    looked = 0
    for stage in STAGES:
        rows = judge.forced(TABLE[stage])
        looked += len(rows)
        if wrong := [row for row in rows if row.status is not Status.PASS]:
            return stage, wrong
    assert looked
    return "", []


# Preprocessing and the prompt


def _converted(change: Callable[[np.ndarray], np.ndarray]) -> Mutant:
    def plant(patch: Patch) -> None:
        prepare = image.prepare
        patch.setattr(image, "prepare", lambda *args: Pixels(change(prepare(*args).values)))

    return plant


def bilinear(patch: Patch) -> None:
    resize = Image.Image.resize
    patch.setattr(Image.Image, "resize", lambda self, size, **_: resize(self, size, Image.Resampling.BILINEAR))


def blended(patch: Patch) -> None:
    """Transparency laid on white, as browsers do."""
    read = picture.read

    def laid(source: Any, name: str = "") -> Image.Image:
        start = source.tell()
        read(source, name)
        source.seek(start)
        shown = Image.open(source).convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown).convert("RGB")

    patch.setattr(picture, "read", laid)


def always_280(patch: Patch) -> None:
    expand = splice.expand
    patch.setattr(splice, "expand", lambda ids, soft, config: expand(ids, [280] * len(soft), config))


def ends_marked(patch: Patch) -> None:
    """Openings and closings are image tokens too."""
    expand = splice.expand

    def marked(ids: Any, soft: Any, config: Any) -> tuple[np.ndarray, np.ndarray]:
        spliced, _ = expand(ids, soft, config)
        ends = [config.boi_token_id, config.image_token_id, config.eoi_token_id]
        return spliced, np.isin(spliced, ends).astype(np.int32)

    patch.setattr(splice, "expand", marked)


def ends_counted(patch: Patch) -> None:
    patch.setattr(Pixels, "soft_tokens", property(lambda self: self.values[0].size // 48**2 + 2))


def first_count_for_all(patch: Patch) -> None:
    expand = splice.expand
    patch.setattr(splice, "expand", lambda ids, soft, config: expand(ids, [soft[0]] * len(soft), config))


# The tower


def not_truncated(patch: Patch) -> None:
    patch.setattr(PatchEmbedding, "project", lambda self, x: self.input_proj(x.astype(self.dtype)))


def truncated(patch: Patch) -> None:
    patch.setattr(PatchEmbedding, "project", lambda self, x: self.input_proj(x.astype(mx.int32).astype(self.dtype)))


def colours_first(patch: Patch) -> None:
    cut = patches.patchify

    def first(pixels: mx.array, size: int) -> mx.array:
        flat = cut(pixels, size)
        return flat.reshape(*flat.shape[:2], size * size, 3).swapaxes(-1, -2).reshape(flat.shape)

    patch.setattr(patches, "patchify", first)


class Swapped:
    """A grid whose columns are taken for rows."""

    def __init__(self, grid: Grid) -> None:
        self.places = grid.places[::-1]


def swapped_axes(patch: Patch) -> None:
    patch.setattr(vision, "PlaneRope", lambda grid, *rest: PlaneRope(Swapped(grid), *rest))


def swapped_tables(patch: Patch) -> None:
    places = PatchEmbedding.places
    patch.setattr(PatchEmbedding, "places", lambda self, grid: places(self, Swapped(grid)))


def halves_across_axes(patch: Patch) -> None:
    def turn(self: PlaneRope, x: mx.array) -> mx.array:
        cos, sin = (mx.concatenate([axis[kind] for axis in self._turns], axis=-1) for kind in (0, 1))
        first, second = mx.split(x, 2, axis=-1)
        return x * cos + mx.concatenate([-second, first], axis=-1) * sin

    patch.setattr(PlaneRope, "__call__", turn)


def scaled_scores(patch: Patch) -> None:
    """As if the width that heads were filled up to had to be made good for."""
    norm = vision_attention.scaled_norm
    patch.setattr(vision_attention, "scaled_norm", lambda x, weight: norm(x, weight) * 80**-0.25)


def rounded_norm(patch: Patch) -> None:
    """The norm of queries and keys rounded before its weight, as float32 is not needed for."""
    patch.setattr(vision_attention, "scaled_norm", lambda x, weight: vision_attention.plain_norm(x) * weight)


def values_not_normed(patch: Patch) -> None:
    patch.setattr(vision_attention, "plain_norm", lambda x: x)


def pooled_by_reshape(patch: Patch) -> None:
    def pool(h: mx.array, grid: Grid, side: int) -> mx.array:
        squares = h.reshape(h.shape[0], -1, side**2, h.shape[-1]).astype(mx.float32)
        return mx.mean(squares, axis=2).astype(h.dtype) * h.shape[-1] ** 0.5

    patch.setattr(vision, "pool", pool)


def no_root(patch: Patch) -> None:
    pool = vision.pool
    patch.setattr(vision, "pool", lambda h, grid, side: pool(h, grid, side) / h.shape[-1] ** 0.5)


def scaled_before_shifted(patch: Patch) -> None:
    patch.setattr(VisionTower, "standardize", lambda self, x: x * self.std_scale.array - self.std_bias.array)


# The prompt with pictures


def scaled_as_words(patch: Patch) -> None:
    merge = embed.merge
    patch.setattr(embed, "merge", lambda h, places, soft: merge(h, places, soft * h.shape[-1] ** 0.5))


def seen_behind_others(patch: Patch) -> None:
    """The overlay of the prompt, still on in a pass that continues it."""

    def masks(self: Any, tokens: int, offset: int, padding: Any, types: Any = None) -> Any:
        blocks = None if types is None else model.picture_blocks(types)
        shown = {}
        for window in {layer.self_attn.window for layer in self.layers}:
            mask = encoder_mask(tokens, offset, window, padding, None if offset else blocks)
            if offset and blocks is not None:
                seen = mx.array(vision_cuts.written_out(mask, tokens, vision_cuts.visible(tokens, offset, window)))
                mask = seen | mx.pad(blocks, [(0, 0), (0, 0), (seen.shape[-1] - tokens, 0)])[:, None]
            shown[window] = mask
        return shown

    patch.setattr(model.DiffusionGemma, "encoder_masks", masks)


def across_pictures(patch: Patch) -> None:
    patch.setattr(model, "picture_blocks", lambda types: (types[:, :, None] == 1) & (types[:, None, :] == 1))


def never_ahead(patch: Patch) -> None:
    patch.setattr(model, "picture_blocks", lambda _types: None)


MUTANTS: dict[str, tuple[Mutant, str, str]] = {  # name: what is planted, the case that sees it, the stage
    "BGR": (_converted(lambda x: x[::-1]), "image", "image_preprocess"),
    "channel-last": (_converted(lambda x: x.transpose(1, 2, 0)), "image", "image_preprocess"),
    "mean and deviation": (_converted(lambda x: (x - np.float32(0.5)) / np.float32(0.5)), "image", "image_preprocess"),
    "bilinear": (bilinear, "image", "image_preprocess"),
    "transparency blended": (blended, "images", "image_preprocess"),
    "opening and closing counted": (ends_counted, "image", "image_preprocess"),
    "opening and closing marked": (ends_marked, "image", "image_splice"),
    "280 for every picture": (always_280, "image", "image_splice"),
    "the first count for all": (first_count_for_all, "images", "image_splice"),
    "packed projection not truncated": (not_truncated, "image-inline", "patch_embed"),
    "plain projection truncated": (truncated, "image", "patch_embed"),
    "colours first in a patch": (colours_first, "image", "patch_embed"),
    "not centred": (lambda patch: patch.setattr(patches, "centred", lambda x: x), "image", "patch_embed"),
    "tables of places swapped": (swapped_tables, "image", "patch_embed"),
    "axes of rotation swapped": (swapped_axes, "image", "vision_layer"),
    "halves across axes": (halves_across_axes, "image", "vision_layer"),
    "scores scaled": (scaled_scores, "image", "vision_layer"),
    "norm rounded early": (rounded_norm, "image", "vision_layer"),
    "values not normed": (values_not_normed, "image", "vision_layer"),
    "pooled by reshape": (pooled_by_reshape, "image", "vision_tower"),
    "no square root after pooling": (no_root, "image", "vision_tower"),
    "scaled before shifted": (scaled_before_shifted, "image", "vision_tower"),
    "scaled as words are": (scaled_as_words, "image", "merge_vision"),
    "overlay in continuation": (seen_behind_others, "overlay", "image_masks"),
    "overlay across pictures": (across_pictures, "overlay", "image_masks"),
    "no overlay": (never_ahead, "overlay", "image_masks"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_caught_where_it_belongs(judges: Callable[..., Judge], monkeypatch: Patch, name: str) -> None:
    plant, case, stage = MUTANTS[name]
    plant(monkeypatch)
    found, wrong = caught(judges(case))
    assert found == stage, [row.note for row in wrong]
    assert all(row.status is Status.FAIL for row in wrong)


@pytest.mark.parametrize("case", ["image", "images", "image-inline", "overlay"])
def test_without_one_nothing_is_caught(judges: Callable[..., Judge], case: str) -> None:
    assert caught(judges(case)) == ("", [])


@pytest.mark.parametrize("case", ["image", "image-inline"])
def test_float32_sees_them_too(judges: Callable[..., Judge], monkeypatch: Patch, case: str) -> None:
    judge = judges(case, "float32")
    assert caught(judge) == ("", [])
    for name, (plant, mine, stage) in MUTANTS.items():
        with monkeypatch.context() as patch:
            if mine == case and name != "norm rounded early":  # float32 rounds nothing there
                plant(patch)
                assert caught(judge)[0] == stage, name


def test_an_ordinary_run_names_the_same_stage(monkeypatch: Patch) -> None:
    swapped_axes(monkeypatch)
    judge = judge_of("image", "bfloat16")
    status = {stage: {row.status for row in judge.free(TABLE[stage])} for stage in STAGES}
    assert Status.FAIL in status["vision_layer"]
    assert status["vision_tower"] == {Status.FAIL}  # from the same pixels to other features
    assert status["image_preprocess"] == status["patch_embed"] == status["image_masks"] == {Status.PASS}
    for later in ("vision_project", "merge_vision", "image_encoder"):
        assert Status.LOCKED in status[later]
        assert Status.FAIL not in status[later]


def test_a_blind_port_gives_other_answers(monkeypatch: Patch) -> None:
    monkeypatch.setattr(VisionTower, "project", lambda self, x: self.embedding_projection(x * 0))
    for case, compute in (("answers", "float32"), ("answers-three", "bfloat16")):
        blind = judge_of(case, compute)
        status = [row.status for row in blind.free(TABLE["generate_image"]) if row.tensor == "tokens"]
        assert status.count(Status.LOCKED) >= 3  # its soft tokens are not the oracle's, so others are at fault
        changed = 0
        for where in blind.golden.occurrences("generate_image"):
            record = blind.golden.read("generate_image", where)
            given = cuts.generate_image(blind.model, {}, **{**record.ins, "features": record.ins["features"] * 0})
            changed += given["tokens"].tolist() != record.outs["tokens"].tolist()
        assert changed >= 3  # of six


def test_heads_that_are_not_filled_up(judges: Callable[..., Judge], monkeypatch: Patch) -> None:
    """Zeros add nothing where sums run in order, as on the CPU; a kernel of another width may round otherwise."""
    monkeypatch.setattr(vision_attention, "fused_width", lambda width: width)
    found, _ = caught(judges("image"))
    if mx.default_device() == mx.Device(mx.cpu):
        assert found == ""
    else:
        assert found in {"", "vision_layer"}
