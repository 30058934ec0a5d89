"""A golden gives back every bit it was given, is whole or absent, and says what it holds."""

import json
import sys

import h5py
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldens import layout
from goldens.store import Golden, GoldenError, verify, writing

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {name: BF16 if name == "bfloat16" else dtype for name, dtype in layout.DTYPES.items()}
MANIFEST = {"case": {"name": "long"}, "compute": "bfloat16"}
NOISE = {"h": {"forced": 0.25, "free": None, "kind": "float64"}}

deterministic = settings(deadline=None, max_examples=60, derandomize=True, database=None)


@pytest.fixture(autouse=True)
def _no_port(monkeypatch):
    """Other tests of this process may have imported the port; these are no recordings of an oracle."""
    monkeypatch.delitem(sys.modules, "port", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("goldens")


def record(path, records, manifest=MANIFEST):
    """Write records given as {(stage, occurrence): (ins, outs)}."""
    with writing(path, manifest) as golden:
        for (stage, occurrence), (ins, outs) in records.items():
            golden.put(stage, occurrence, ins, outs)
    return path


def small(path):
    h = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return record(
        path,
        {
            ("moe", "encoder/layer=5"): ({"x": h.astype(BF16)}, {"h": h}),
            ("moe", "canvas=0/step=2/layer=3"): ({"x": h}, {"h": -h, "none": h[:0]}),
            ("config", "checkpoint"): ({}, {"names": np.frombuffer(b"hidden_size", np.uint8)}),
        },
    )


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@st.composite
def tensors(draw):
    dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    size = int(np.prod(shape, dtype=int))
    if dtype == np.bool_:
        bits = bytes(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    else:
        bits = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    tensor = np.frombuffer(bits, dtype).reshape(shape)
    if draw(st.booleans()) and tensor.size:  # the same block again and again: compressed, in a chunk
        tensor = np.tile(tensor, (300,) + (1,) * max(0, tensor.ndim - 1))
    return tensor.T if draw(st.booleans()) else tensor


@deterministic
@given(ins=st.dictionaries(st.sampled_from(["x", "mask", "keys.0"]), tensors()), out=tensors())
def test_every_bit_comes_back(folder, ins, out):
    path = record(folder / "bits.h5", {("moe", "encoder/layer=0"): (ins, {"h": out})})
    verify(path)
    with Golden.open(path) as golden:
        back = golden.read("moe", "encoder/layer=0")
    assert back.ins.keys() == ins.keys()
    assert all(same(back.ins[name], tensor) for name, tensor in ins.items())
    assert same(back.outs["h"], out)


@deterministic
@given(out=tensors())
def test_plain_h5py_sees_the_same_bits(folder, out):
    path = record(folder / "plain.h5", {("moe", "encoder"): ({}, {"h": out})})
    with h5py.File(path) as file:
        dataset = file["moe/encoder/out/h"]
        plain = np.asarray(dataset[()])
        named = dataset.attrs.get("dtype", b"").decode()
        digest = dataset.attrs["sha256"].decode()
    assert plain.tobytes() == out.tobytes()
    assert plain.shape == out.shape
    assert (named, plain.dtype) == (("bfloat16", np.uint16) if out.dtype == BF16 else ("", out.dtype))
    with Golden.open(path) as golden:
        assert golden.payload() == {"moe/encoder/out/h": digest}


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        (
            "bfloat16",
            [0x7FC1, 0xFF81, 0x8000, 0x0001, 0x7F80],
        ),  # quiet and signalling NaN payloads, -0.0, subnormal, inf
        ("float16", [0x7E01, 0xFC01, 0x8000, 0x0001, 0x7C00]),
        ("float32", [0x7FC00001, 0xFF800001, 0x80000000, 1, 0x7F800000]),
        ("float64", [0x7FF8000000000001, 0xFFF0000000000001, 1 << 63, 1, 0x7FF0000000000000]),
    ],
)
@pytest.mark.parametrize("repeat", [1, 5000])
def test_nan_payloads_and_signed_zeros(folder, dtype, bits, repeat):
    unsigned = np.array(bits * repeat, f"<u{DTYPES[dtype].itemsize}")
    path = record(folder / "nan.h5", {("moe", "encoder"): ({"x": unsigned.view(DTYPES[dtype])}, {"h": unsigned})})
    with Golden.open(path) as golden:
        back = golden.read("moe", "encoder")
    assert back.ins["x"].dtype == DTYPES[dtype]
    assert np.array_equal(back.ins["x"].view(unsigned.dtype), unsigned)


