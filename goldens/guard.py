"""The only way into the HDF5 data of a golden: nothing is followed, inflated or allocated before it is checked.

Only what the writer writes is accepted: hard links, simple dataspaces of fixed size, the dtypes of ``layout``, data
kept in the object header or in one shuffled and deflated chunk. The chunk is inflated here, bounded by its shape,
and not by the HDF5 library.
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5l, h5s, h5t, h5z

from goldens.errors import GoldenError
from goldens.layout import (
    DTYPES,
    LISTING,
    MANIFEST,
    MAX_SEGMENTS,
    MAX_TENSORS,
    TEXT_BYTES,
    check_ratio,
    check_size,
    tensor_digest,
    unpack,
)
from goldens.listing import Entry

HDF5_ERRORS = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError)
HDF5_TYPES: dict[str, Any] = {name: h5t.py_create(dtype) for name, dtype in DTYPES.items()}
_LAYOUTS = {h5d.CONTIGUOUS: "contiguous", h5d.VIRTUAL: "virtual (its data lie in other files)"}
_LINKS = {h5l.TYPE_SOFT: "a soft link", h5l.TYPE_EXTERNAL: "an external link"}
UNOPENED = "HDF5 cannot read it"
_MAX_LINKS = 8 * MAX_TENSORS


def open_file(path: Path) -> h5py.File:
    """Open for reading, without locks, so that goldens on a read-only medium can be judged against.

    Raises:
        GoldenError: the HDF5 library cannot open it.
    """
    try:
        return h5py.File(path, "r", locking=False)
    except HDF5_ERRORS as error:
        raise GoldenError(f"{UNOPENED}: {error}", path) from error


def links(file: h5py.File) -> set[str]:
    """Names of all links, by path from the root, each group visited once.

    Raises:
        GoldenError: a link that is not hard, or groups nested or linked beyond what a golden has.
    """
    found: set[str] = set()

    def visit(raw: bytes, info: Any) -> str | None:
        name = raw.decode("utf-8", "replace")
        if info.type != h5l.TYPE_HARD:
            return f"{name} is {_LINKS.get(info.type, 'a user-defined link')}: a golden holds its own data"
        found.add(name)
        if name.count("/") > MAX_SEGMENTS + 4:
            return f"{name[:80]}... nests {name.count('/')} deep: a cycle, or not a golden"
        return f"it has more than {_MAX_LINKS} links" if len(found) > _MAX_LINKS else None

    try:
        wrong = file.id.links.visit(visit, info=True)
    except HDF5_ERRORS as error:
        raise GoldenError(f"HDF5 cannot list it: {error}") from error
    if wrong is not None:
        raise GoldenError(wrong)
    return found


def check_links(found: set[str], listed: set[str]) -> None:
    """Every link is a listed tensor, or a group on the way to one, and every listed tensor is there.

    Raises:
        GoldenError: names the first link or tensor that is not.
    """
    groups = {MANIFEST, LISTING}
    for path in listed:
        parent = path.rpartition("/")[0]
        while parent and parent not in groups:
            groups.add(parent)
            parent = parent.rpartition("/")[0]
    if missing := listed - found:
        raise GoldenError(f"{_some(missing)} is listed but missing")
    if unlisted := found - listed - groups:
        raise GoldenError(f"{_some(unlisted)} is not in the listing")


def read(file: h5py.File, path: str, dtype: str, shape: tuple[int, ...], file_bytes: int) -> np.ndarray:
    """The storage of one tensor (see ``layout.to_storage``), in fresh memory.

    Args:
        file: an open golden.
        path: the dataset's path; its links have been checked.
        dtype: the dtype name it must have.
        shape: the shape it must have.
        file_bytes: size of the whole file, which no stored tensor exceeds.

    Raises:
        GoldenError: the dataset is anything else.
    """
    nbytes = check_size(path, dtype, shape)
    try:
        dataset = h5d.open(file.id, path.encode())
        chunked = _check(dataset, path, dtype, shape)
        stored = dataset.get_storage_size()
        if stored > file_bytes or (not chunked and stored != nbytes):
            raise GoldenError(f"{path} claims {stored} stored bytes for {nbytes}, in a file of {file_bytes}")
        if chunked:
            check_ratio(path, nbytes, stored)
            skipped, packed = dataset.read_direct_chunk((0,) * len(shape))
            if skipped:
                raise GoldenError(f"{path} skips filters of its chunk")
            storage = unpack(path, packed, dtype, shape)
        else:
            storage = np.empty(shape, DTYPES[dtype])
            dataset.read(h5s.ALL, h5s.ALL, storage, HDF5_TYPES[dtype])
    except HDF5_ERRORS as error:
        raise GoldenError(f"{path} cannot be read: {error}") from error
    if dtype == "bool" and storage.size and storage.view(np.uint8).max() > 1:
        raise GoldenError(f"{path} is bool but has bytes other than 0 and 1")
    return storage


def check(file: h5py.File, path: str, entry: Entry, file_bytes: int) -> None:
    """Hold one dataset's bits, and the attributes a plain HDF5 reader sees, to its entry in the listing.

    Raises:
        GoldenError: they differ.
    """
    storage = read(file, path, entry.dtype, entry.shape, file_bytes)
    if tensor_digest(entry.dtype, storage) != entry.sha256:
        raise GoldenError(f"the tensor {path} changed: its SHA-256 is not the recorded one")
    expected = {"sha256": entry.sha256} | ({"dtype": entry.dtype} if entry.dtype == "bfloat16" else {})
    for name, value in expected.items():
        if (found := _attribute(file, path, name, len(value))) != value:
            raise GoldenError(f"the attribute {name} of {path} is {found!r}, which should be {value!r}")


def read_text(file: h5py.File, path: str, file_bytes: int) -> str:
    """The manifest's or the listing's JSON text.

    Raises:
        GoldenError: it is missing, too long, or not UTF-8.
    """
    try:
        shape = h5d.open(file.id, path.encode()).get_space().get_simple_extent_dims()
    except HDF5_ERRORS as error:
        raise GoldenError(f"its {path} cannot be read: {error}") from error
    if len(shape) != 1 or shape[0] > TEXT_BYTES:
        raise GoldenError(f"its {path} has the shape {list(shape)}, which should be at most {TEXT_BYTES} bytes")
    try:
        return read(file, path, "uint8", shape, file_bytes).tobytes().decode()
    except UnicodeDecodeError as error:
        raise GoldenError(f"its {path} is not UTF-8: {error}") from error


def _attribute(file: h5py.File, path: str, name: str, length: int) -> str:
    """A dataset's attribute, a scalar text of ``length`` bytes."""
    kind = h5t.py_create(np.dtype(f"S{length}"))
    try:
        attribute = h5a.open(h5d.open(file.id, path.encode()), name.encode())
        if attribute.get_space().get_simple_extent_type() != h5s.SCALAR or not attribute.get_type().equal(kind):
            raise GoldenError(f"the attribute {name} of {path} should be a text of {length} bytes")
        value = np.empty((), f"S{length}")
        attribute.read(value)
    except HDF5_ERRORS as error:
        raise GoldenError(f"the attribute {name} of {path} cannot be read: {error}") from error
    return bytes(value[()]).decode("ascii", "replace")


