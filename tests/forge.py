"""Goldens forged with a valid seal: whoever can write a file can seal it. Each edit is one way to harm a reader."""

import hashlib
import json
import zlib

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from goldens import seal
from goldens.store import writing

TRILLION = 10**12
X = "moe/encoder/in/x"
H = "moe/encoder/out/h"


def record(path):
    rng = np.random.default_rng(0)
    with writing(path, {"case": "long", "seed": 3}) as golden:
        golden.put("moe", "encoder", {"x": rng.random((4, 6), np.float32)}, {"h": rng.random((64, 64))})
        golden.put("mlp", "encoder", {"keys": rng.random(5)}, {"h": np.array([True, False])})
    return path


def reseal(path, edit):
    """Edit a golden and its listing (which is left as it is when cleared), then seal it as its recorder would."""
    with h5py.File(path, "r+") as file:
        listing = json.loads(bytes(file["listing"][:]))
        edit(file, listing)
        if listing:
            put_text(file, "listing", json.dumps(listing))
        whole = [n in file and edit.__name__ != f"bomb_in_the_{n}" for n in ("manifest", "listing")]
        texts = [bytes(file[n][:]) if sound else b"" for n, sound in zip(("manifest", "listing"), whole, strict=True)]
    seal.apply(path, *(hashlib.sha256(text).hexdigest() for text in texts))
    return path


def put_text(file, name, text):
    del file[name]
    raw = np.frombuffer(text.encode(), np.uint8)
    file.create_dataset(name, data=raw, chunks=raw.shape, compression="gzip")


def entry(listing, path):
    """The listing's row [dtype, shape, digest] of a path in the first records."""
    stage, occurrence, side, name = path.split("/")
    (row,) = (row for s, o, row in listing["records"] if (s, o) == (stage, occurrence))
    return listing["tensors"][row[side][name]]


def replace(file, path, **how):
    del file[path]
    return file.create_dataset(path, **how)


def claim(file, path, shape, chunk=None, filters=(), data=b"", dtype=h5t.IEEE_F64LE):
    """A dataset of any claimed shape, with the bytes of one chunk given as they are."""
    del file[path]
    plist = h5p.create(h5p.DATASET_CREATE)
    if chunk is not None:
        plist.set_chunk(chunk)
        for add in filters:
            add(plist)
    dataset = h5d.create(file.id, path.encode(), dtype, h5s.create_simple(shape), plist)
    if data:
        dataset.write_direct_chunk((0,) * len(shape), data)


def shuffle(plist):
    plist.set_shuffle()


def deflate(plist):
    plist.set_deflate(6)


def external_link(file, listing):
    del file[X]
    file[X] = h5py.ExternalLink("other.h5", "/x")


def soft_link(file, listing):
    del file[X]
    file[X] = h5py.SoftLink(f"/{H}")


def soft_link_to_listing(file, listing):
    file["moved"] = file["listing"]
    del file["listing"]
    file["listing"] = h5py.SoftLink("/moved")
    listing.clear()


def external_storage(file, listing):
    replace(file, X, shape=(4, 6), dtype="f4", external=[("/etc/passwd", 0, 96)])


def trillion(file, listing):
    claim(file, H, (TRILLION,), (1 << 20,), [shuffle, deflate])
    entry(listing, H)[:2] = ["float64", [TRILLION]]


def trillion_unlisted(file, listing):
    claim(file, H, (TRILLION,), (1 << 20,), [shuffle, deflate])


def trillion_listed(file, listing):
    entry(listing, H)[1] = [TRILLION]


def overflowing_shape(file, listing):
    entry(listing, H)[1] = [2**40, 2**40]


def bomb(file, listing):
    size = 512 << 20
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(512)) + packer.flush()
    claim(file, H, (size,), (size,), [deflate], data, h5t.STD_U8LE)
    entry(listing, H)[:2] = ["uint8", [size]]


def bomb_in_a_small_tensor(file, listing):
    claim(file, H, (64, 64), (64, 64), [shuffle, deflate], zlib.compress(bytes(512 << 20), 1))


def bomb_in_a_bomb(file, listing):
    claim(file, H, (64, 64), (64, 64), [shuffle, deflate, deflate], zlib.compress(zlib.compress(bytes(1 << 20))))


def bomb_in_the_listing(file, listing):
    size = 512 << 20
    claim(file, "listing", (size,), (size,), [deflate], zlib.compress(bytes(1 << 20)), h5t.STD_U8LE)
    listing.clear()


def bomb_in_the_manifest(file, listing):
    size = 60 << 20
    claim(file, "manifest", (size,), (size,), [deflate], zlib.compress(bytes(600 << 20), 1), h5t.STD_U8LE)


