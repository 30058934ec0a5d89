"""A packed patch projection casts negatives to unsigned, as platforms do differently: the canary knows, and decides."""

import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from goldens import canary, primitives
from goldens.store import Golden, writing
from reports.verdict import Status
from stages.cli import table_of
from stages.errors import UsageError
from stages.places import COMMITTED, golden_path
from stages.run import Run
from stages.shelf import Question

TABLE = table_of("diffusion_gemma")
CASE = {"cases": ("image-inline",), "computes": ("bfloat16",)}
CASTS = ["cast/bfloat16/uint32", "cast/float32/uint32"]
BLACK = 2 * (mx.array(0.0) - 0.5)


@pytest.mark.parametrize("dtype", primitives.DTYPES)
def test_the_canary_casts_what_black_pixels_become(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"cast/{dtype}/uint32"
    here, probes = canary.compute(), dict(primitives.probes())
    mine = np.array(probes[name]())
    assert canary._digest([mx.array(mine)]) == here[name]
    # The other behaviour, whichever this machine has: saturation at 0, or wrapping around.
    black = int(BLACK.astype(mx.uint32).item())
    assert black in {0, 2**32 - 1}
    assert black in mine.tolist()
    other = np.where(mine == black, np.uint32(2**32 - 1 - black), mine)
    monkeypatch.setattr(primitives, "probes", lambda: iter({**probes, name: lambda: mx.array(other)}.items()))
    assert canary.differing(canary.compute(), here) == [name]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the golden of a packed projection as if recorded where negatives are cast otherwise."""
    source = golden_path(COMMITTED, TABLE.model, "image-inline", "bfloat16")
    monkeypatch.delitem(sys.modules, "port", raising=False)  # this is no recording of an oracle
    with Golden.open(source) as golden:
        facts = {**golden.manifest, "canary": golden.manifest["canary"] | dict.fromkeys(CASTS, "0" * 64)}
        with writing(tmp_path / source.name, facts) as made:
            for stage in golden.stages():
                for occurrence in golden.occurrences(stage):
                    record = golden.read(stage, occurrence)
                    made.put(stage, occurrence, record.ins, record.outs, wide=record.wide, noise=record.noise)
    return tmp_path


def test_a_golden_of_the_other_cast_is_not_judged_in_the_exact_tier(elsewhere: Path) -> None:
    answer = Run(TABLE, Question(stages=("patch_embed",), goldens=elsewhere, **CASE)).answer()
    rows = [row for row in answer.verdicts if row.stage == "patch_embed"]
    assert {row.tier for row in rows} == {"portable"}
    assert {row.gate for row in rows} == {"within"}
    assert {row.status for row in rows} == {Status.PASS}
    assert set(answer.differs["image-inline/bfloat16"]) >= set(CASTS)


def test_asking_for_the_exact_tier_there_is_refused_by_the_name_of_the_primitive(elsewhere: Path) -> None:
    question = Question(stages=("patch_embed",), goldens=elsewhere, tier="exact", **CASE)
    with pytest.raises(UsageError, match=f"numeric backend is not the one of .*{CASTS[0]}, {CASTS[1]} differ"):
        Run(TABLE, question).answer()


def test_committed_goldens_show_no_black_to_a_packed_projection() -> None:
    """What they hold may be judged on every backend: nowhere in them is -1 cast."""
    for compute in ("bfloat16", "float32"):
        with Golden.open(golden_path(COMMITTED, TABLE.model, "image-inline", compute)) as golden:
            for occurrence in golden.occurrences("patch_embed"):
                shown = golden.read("patch_embed", occurrence).ins["pixels"].astype(np.float32)
                assert shown.min() > 0.003
                assert shown.max() == 1
