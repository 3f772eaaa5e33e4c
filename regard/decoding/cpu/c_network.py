"""A whole translation model as C reads it: the struct Network of regard/kernels/native/network.h.

n positions   r rotated numbers of a head   p model width
"""

from __future__ import annotations

from ctypes import Structure, c_float, c_void_p
from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding import decoder_layout
from regard.decoding.cpu.c_decoder import why_not as why_not_step
from regard.decoding.cpu.c_matrix import MatrixStruct
from regard.decoding.cpu.c_structs import StackStruct, StructMaker, rotary_of
from regard.decoding.cpu.packed_weight import Int8Weight, PackedWeight, Weight
from regard.decoding.decoder_layout import BLOCK_TRAITS, INPUT_TRAITS, why_not_alike
from regard.models.stack import Stack, TokenInput
from regard.models.transformer import Transformer
from regard.positions.absolute import Learned, Sinusoidal
from regard.traits import traits_of, why_not_known

KNOWN_TRAITS = BLOCK_TRAITS | INPUT_TRAITS | {"position Position", "position Sinusoidal", "position Learned"}
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


def why_not(model: nn.Module) -> str | None:
    """Return the reason why C cannot translate with this model, or None if it can."""
    if not isinstance(model, Transformer):
        return f"a {type(model).__name__} is no Transformer that translates"
    reason = why_not_step(model) or decoder_layout.why_not(model, KNOWN_TRAITS, runs_input=False)
    encoder = traits_of(model.encoder) | traits_of(model.source)
    reason = reason or why_not_known(encoder, KNOWN_TRAITS) or why_not_alike(model.encoder)
    if reason is None and (model.source.embedding.pad_id, model.target.embedding.pad_id) != (None, None):
        reason = "an embedding has a padding row, whose score is constant"
    return reason


class CNetwork:
    """A model with packed weights, as C translates with it."""

    def __init__(self, model: Transformer, library: Any) -> None:
        self.maker = StructMaker(library, projects_source=True)
        self.sides: list[tuple[str, TokenInput, Stack]] = [
            ("source", model.source, model.encoder),
            ("target", model.target, model.decoder),
        ]
        table, _ = model.output_table
        self.source_vocabulary, self.target_vocabulary = len(model.source.embedding.weight), len(table)
        limits = [side.position.max_length for _, side, _ in self.sides if isinstance(side.position, Learned)]
        self.max_positions = min(limits, default=None)  # of models with learned positions
        weights: list[Any] = [weight for weight in model.decoder.parameters() if isinstance(weight, Weight)]
        self.weight_bytes = sum(weight.numbers.nbytes for weight in weights)  # that a step reads, but for the output
        self.struct = NetworkStruct(
            encoder=self.maker.stack(model.encoder),
            decoder=self.maker.stack(model.decoder),
            source=self._embedding(model.source),
            target=self._embedding(model.target),
            output=self.maker.matrix(table, None),
        )
        self.tables: tuple[int, NetworkStruct, list[Tensor]] = 0, self.struct, []

    def for_positions(self, count: int) -> tuple[NetworkStruct, list[Tensor]]:
        """Return the struct for texts of up to `count` tokens, and the tensors that it needs alive."""
        length, struct, tensors = self.tables
        if count > length:
            length = max(MIN_POSITIONS, 2 * count)
            struct, tensors = self._with_tables(length)
            self.tables = length, struct, tensors  # in one assignment: other threads may read it
        return struct, tensors

    @torch.inference_mode(False)
    @torch.no_grad()
    def _with_tables(self, length: int) -> tuple[NetworkStruct, list[Tensor]]:
        struct, tensors = NetworkStruct.from_buffer_copy(self.struct), []
        positions = torch.arange(length)
        for name, side, stack in self.sides:
            if isinstance(side.position, Sinusoidal):
                tensors.append(side.position.rows(positions, torch.float32).contiguous())
                getattr(struct, name).positions = tensors[-1].data_ptr()
            elif isinstance(side.position, Learned):
                tensors.append(side.position.table.detach().contiguous())
                getattr(struct, name).positions = tensors[-1].data_ptr()
            if (rotary := rotary_of(stack)) is not None:
                angles = positions[:, None] * rotary.frequencies()  # (n, r/2)
                tensors += [angles.cos(), angles.sin()]
                setattr(struct, f"{name}_angles", AnglesStruct(*(tensor.data_ptr() for tensor in tensors[-2:])))
        return struct, tensors

    def _embedding(self, side: TokenInput) -> EmbeddingStruct:
        weight: Any = side.embedding.weight
        struct = EmbeddingStruct(factor=side.embedding.factor)
        if isinstance(weight, Int8Weight):
            struct.numbers, struct.scales = self.maker.pointer(weight.numbers), self.maker.pointer(weight.scales)
        else:
            assert isinstance(weight, PackedWeight)
            struct.rows = self.maker.pointer(weight.numbers)
        return struct