def short_chunk(file, listing):
    claim(file, H, (64, 64), (64, 64), [shuffle, deflate], zlib.compress(bytes(100)))


def skipped_filters(file, listing):
    claim(file, H, (64, 64), (64, 64), [shuffle, deflate])
    file[H].id.write_direct_chunk((0, 0), bytes(32768), 3)


def virtual(file, listing):
    layout = h5py.VirtualLayout((4, 6), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (4, 6))
    del file[X]
    file.create_virtual_dataset(X, layout)


def cycle(file, listing):
    file["moe/encoder/again"] = file["moe"]


def cycle_in_place_of_a_dataset(file, listing):
    del file[X]
    file[X] = file["moe"]


def deep(file, listing):
    group = file
    for _ in range(400):
        group = group.create_group("g")


def dots(file, listing):
    file.move(X, "moe/encoder/in/..")
    listing["records"][0][2]["in"] = {"..": listing["records"][0][2]["in"]["x"]}


def outside(file, listing):
    listing["records"][0][1] = "../../encoder"


def object_strings(file, listing):
    replace(file, X, shape=(4, 6), dtype=h5py.string_dtype(), chunks=(4, 6), compression="gzip", shuffle=True)


def ragged(file, listing):
    replace(file, X, shape=(4, 6), dtype=h5py.vlen_dtype(np.float32), chunks=(4, 6), compression="gzip", shuffle=True)


def references(file, listing):
    replace(file, X, shape=(4, 6), dtype=h5py.ref_dtype, chunks=(4, 6), compression="gzip", shuffle=True)


def compound(file, listing):
    replace(file, X, shape=(4, 6), dtype="f4,f4", chunks=(4, 6), compression="gzip", shuffle=True)


def object_dtype_listed(file, listing):
    entry(listing, X)[0] = "object"


def unlisted(file, listing):
    file["moe/encoder/in/y"] = np.zeros(3)


def unlisted_group(file, listing):
    file.create_group("mlp/canvas=0")


def unlisted_type(file, listing):
    file["kind"] = np.dtype("f4")


def missing(file, listing):
    del file[X]


def another_dtype(file, listing):
    entry(listing, X)[0] = "uint32"


def another_shape(file, listing):
    entry(listing, X)[1] = [6, 4]


def negative_shape(file, listing):
    entry(listing, X)[1] = [-4, -6]


def fractional_shape(file, listing):
    entry(listing, X)[1] = [4.0, 6]


def no_dataspace(file, listing):
    replace(file, X, data=h5py.Empty("f4"))


def resizable(file, listing):
    replace(file, H, shape=(64, 64), dtype="f8", maxshape=(None, 64), chunks=(64, 64), compression="gzip", shuffle=True)


def two_chunks(file, listing):
    replace(file, H, data=np.zeros((64, 64)), chunks=(32, 64), compression="gzip", shuffle=True)


def never_written(file, listing):
    claim(file, H, (64, 64), (64, 64), [shuffle, deflate])


def contiguous(file, listing):
    replace(file, H, data=np.zeros((64, 64)))


def another_filter(file, listing):
    replace(file, H, data=np.zeros((64, 64)), chunks=(64, 64), compression="lzf", shuffle=True)


def unboolean(file, listing):
    dataset = file["mlp/encoder/out/h"]
    kind = dataset.id.get_type()
    dataset.id.write(h5s.ALL, h5s.ALL, np.array([1, 7], np.int8).view(bool), kind)


def wrong_digest(file, listing):
    entry(listing, X)[2] = "0" * 64


def no_digest(file, listing):
    entry(listing, X)[2] = "none"


def counted_from_the_end(file, listing):
    listing["records"][0][2]["in"]["x"] = -1


def counted_too_far(file, listing):
    listing["records"][0][2]["in"]["x"] = 99


def false_noise(file, listing):
    listing["records"][0][2]["noise"] = {"h": {"forced": "small", "free": None, "kind": "float64"}}


def no_records(file, listing):
    del listing["records"]


def no_listing(file, listing):
    del file["listing"]
    listing.clear()


def no_manifest(file, listing):
    del file["manifest"]


def manifest_is_a_list(file, listing):
    put_text(file, "manifest", "[]")


def manifest_is_deep(file, listing):
    put_text(file, "manifest", "[" * 200_000)


def port_was_imported(file, listing):
    put_text(file, "manifest", '{"port_imported": true}')


def port_is_not_mentioned(file, listing):
    put_text(file, "manifest", "{}")


def honest(file, listing):
    """Resealed and otherwise untouched: what the helpers do is not what is refused."""
