"""The store of goldens: one HDF5 file for a model and case, written whole, read only as it was written.

    with writing(path, manifest) as golden:
        golden.put("moe", "encoder/layer=5", ins, outs, wide=deltas, noise=noise)

    with Golden.open(path) as golden:
        record = golden.read("moe", "encoder/layer=5")

``layout`` says where things lie, ``seal`` how a file answers for itself, ``guard`` what a reader accepts,
``diagnose`` how a broken file's cause is found.
"""

from goldens.errors import GoldenError
from goldens.reader import Golden, Record, verify
from goldens.writer import Writer, writing

__all__ = ["Golden", "GoldenError", "Record", "Writer", "verify", "writing"]