def test_what_a_golden_says_of_itself(folder):
    with Golden.open(small(folder / "small.h5")) as golden:
        assert golden.manifest == MANIFEST | {"port_imported": False}
        assert golden.stages() == ["moe", "config"]
        assert golden.occurrences("moe") == ["encoder/layer=5", "canvas=0/step=2/layer=3"]
        assert golden.occurrences("router") == []
        assert golden.shapes("moe", "encoder/layer=5")["in"] == {"x": ("bfloat16", (2, 3, 4))}
        with pytest.raises(GoldenError, match=r"router\[encoder\] is not recorded"):
            golden.read("router", "encoder")
        first, again = golden.read("config", "checkpoint"), golden.read("config", "checkpoint")
        first.outs["names"][:] = 0
        assert again.outs["names"].tobytes() == b"hidden_size"


def test_records_outlive_the_file(folder):
    with Golden.open(small(folder / "outlive.h5")) as golden:
        kept = golden.read("moe", "canvas=0/step=2/layer=3")
    assert kept.outs["h"].sum() == -276


def test_wide_reference_and_noise(folder):
    h = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    delta = np.full((3, 4), 2.0**-20)
    with writing(folder / "wide.h5", MANIFEST) as golden:
        golden.put("moe", "encoder", {"x": h}, {"h": h, "top": h > 0}, wide={"h": delta}, noise=NOISE)
    verify(folder / "wide.h5")
    with Golden.open(folder / "wide.h5") as golden:
        back = golden.read("moe", "encoder")
        payload = golden.payload()
    assert back.noise == NOISE
    assert back.wide["h"].dtype == BF16
    assert np.array_equal(back.reference("h"), h.astype(np.float64) + delta)
    assert {"moe/encoder/wide/h", "moe/encoder/noise"} <= payload.keys()


def test_the_same_payload_gives_the_same_bytes(folder):
    first = small(folder / "first.h5").read_bytes()
    assert small(folder / "second.h5").read_bytes() == first


def test_a_stage_digest_follows_that_stage_alone(folder):
    def digests(value, noise):
        with writing(folder / "digest.h5", MANIFEST) as golden:
            golden.put("moe", "encoder", {}, {"h": np.float32([value])}, noise={"h": NOISE["h"] | {"forced": noise}})
            golden.put("mlp", "encoder", {}, {"h": np.float32([1])})
        with Golden.open(folder / "digest.h5") as golden:
            return golden.digest("moe"), golden.digest("mlp")

    moe, mlp = digests(1, 0.5)
    assert digests(1, 0.5) == (moe, mlp)
    for changed in (digests(2, 0.5), digests(1, 0.25)):
        assert changed[0] != moe
        assert changed[1] == mlp


def test_equal_tensors_are_stored_once(folder):
    x = np.random.default_rng(0).integers(0, 255, 50_000, np.uint8)
    path = record(folder / "once.h5", {("moe", f"layer={i}"): ({"x": x}, {"h": x}) for i in range(10)})
    assert path.stat().st_size < 2 * x.nbytes
    with h5py.File(path) as file:
        assert file["moe/layer=0/in/x"] == file["moe/layer=9/out/h"]


def test_a_thousand_small_tensors_cost_little(folder):
    rng = np.random.default_rng(0)
    records = {
        (stage, f"{run}/layer={layer}"): (
            {name: rng.integers(0, 1 << 16, 8, np.uint16) for name in ("x", "mask", "past_keys", "past_values")},
            {"h": rng.integers(0, 1 << 16, 8, np.uint16)},
        )
        for stage in ("attention", "mlp", "moe", "router", "layer")
        for run in ("encoder", "canvas=0/step=2", "canvas=0/step=1", "canvas=1/encoder", "canvas=1/step=1")
        for layer in range(8)
    }
    path = record(folder / "thousand.h5", records)
    payload = 5 * 16 * len(records)
    assert len(records) * 5 == 1000
    assert path.stat().st_size - payload < 460_000
    verify(path)


def test_the_manifest_is_readable_with_plain_h5py(folder):
    with h5py.File(small(folder / "manifest.h5")) as file:
        assert json.loads(bytes(file["manifest"][:]))["case"] == {"name": "long"}
