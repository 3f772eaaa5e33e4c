"""A Transformer's weights as C reads them: the structs of regard/kernels/native/decoder/stack.h.

They are filled from modules with packed weights, or from the same structure of arrays (transformer_arrays.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, Structure, c_float, c_int, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.decoding.cpu.c_matrix import FLOAT_PARTS, CMatrix, MatrixStruct, as_array
from regard.decoding.cpu.network_settings import ACTIVATIONS

if TYPE_CHECKING:
    from torch import Tensor

    from regard.decoding.cpu.transformer_arrays import BlockArrays, StackArrays
    from regard.layers.block import Block
    from regard.models.stack import Stack

MAX_SPARSE_BYTES = 2**20  # of a matrix that is also stored input by input, of which rows with many zeros read parts


class NormStruct(Structure):
    """The struct Norm of stack.h; the classes below mirror its other structs."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("eps", c_float), ("rms", c_int))


class BlockStruct(Structure):
    _fields_ = (
        *((name, MatrixStruct) for name in ("qkv", "out", "cross_q", "cross_kv", "cross_out", "up", "down")),
        *((name, NormStruct) for name in ("self_norm", "cross_norm", "feed_norm")),
    )


class StackStruct(Structure):
    _fields_ = (
        *((name, c_int) for name in ("layers", "dim", "heads", "kv_heads", "pre", "crosses", "activation")),
        ("rotated", c_int),
        ("interleaved", c_int),
        ("recurrent", c_int),
        ("final_norm", NormStruct),
        ("blocks", POINTER(BlockStruct)),
    )


def rotary_of(stack: Stack | StackArrays) -> Any:
    """Return the rotary positions of a stack, or None if it has others."""
    position: Any = getattr(stack.blocks[0].self_attention, "position", None)  # an SSRU has none
    return position if position is not None and "position Rotary" in position.traits else None


def is_recurrent(block: Block | BlockArrays) -> bool:
    """Whether a block has an SSRU in place of self-attention."""
    return hasattr(block.self_attention, "forget")


class StructMaker:
    """Makes structs from modules or arrays, and keeps alive what they point to."""

    def __init__(self, library: Any, *, projects_source: bool) -> None:
        self.library, self.projects_source = library, projects_source
        self.referenced: list[Any] = []
        self.matrix_bytes = 0  # of all matrices so far

    def stack(self, stack: Stack | StackArrays) -> StackStruct:
        """Describe a stack whose blocks are alike (decoder_layout.why_not_alike)."""
        blocks: Sequence[Any] = stack.blocks
        first: Any = blocks[0]
        recurrent = is_recurrent(first)
        attention: Any = first.cross_attention if recurrent else first.self_attention
        sizes, rotary = attention.input.sizes, rotary_of(stack)
        structs = (BlockStruct * len(blocks))(*map(self.block, blocks))
        self.referenced.append(structs)
        return StackStruct(
            layers=len(blocks),
            dim=attention.dim,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            pre=first.order == "pre",
            crosses=first.cross_attention is not None,
            activation=ACTIVATIONS.index(first.feed_forward.activation),
            rotated=0 if rotary is None else rotary.rotated_dim,
            interleaved=rotary is not None and rotary.layout == "interleaved",
            recurrent=recurrent,
            final_norm=NormStruct() if stack.norm is None else self.norm(stack.norm),
            blocks=structs,
        )

    def block(self, block: Block | BlockArrays) -> BlockStruct:
        attention: Any = block.self_attention
        cross: Any = block.cross_attention
        feed: Any = block.feed_forward
        struct = BlockStruct(
            qkv=self.matrix(attention.input.weight, attention.input.bias),
            out=self.linear(attention.forget if is_recurrent(block) else attention.output),
            up=self.linear(feed.up),
            down=self.linear(feed.down, sparse=feed.activation == "relu"),
            self_norm=self.norm(block.self_norm),
            feed_norm=self.norm(block.feed_norm),
        )
        if cross is not None:
            queries = cross.heads * cross.d_k
            struct.cross_q = self._rows(cross.input, slice(0, queries))
            if self.projects_source:
                struct.cross_kv = self._rows(cross.input, slice(queries, sum(cross.input.rows)))
            struct.cross_out, struct.cross_norm = self.linear(cross.output), self.norm(block.cross_norm)
        return struct

    def linear(self, linear: Any, *, sparse: bool = False) -> MatrixStruct:
        return self.matrix(linear.weight, linear.bias, sparse=sparse)

    def matrix(self, weight: Any, bias: Tensor | np.ndarray | None, *, sparse: bool = False) -> MatrixStruct:
        """Describe a packed weight or an array; with `sparse` for rows with many zeros, where that pays."""
        is_array = isinstance(weight, np.ndarray)
        matrix = CMatrix.of_floats(self.library, weight) if is_array else weight.c_matrix(self.library)
        self.referenced.append(matrix)
        self.matrix_bytes += matrix.numbers.nbytes
        struct = MatrixStruct.from_buffer_copy(matrix.struct)
        struct.bias = None if bias is None else self.pointer(bias)
        if sparse and struct.parts < FLOAT_PARTS and not struct.bits and matrix.numbers.nbytes <= MAX_SPARSE_BYTES:
            struct.by_input = matrix.by_input().ctypes.data
        return struct

    def norm(self, norm: Any) -> NormStruct:
        bias = getattr(norm, "bias", None)
        return NormStruct(
            weight=self.pointer(norm.weight),
            bias=None if bias is None else self.pointer(bias),
            eps=norm.eps,
            rms="RMSNorm" in norm.traits,
        )

    def pointer(self, numbers: Tensor | np.ndarray) -> int:
        self.referenced.append(np.ascontiguousarray(as_array(numbers)))
        return self.referenced[-1].ctypes.data

    def _rows(self, projection: Any, rows: slice) -> MatrixStruct:
        """Describe some rows of a stacked projection."""
        return self.matrix(projection.weight[rows], None if projection.bias is None else projection.bias[rows])
