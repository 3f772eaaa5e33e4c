"""A whole translation model as C reads it: the struct Network of regard/kernels/native/decoder/network.h.

n positions   r rotated numbers of a head   p model width
"""

from __future__ import annotations

from ctypes import Structure, c_float, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.decoding.cpu.c_matrix import MatrixStruct, as_array
from regard.decoding.cpu.c_structs import StackStruct, StructMaker, rotary_of

if TYPE_CHECKING:
    from regard.decoding.cpu.transformer_arrays import TransformerArrays
    from regard.models.transformer import Transformer

MIN_POSITIONS = 256  # for which tables are made at first


class EmbeddingStruct(Structure):
    """The struct Embedding of network.h; the classes below mirror its other structs."""

    _fields_ = (*((name, c_void_p) for name in ("rows", "numbers", "scales", "positions")), ("factor", c_float))


class AnglesStruct(Structure):
    _fields_ = (("cosines", c_void_p), ("sines", c_void_p))


class NetworkStruct(Structure):
    _fields_ = (
        *((name, StackStruct) for name in ("encoder", "decoder")),
        *((name, EmbeddingStruct) for name in ("source", "target")),
        *((name, AnglesStruct) for name in ("source_angles", "target_angles")),
        ("output", MatrixStruct),
    )


class CNetwork:
    """A model with packed weights, or its arrays, as C translates with it."""

    def __init__(self, model: Transformer | TransformerArrays, library: Any) -> None:
        self.maker = StructMaker(library, projects_source=True)
        self.sides: list[tuple[str, Any, Any]] = [
            ("source", model.source, model.encoder),
            ("target", model.target, model.decoder),
        ]
        table, bias = model.output_table
        self.source_vocabulary, self.target_vocabulary = len(model.source.embedding.weight), len(table)
        limits = [side.position.max_length for _, side, _ in self.sides if has_scheme(side, "Learned")]
        self.max_positions: int | None = min(limits, default=None)  # of models with learned positions
        decoder = self.maker.stack(model.decoder)
        self.weight_bytes = self.maker.matrix_bytes  # that a step reads, but for the output
        self.struct = NetworkStruct(
            encoder=self.maker.stack(model.encoder),
            decoder=decoder,
            source=self._embedding(model.source),
            target=self._embedding(model.target),
            output=self.maker.matrix(table, bias),
        )
        self.tables: tuple[int, NetworkStruct, list[np.ndarray]] = 0, self.struct, []

    def for_positions(self, count: int) -> tuple[NetworkStruct, list[np.ndarray]]:
        """Return the struct for texts of up to `count` tokens, and the arrays that it needs alive."""
        length, struct, arrays = self.tables
        if count > length:
            length = max(MIN_POSITIONS, 2 * count)
            struct, arrays = self._with_tables(length)
            self.tables = length, struct, arrays  # in one assignment: other threads may read it
        return struct, arrays

    def _with_tables(self, length: int) -> tuple[NetworkStruct, list[np.ndarray]]:
        struct, arrays = NetworkStruct.from_buffer_copy(self.struct), []
        for name, side, stack in self.sides:
            if has_scheme(side, "Sinusoidal"):
                arrays.append(sinusoidal_rows(side.position, length))
                getattr(struct, name).positions = arrays[-1].ctypes.data
            elif has_scheme(side, "Learned"):
                arrays.append(np.ascontiguousarray(as_array(side.position.table)))
                getattr(struct, name).positions = arrays[-1].ctypes.data
            if (rotary := rotary_of(stack)) is not None:
                angles = np.arange(length, dtype=np.float32)[:, None] * rotary_frequencies(rotary)  # (n, r/2)
                arrays += [np.cos(angles), np.sin(angles)]
                setattr(struct, f"{name}_angles", AnglesStruct(*(array.ctypes.data for array in arrays[-2:])))
        return struct, arrays

    def _embedding(self, side: Any) -> EmbeddingStruct:
        weight = side.embedding.weight  # packed, int8, in groups, or an array
        weight = weight.plain() if hasattr(weight, "groups") else weight
        numbers, scales = getattr(weight, "numbers", weight), getattr(weight, "scales", None)
        struct = EmbeddingStruct(factor=side.embedding.factor)
        if scales is None:
            struct.rows = self.maker.pointer(numbers)
        else:
            struct.numbers, struct.scales = self.maker.pointer(numbers), self.maker.pointer(scales)
        return struct


def has_scheme(side: Any, name: str) -> bool:
    """Whether the positions that are added to the embeddings of a side are of this class."""
    return side.position is not None and f"position {name}" in side.position.traits


def sinusoidal_rows(position: Any, length: int) -> np.ndarray:
    """Return the vectors of the positions 0 … length - 1, (n, p); see positions/sinusoids.py."""
    dim = position.dim
    i = np.arange(position.first, position.first + (dim + 1) // 2, dtype=np.float64)
    angles = (np.arange(length) + position.start)[:, None] * position.base ** (-2 * i / dim)  # (n, ceil(p / 2))
    rows = np.empty((length, dim), dtype=np.float32)
    if position.layout == "halves":
        rows[:, : len(i)], rows[:, len(i) :] = np.sin(angles), np.cos(angles)[:, : dim // 2]
    else:
        rows[:, 0::2], rows[:, 1::2] = np.sin(angles), np.cos(angles)[:, : dim // 2]
    return rows


def rotary_frequencies(rotary: Any) -> np.ndarray:
    """Return the angle of one step for each pair, (r/2,), in float32; see positions/rotary.py."""
    if rotary.scaling is not None:  # a function of tensors
        return as_array(rotary.frequencies())
    c = np.arange(0, rotary.rotated_dim, 2, dtype=np.float32)  # this is 2c
    return np.float32(1) / np.float32(rotary.base) ** (c / np.float32(rotary.rotated_dim))
