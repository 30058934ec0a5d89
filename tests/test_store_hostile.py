"""Hostile goldens with a valid seal are refused by name, before they cost anything.

They are opened in a child whose address space may grow by no more than 256 MiB, far less than any of them asks for.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import forge
import pytest
from forge import H, X

ROOT = Path(__file__).resolve().parent.parent

HOSTILE = {
    forge.external_link: f"{X} is an external link",
    forge.soft_link: f"{X} is a soft link",
    forge.soft_link_to_listing: "listing is a soft link",
    forge.external_storage: f"{X} keeps its data in an external file",
    forge.trillion: f"{H} claims 8000000000000 bytes unpacked",
    forge.trillion_unlisted: f"{H} has the shape [1000000000000]",
    forge.trillion_listed: f"{H} claims 8000000000000 bytes unpacked",
    forge.overflowing_shape: f"{H} claims",
    forge.bomb: f"{H} would unpack",
    forge.bomb_in_a_small_tensor: f"{H} does not inflate to the 32768 bytes",
    forge.bomb_in_a_bomb: f"{H} should be one chunk, shuffled and deflated once",
    forge.bomb_in_the_listing: "its listing has the shape [536870912]",
    forge.bomb_in_the_manifest: "manifest does not inflate to the 62914560 bytes",
    forge.short_chunk: f"{H} does not inflate to the 32768 bytes",
    forge.skipped_filters: f"{H} skips filters of its chunk",
    forge.virtual: f"{X} is stored virtual",
    forge.cycle: "moe/encoder/again is not in the listing",
    forge.cycle_in_place_of_a_dataset: f"{X} ",
    forge.deep: "nests",
    forge.dots: "the name '..' in moe[encoder]",
    forge.outside: "the name '..' in moe[../../encoder]",
    forge.object_strings: f"{X} is stored as another HDF5 type",
    forge.ragged: f"{X} is stored as another HDF5 type",
    forge.references: f"{X} is stored as another HDF5 type",
    forge.compound: f"{X} is stored as another HDF5 type",
    forge.object_dtype_listed: f"{X} has the dtype 'object'",
    forge.unlisted: "moe/encoder/in/y is not in the listing",
    forge.unlisted_group: "mlp/canvas=0 is not in the listing",
    forge.unlisted_type: "kind is not in the listing",
    forge.missing: f"{X} is listed but missing",
    forge.another_dtype: f"{X} is stored as another HDF5 type",
    forge.another_shape: f"{X} has the shape [4, 6]",
    forge.negative_shape: f"{X} has the shape (-4, -6)",
    forge.fractional_shape: f"{X} has the shape (4.0, 6)",
    forge.no_dataspace: f"{X} ",
    forge.resizable: f"{H} has the shape [64, 64] (at most",
    forge.two_chunks: f"{H} should be one chunk",
    forge.never_written: f"{H} should be one chunk",
    forge.contiguous: f"{H} is stored contiguous",
    forge.another_filter: f"{H} should be one chunk",
    forge.unboolean: "mlp/encoder/out/h is bool but has bytes other than 0 and 1",
    forge.wrong_digest: f"the tensor {X} changed",
    forge.no_digest: "the digest 'none'",
    forge.counted_from_the_end: "counts tensors with -1",
    forge.counted_too_far: "the listing cannot be read",
    forge.false_noise: "the forced noise of moe[encoder].h is small",
    forge.no_records: "the listing cannot be read",
    forge.no_listing: "its listing cannot be read",
    forge.no_manifest: "its manifest cannot be read",
    forge.manifest_is_a_list: "its manifest is a JSON list",
    forge.manifest_is_deep: "its manifest is not JSON",
    forge.port_was_imported: "its recorder had imported `port`",
    forge.port_is_not_mentioned: "its recorder had imported `port`, or does not say",
    forge.honest: "whole",
}

LOOK = """
import json, resource, sys
import h5py, numpy as np
from goldens.store import GoldenError, verify
if sys.platform == "linux":  # elsewhere the limit is not kept; the refusals are the same
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
for line in sys.stdin:
    try:
        verify(line.strip())
        print(json.dumps("whole"))
    except GoldenError as error:
        print(json.dumps(error.cause))
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """What a child with little memory says of each hostile golden, by name."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "port", raising=False)
        good = forge.record(folder / "good.h5").read_bytes()
    paths = []
    for edit in HOSTILE:
        paths.append(folder / f"{edit.__name__}.h5")
        paths[-1].write_bytes(good)
        forge.reseal(paths[-1], edit)
    child = subprocess.run(
        [sys.executable, "-c", LOOK],
        input="\n".join(map(str, paths)),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    assert len(answers) == len(paths), f"{paths[len(answers)]}: {child.stderr}"
    return dict(zip((edit.__name__ for edit in HOSTILE), answers, strict=True))


@pytest.mark.parametrize(("edit", "says"), HOSTILE.items(), ids=[edit.__name__ for edit in HOSTILE])
def test_hostile_goldens_are_refused_by_name(refusals, edit, says):
    assert says in refusals[edit.__name__]
