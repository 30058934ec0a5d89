"""The port's two doors to a stage agree: what an ordinary run reports at a border, and what the cut makes of it."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stages import sides
from stages.asked import table_of
from stages.cases import plan
from stages.places import checkpoint_path

RUNS = [
    ("diffusion_gemma", "ring", "bfloat16"),
    ("diffusion_gemma", "padded", "float32"),
    ("diffusion_gemma", "blocks", "float32"),
    ("diffusion_gemma", "image", "float32"),
    ("metadiffusion", "untied", "float32"),
    ("metadiffusion", "unmask", "float32"),
]


@pytest.mark.parametrize(("model", "case", "compute"), RUNS, ids=lambda value: value)
def test_a_cut_fed_what_a_run_reports_gives_what_it_reports(model: str, case: str, compute: str) -> None:
    agree(model, next(one for one in table_of(model).cases if one.name == case), compute)


def test_so_they_do_where_a_canvas_reads_a_ring_that_was_written_round() -> None:
    ring = next(one for one in table_of("diffusion_gemma").cases if one.name == "ring")
    window = json.loads((checkpoint_path("nano") / "config.json").read_text())["text_config"]["sliding_window"]
    agree("diffusion_gemma", replace(ring, tokens=window + 3, chunks=(window, 1, 1, 1)), "float32")


def agree(model: str, case: Any, compute: str) -> None:
    """Run a case, and hold each border's cut to it."""
    table, where = table_of(model), checkpoint_path(case.checkpoint)
    cuts = sides.cuts("port", model)
    loaded = cuts.load(where, compute)
    crossed: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
    planned = plan(case, json.loads((where / "config.json").read_text()))
    sides.taps("port", model).run(loaded, planned, lambda *border: crossed.append(border))
    assert len({stage for stage, *_ in crossed}) >= 3
    for stage, occurrence, ins, outs in crossed:
        again = sides.call(cuts, loaded, table[stage], occurrence, ins)
        assert again.keys() == outs.keys(), (stage, occurrence)
        for name, tensor in outs.items():
            found = again[name]
            assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape), (stage, occurrence, name)
            # Not by value: a zero's sign and a NaN's bits are part of what a stage gives.
            assert found.tobytes() == np.asarray(tensor).tobytes(), (stage, occurrence, name)
