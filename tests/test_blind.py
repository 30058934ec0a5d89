"""What a port that does not see would answer, and heads that are not filled up."""

import json

import mlx.core as mx
import pytest

from goldens.store import Golden
from port.diffusion_gemma import cuts, vision_attention
from port.diffusion_gemma.vision import VisionTower
from reports.verdict import Status
from stages.cases import plan
from stages.cli import table_of
from stages.judge import Judge
from stages.places import COMMITTED, checkpoint_path, golden_path

TABLE = table_of("diffusion_gemma")


def judge_of(case_name: str, compute: str) -> Judge:
    case = next(case for case in TABLE.cases if case.name == case_name)
    where = checkpoint_path(case.checkpoint)
    todo = plan(case, json.loads((where / "config.json").read_text()))
    golden = Golden.open(golden_path(COMMITTED, TABLE.model, case_name, compute))
    return Judge(TABLE, golden, f"{case_name}/{compute}", "exact", cuts.load(where, compute), todo)


def test_a_blind_port_gives_other_answers(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_heads_that_are_not_filled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros add nothing where sums run in order, as on the CPU; a kernel of another width may round otherwise."""
    monkeypatch.setattr(vision_attention, "fused_width", lambda width: width)
    status = {row.status for row in judge_of("image", "bfloat16").forced(TABLE["vision_layer"])}
    if mx.default_device() == mx.Device(mx.cpu):
        assert status == {Status.PASS}
