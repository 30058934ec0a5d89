"""The port as another backend would compute it: packed matrices unpacked, and multiplied in float32.

Kernels for packed weights are what backends differ in most. Put into the port in memory, as planted bugs are; the
canary then names what differs, so that the exact tier declines and the portable one judges.
"""

from .planted import Mutant, plant

MODEL = "diffusion_gemma"  # the other model packs nothing
PRIMITIVE = {"products of packed weights": "unpacked, in float32"}  # beside the canary's own
WHY = "The product is made of unpacked weights in float32, and rounded once."

EDITS = (
    Mutant("dense products", "logits", "linear.Matrix.apply",
      "return mx.quantized_matmul(x_NI, self._weight.array, transpose=True, **self._code())",
      "dense, kept = self.dense(), self._code()['scales'].dtype\n"
      "        return (x_NI.astype(mx.float32) @ dense.astype(mx.float32).T).astype(kept)",
      WHY, ()),
    Mutant("dense sums of rows", "soft_embeddings", "linear.Matrix.combine",
      "return mx.quantized_matmul(x_NO, self._weight.array, transpose=False, **self._code())",
      "dense, kept = self.dense(), self._code()['scales'].dtype\n"
      "        return (x_NO.astype(mx.float32) @ dense.astype(mx.float32)).astype(kept)",
      WHY, ()),
    Mutant("dense experts", "moe", "linear.Matrix.apply_expert",
      "return mx.gather_qmm(x, weight, rhs_indices=experts, transpose=True, sorted_indices=ordered, **self._code())",
      "dense, kept = self.dense().astype(mx.float32), self._code()['scales'].dtype\n"
      "        return mx.gather_mm(\n"
      "            x.astype(mx.float32), dense.swapaxes(-1, -2), rhs_indices=experts, sorted_indices=ordered\n"
      "        ).astype(kept)",
      WHY, ()),
)  # fmt: skip


def compute() -> None:
    """Let this process' port compute so from now on; before any bug is planted, which may sit in the same functions."""
    for edit in EDITS:
        plant(MODEL, edit)
