"""Matrices, packed or plain, and the four things the model does with them.

Legend: N rows, I inputs, O outputs, E experts, K experts a row, V vocabulary.
"""

import dataclasses
from typing import Any

import mlx.core as mx

from port.errors import ConfigError, fetch_again

from .weights import Param, Scope


class Matrix:
    """A weight of shape [..., O, I], packed along I where the checkpoint says so.

    Args:
        scope: the module's place; claims `weight`, and `scales` and `biases` when packed.
        shape: the logical shape, inputs last.

    Raises:
        CheckpointError: a tensor is missing or misshapen.
        ConfigError: the inputs cannot be packed by the group size or the bits that the map states.
    """

    def __init__(self, scope: Scope, *shape: int) -> None:
        *rows, inputs = shape
        self.packing = scope.packing()
        self._scales: Param | None = None
        self._biases: Param | None = None
        if self.packing is None:
            self._weight = scope.param("weight", shape)
            return
        bits, group = self.packing.bits, self.packing.group_size
        if inputs % group or inputs * bits % 32:
            raise ConfigError(
                scope.path,
                found=f"{inputs} inputs at {bits} bits in groups of {group}",
                expected="whole groups and whole 32-bit words",
                mend=fetch_again(scope.weights.directory),
            )
        affine = self.packing.mode == "affine"
        self._weight = scope.param("weight", (*rows, inputs * bits // 32), "U32")
        self._scales = scope.param("scales", (*rows, inputs // group), "" if affine else "U8")
        self._biases = scope.param("biases", (*rows, inputs // group)) if affine else None

    @property
    def packed(self) -> bool:
        """Whether the weight is quantized."""
        return self._scales is not None

    def _code(self, ids: mx.array | None = None) -> dict[str, Any]:
        """What every kernel for packed weights has to be told, of all rows or of some; the mode too: codes differ."""
        if self._scales is None or self.packing is None:
            return {}
        scales, biases = self._scales.array, self._biases.array if self._biases else None
        if ids is not None:
            scales, biases = scales[ids], None if biases is None else biases[ids]
        return {"scales": scales, "biases": biases, **dataclasses.asdict(self.packing)}

    def apply(self, x_NI: mx.array) -> mx.array:
        """X W^T: floats [..., I] to [..., O], in the dtype of x."""
        if not self.packed:
            return x_NI @ self._weight.array.T
        return mx.quantized_matmul(x_NI, self._weight.array, transpose=True, **self._code())

    def combine(self, x_NO: mx.array) -> mx.array:
        """X W: floats [..., O] to [..., I], a weighted sum of rows."""
        if not self.packed:
            return x_NO @ self._weight.array
        return mx.quantized_matmul(x_NO, self._weight.array, transpose=False, **self._code())

    def apply_expert(self, x: mx.array, experts: mx.array, *, ordered: bool) -> mx.array:
        """X W_e^T for the expert e of each row; x [..., 1, I], experts as its leading axes, `ordered` if ascending."""
        weight = self._weight.array
        if not self.packed:
            return mx.gather_mm(x, weight.swapaxes(-1, -2), rhs_indices=experts, sorted_indices=ordered)
        return mx.gather_qmm(x, weight, rhs_indices=experts, transpose=True, sorted_indices=ordered, **self._code())

    def rows(self, ids: mx.array) -> mx.array:
        """Rows by index, unpacked: integers [...] to floats [..., I]."""
        rows = self._weight.array[ids]
        return mx.dequantize(rows, **self._code(ids)) if self.packed else rows

    def dense(self) -> mx.array:
        """The whole matrix, unpacked: floats [..., O, I]."""
        return mx.dequantize(self._weight.array, **self._code()) if self.packed else self._weight.array


class Linear:
    """x W^T, plus a bias where the configuration has one.

    Args:
        scope: the module's place.
        inputs: I.
        outputs: O.
        bias: whether `bias` of shape [O] exists.
    """

    def __init__(self, scope: Scope, inputs: int, outputs: int, *, bias: bool = False) -> None:
        self._matrix = Matrix(scope, outputs, inputs)
        self._bias = scope.param("bias", (outputs,)) if bias else None

    @property
    def packed(self) -> bool:
        """Whether the weight is quantized."""
        return self._matrix.packed

    def __call__(self, x_NI: mx.array) -> mx.array:
        """Floats [..., I] to [..., O], in the dtype of x."""
        if self._bias is None:
            return self._matrix.apply(x_NI)
        if self._matrix.packed:
            return self._matrix.apply(x_NI) + self._bias.array
        return mx.addmm(self._bias.array, x_NI, self._matrix.dense().T)
