"""How tensors and their names are laid out in a golden: paths, dtypes, digests and the limits both ends keep.

A golden is one HDF5 file. Its tensors lie at ``/<stage>/<occurrence>/{in,out,wide}/<tensor>``, where an occurrence
is one or more segments (``encoder/layer=5``). Two datasets lie beside the stages: ``/manifest`` and ``/listing``.
"""

import hashlib
import math
import re
import zlib

import ml_dtypes
import numpy as np

from goldens.errors import GoldenError

Array = np.ndarray  # any dtype of DTYPES, any rank

SIDES = ("in", "out", "wide")
MANIFEST = "manifest"
LISTING = "listing"

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
BOOL = np.dtype(np.bool_)

# What a tensor's dtype is called -> the little-endian numpy dtype it is stored as.
# HDF5 has no bfloat16: its 16 bits are stored as uint16 and named by the attribute `dtype`.
DTYPES: dict[str, np.dtype] = {
    "bool": BOOL,
    **{f"{kind}int{8 * size}": np.dtype(f"<{kind or 'i'}{size}") for kind in ("", "u") for size in (1, 2, 4, 8)},
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
}

# Limits kept by the writer, and by the reader before it allocates anything.
COMPACT_BYTES = 8 << 10  # larger tensors are chunked; smaller ones too when it makes the file smaller
TENSOR_BYTES = 1 << 31  # one tensor, unpacked
TEXT_BYTES = 64 << 20  # the manifest, or the listing, unpacked
FREE_BYTES = 64 << 20  # up to here a tensor may compress without limit (masks do); above it MAX_RATIO holds
MAX_RATIO = 64
MAX_RANK = 16
MAX_TENSORS = 1_000_000
MAX_SEGMENTS = 16
CHUNK_COST = 96  # bytes of HDF5 bookkeeping a compressed chunk costs over a compact dataset

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+-]{0,127}")


def tensor_path(stage: str, occurrence: str, side: str, tensor: str) -> str:
    """The HDF5 path of a tensor, without the leading slash."""
    return f"{stage}/{occurrence}/{side}/{tensor}"


def check_names(stage: str, occurrence: str, tensors: list[str]) -> None:
    """Refuse names that would not survive as an HDF5 path, or could be mistaken for another.

    Raises:
        GoldenError: a name is empty, has characters outside ``[A-Za-z0-9_.=+-]``, starts with one of ``.=+-``
            (so ``..`` never gets in), is longer than 128, or is a word the layout itself uses.
    """
    segments = occurrence.split("/")
    for name in (stage, *segments, *tensors):
        if not isinstance(name, str) or _SEGMENT.fullmatch(name) is None:
            raise GoldenError(f"the name {name!r} in {stage}[{occurrence}] should match {_SEGMENT.pattern}")
    if stage in (MANIFEST, LISTING):
        raise GoldenError(f"a stage is named {stage!r}, which is the place of the golden's own {stage}")
    if reserved := set(SIDES) & set(segments):
        raise GoldenError(f"{stage}[{occurrence}] uses {sorted(reserved)}: these words name a record's sides")
    if len(segments) > MAX_SEGMENTS:
        raise GoldenError(f"{stage}[{occurrence}] has {len(segments)} segments, at most {MAX_SEGMENTS} are kept")


def check_size(what: str, dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of this dtype and shape, computed without allocating.

    Raises:
        GoldenError: an unknown dtype, an impossible shape, or more than ``TENSOR_BYTES``.
    """
    if dtype not in DTYPES:
        raise GoldenError(f"{what} has the dtype {dtype!r}, which should be one of {', '.join(DTYPES)}")
    if len(shape) > MAX_RANK or any(type(n) is not int or n < 0 for n in shape):
        raise GoldenError(f"{what} has the shape {shape}, which should be at most {MAX_RANK} non-negative integers")
    nbytes = math.prod(shape) * DTYPES[dtype].itemsize
    if nbytes > TENSOR_BYTES:
        raise GoldenError(f"{what} claims {nbytes} bytes unpacked ({dtype} {list(shape)}), the limit is {TENSOR_BYTES}")
    return nbytes


def check_ratio(what: str, nbytes: int, stored: int) -> None:
    """Refuse a large tensor whose stored bytes are implausibly few.

    Raises:
        GoldenError: more than ``FREE_BYTES`` unpacked out of less than one ``MAX_RATIO``-th of that stored.
    """
    if nbytes > FREE_BYTES and nbytes > MAX_RATIO * stored:
        raise GoldenError(
            f"{what} would unpack {stored} bytes to {nbytes}, more than {MAX_RATIO} times: a compression bomb"
        )


def to_storage(what: str, value: object) -> tuple[str, np.ndarray]:
    """A tensor's dtype name and its C-ordered little-endian storage; bits are kept, NaN payloads too.

    Raises:
        GoldenError: ``value`` is not a numpy array or scalar of a dtype in ``DTYPES``, or is over the limits.
    """
    if not isinstance(value, (np.ndarray, np.generic)):
        raise GoldenError(f"{what} is a {type(value).__name__}, which should be a numpy array")
    array = np.asarray(value)
    dtype = "bfloat16" if array.dtype == BFLOAT16 else array.dtype.name
    check_size(what, dtype, array.shape)
    if dtype == "bfloat16":
        array = array.view(np.uint16)
    return dtype, array.astype(DTYPES[dtype], order="C", copy=True)


def from_storage(dtype: str, storage: np.ndarray) -> np.ndarray:
    """The tensor of which ``storage`` holds the bits; shares memory with it."""
    return storage.view(BFLOAT16) if dtype == "bfloat16" else storage


def tensor_digest(dtype: str, storage: np.ndarray) -> str:
    """SHA-256 of a tensor: its dtype and shape as ``float32:2x3:``, then its little-endian bytes in C order."""
    header = f"{dtype}:{'x'.join(map(str, storage.shape))}:".encode()
    return hashlib.sha256(header + storage.tobytes()).hexdigest()


def pack(storage: np.ndarray) -> bytes:
    """A tensor as one HDF5 chunk: shuffled (when elements are wider than a byte) and deflated."""
    raw = storage.reshape(-1).view(np.uint8)
    if storage.itemsize > 1:
        raw = np.ascontiguousarray(raw.reshape(-1, storage.itemsize).T)
    return zlib.compress(raw.tobytes(), 6)


def unpack(what: str, packed: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """The storage that ``pack`` packed. Never inflates beyond what the shape needs.

    Raises:
        GoldenError: the chunk does not inflate to exactly the bytes of this dtype and shape.
    """
    stored = DTYPES[dtype]
    nbytes = check_size(what, dtype, shape)
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(packed, nbytes + 1)
    except zlib.error as error:
        raise GoldenError(f"{what} does not inflate: {error}") from error
    if len(raw) != nbytes or not inflater.eof or inflater.unused_data:
        raise GoldenError(f"{what} does not inflate to the {nbytes} bytes of {dtype} {list(shape)}")
    flat = np.frombuffer(raw, np.uint8)
    if stored.itemsize > 1:
        flat = flat.reshape(stored.itemsize, -1).T
    return flat.copy(order="C").reshape(-1).view(stored).reshape(shape)
