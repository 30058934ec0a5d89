"""Creating HDF5 files whose bytes depend on nothing but what is put into them: no clock time, one format version."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5g, h5p, h5s, h5t

from goldens.guard import HDF5_TYPES


def create_file(path: Path, seal_bytes: int) -> h5py.File:
    """Create (or truncate) an HDF5 file that keeps ``seal_bytes`` free in front and holds no clock time.

    The format is that of HDF5 1.10: the oldest with compact groups and single chunks, and readable everywhere.
    """
    fcpl, fapl = h5p.create(h5p.FILE_CREATE), h5p.create(h5p.FILE_ACCESS)
    fcpl.set_userblock(seal_bytes)
    fcpl.set_obj_track_times(False)
    fapl.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
    fapl.set_fclose_degree(h5f.CLOSE_STRONG)
    fapl.set_file_locking(False, True)
    return h5py.File(h5f.create(str(path).encode(), h5f.ACC_TRUNC, fcpl, fapl))


def create_group(parent: Any, name: str) -> Any:
    """Create a group in ``parent`` (low-level ids)."""
    plist = h5p.create(h5p.GROUP_CREATE)
    plist.set_obj_track_times(False)
    return h5g.create(parent, name.encode(), gcpl=plist)


def create_dataset(parent: Any, name: str, dtype: str, storage: np.ndarray, packed: bytes | None) -> Any:
    """Create a dataset in ``parent`` (low-level ids), in one chunk or, where ``packed`` is None, in its own header.

    Args:
        parent: the group.
        name: the dataset's name.
        dtype: a name in ``layout.DTYPES``.
        storage: the tensor's storage, any shape.
        packed: the storage as ``layout.pack`` packs it, or None.
    """
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_obj_track_times(False)
    if packed is None:
        plist.set_layout(h5d.COMPACT)
    else:
        plist.set_chunk(storage.shape)
        plist.set_fill_time(h5d.FILL_TIME_NEVER)
        if storage.itemsize > 1:
            plist.set_shuffle()
        plist.set_deflate(6)
    space = h5s.create_simple(storage.shape) if storage.shape else h5s.create(h5s.SCALAR)
    dataset = h5d.create(parent, name.encode(), HDF5_TYPES[dtype], space, plist)
    if packed is not None:
        dataset.write_direct_chunk((0,) * storage.ndim, packed)
    elif storage.size:
        dataset.write(h5s.ALL, h5s.ALL, storage, HDF5_TYPES[dtype])
    return dataset


def attach(dataset: Any, name: str, text: str) -> None:
    """Attach an ASCII text of fixed length as an attribute."""
    kind = h5t.py_create(np.dtype(f"S{len(text)}"))
    h5a.create(dataset, name.encode(), kind, h5s.create(h5s.SCALAR)).write(np.array(text.encode()))