def _check(dataset: Any, path: str, dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether the dataset is chunked (else compact), once it is known to be one the writer writes."""
    plist = dataset.get_create_plist()
    layout = plist.get_layout()
    if layout not in (h5d.CHUNKED, h5d.VIRTUAL) and plist.get_external_count():
        raise GoldenError(f"{path} keeps its data in an external file")
    if layout not in (h5d.COMPACT, h5d.CHUNKED):
        raise GoldenError(f"{path} is stored {_LAYOUTS.get(layout, layout)}, which should be compact or chunked")
    if not dataset.get_type().equal(HDF5_TYPES[dtype]):
        raise GoldenError(f"{path} is stored as another HDF5 type than that of {dtype}")
    space = dataset.get_space()
    if space.get_simple_extent_type() not in (h5s.SCALAR, h5s.SIMPLE):
        raise GoldenError(f"{path} has no dataspace, which should be {list(shape)}")
    actual, largest = space.get_simple_extent_dims(), space.get_simple_extent_dims(True)
    if actual != shape or largest != shape:
        raise GoldenError(f"{path} has the shape {list(actual)} (at most {list(largest)}), listed is {list(shape)}")
    if layout == h5d.COMPACT:
        return False
    filters = [plist.get_filter(i)[0] for i in range(min(plist.get_nfilters(), 3))]
    shuffled = [h5z.FILTER_SHUFFLE] if DTYPES[dtype].itemsize > 1 else []
    if plist.get_chunk() != shape or filters != [*shuffled, h5z.FILTER_DEFLATE] or dataset.get_num_chunks() != 1:
        raise GoldenError(f"{path} should be one chunk, {'shuffled and ' if shuffled else ''}deflated once")
    return True


def _some(names: set[str]) -> str:
    first, *rest = sorted(names)
    return f"{first} (and {len(rest)} more)" if rest else first
