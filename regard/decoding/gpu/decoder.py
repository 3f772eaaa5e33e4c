"""The step of a Transformer's decoder on a GPU, with fixed shapes, so that it can be captured as a CUDA graph.

E8. Each row has its own position in its text, and rows stay where they are until their text is done. The step runs the
kernels of regard.kernels.decode_gpu; for many rows, torch multiplies the matrices.

    B inputs   w rows per input   R = B·w rows   p model width   C capacity   n source tokens   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.decoding.decoder_layout import input_of
from regard.kernels.decode_gpu import linear_triton, step_triton
from regard.kernels.decode_gpu.linear_triton import linear
from regard.kernels.decode_gpu.norm_triton import NormWeights, add_norm
from regard.layers.block import Block
from regard.layers.normalization import RMSNorm
from regard.models.decoding_state import TransformerState
from regard.positions.learned import Learned
from regard.positions.rotary import Rotary

MAX_FUSED_ROWS = linear_triton.MAX_ROWS  # up to so many rows, the norm is fused into the product that follows it


class GpuDecoder:
    """A decoder with buffers for a fixed number of rows, positions and source tokens."""

    def __init__(self, model: Any, *, inputs: int, rows_per_input: int, capacity: int, source_length: int) -> None:
        self.model, self.rows_per_input = model, rows_per_input
        self.input = input_of(model)
        self.blocks: Sequence[Block] = model.decoder.blocks
        attention: Any = self.blocks[0].self_attention
        self.table = self.input.embedding.weight
        self.output, _ = model.output_table
        self.heads = attention.heads
        shape = len(self.blocks), inputs * rows_per_input, attention.kv_heads, capacity, attention.d_k
        self.keys, self.values = (self.table.new_zeros(shape) for _ in range(2))
        self.rotary: tuple[Tensor, bool] | None = None  # frequencies, and whether pairs are interleaved
        if isinstance(attention.position, Rotary):
            frequencies = attention.position.frequencies(self.table.device)
            self.rotary = frequencies, attention.position.layout == "interleaved"
        self.position_vectors: Tensor | None = None  # (C, p)
        if self.input.position is not None:
            self.position_vectors = self.table.new_zeros(capacity, self.table.shape[1])
        if source_length:
            cross: Any = self.blocks[0].cross_attention
            shape = len(self.blocks), inputs, cross.kv_heads, source_length, cross.d_k
            self.source_keys, self.source_values = (self.table.new_zeros(shape) for _ in range(2))
            self.source_keep = torch.zeros(inputs, source_length, dtype=torch.uint8, device=self.table.device)
        self._compute_position_vectors()

    def refresh(self) -> None:
        """Recompute what depends on weights that the step does not read itself: learned position vectors."""
        if isinstance(self.input.position, Learned):
            self._compute_position_vectors()

    def _compute_position_vectors(self) -> None:
        position, vectors = self.input.position, self.position_vectors
        if vectors is None or position is None:
            return
        count = min(len(vectors), position.max_length) if isinstance(position, Learned) else len(vectors)
        zeros = torch.zeros_like(vectors[:count])[None]
        vectors[:count] = position.embed(zeros, torch.arange(count, device=vectors.device))[0]

    def load_source(self, projected: Sequence[Any], keep: Tensor) -> None:
        """Copy the keys and values of the sources for each block; keep (B', n') is False for padding."""
        inputs, n = keep.shape
        for layer, source in enumerate(projected):
            self.source_keys[layer, :inputs, :, :n] = source.k
            self.source_values[layer, :inputs, :, :n] = source.v
        self.source_keep.zero_()
        self.source_keep[:inputs, :n] = keep

    def load_cache(self, state: TransformerState, lanes: Tensor) -> None:
        """Copy the caches of a state with one row per input to all rows of the inputs in these lanes."""
        rows = (self.rows_per_input * lanes[:, None] + torch.arange(self.rows_per_input, device=lanes.device)).flatten()
        for layer, cache in enumerate(state.caches):
            n = cache.length  # a KVCache
            self.keys[layer, rows, :, :n] = cache.k[:, :, :n].repeat_interleave(self.rows_per_input, 0)
            self.values[layer, rows, :, :n] = cache.v[:, :, :n].repeat_interleave(self.rows_per_input, 0)

    def step(self, tokens: Tensor, lengths: Tensor, origins: Tensor | None) -> Tensor:
        """Return the scores (R, V) of the tokens that follow `tokens` (R,), each at its position `lengths` (R,).

        `origins` (R, C) says which row of the cache holds each token, where a beam has reordered its hypotheses.
        """
        x = step_triton.embed(tokens, lengths, self.table, self.input.embedding.factor, self.position_vectors)
        step = self._step_few_rows if len(tokens) <= MAX_FUSED_ROWS else self._step_many_rows
        return step(x, lengths, origins)

    def _step_few_rows(self, x: Tensor, lengths: Tensor, origins: Tensor | None) -> Tensor:
        """Eight kernels per block: the norm is fused into the product that follows it."""
        norm: NormWeights | None = None  # post-norm: still to be applied to x
        for layer, block in enumerate(self.blocks):
            pre = block.order == "pre"
            attention: Any = block.self_attention
            input_norm = norm_weights(block.self_norm) if pre else norm
            qkv = linear(x, attention.input.weight, attention.input.bias, norm=input_norm)
            mixed = self._self_attention(layer, qkv, lengths, origins)
            x = linear(mixed, attention.output.weight, attention.output.bias, residual=x, norm=None if pre else norm)
            norm = norm_weights(block.self_norm)
            cross: Any = block.cross_attention
            if cross is not None:
                input_norm = norm_weights(block.cross_norm) if pre else norm
                q = linear(x, *query_weights(cross), norm=input_norm)
                mixed = self._cross_attention(layer, q, lengths)
                x = linear(mixed, cross.output.weight, cross.output.bias, residual=x, norm=None if pre else norm)
                norm = norm_weights(block.cross_norm)
            feed: Any = block.feed_forward
            input_norm = norm_weights(block.feed_norm) if pre else norm
            hidden = linear(x, feed.up.weight, feed.up.bias, norm=input_norm, activation=feed.activation)
            x = linear(hidden, feed.down.weight, feed.down.bias, residual=x, norm=None if pre else norm)
            norm = norm_weights(block.feed_norm)
        final = self.model.decoder.norm
        return linear(x, self.output, None, norm=norm if final is None else norm_weights(final))

    def _step_many_rows(self, x: Tensor, lengths: Tensor, origins: Tensor | None) -> Tensor:
        """The same with torch's matrix products; a residual and its norm are one kernel."""
        pre = self.blocks[0].order == "pre"
        norms = [
            norm_weights(norm)
            for block in self.blocks
            for norm in (block.self_norm, block.cross_norm, block.feed_norm)
            if norm is not None
        ]
        if pre:  # a norm is in front of each sublayer, and one more after the last
            norms.append(norm_weights(self.model.decoder.norm))
            x, y = add_norm(x, None, norms.pop(0))
        else:
            y = x
        for layer, block in enumerate(self.blocks):
            attention: Any = block.self_attention
            qkv = F.linear(y, attention.input.weight, attention.input.bias)
            mixed = self._self_attention(layer, qkv, lengths, origins)
            x, y = add_norm(x if pre else y, attention.output(mixed), norms.pop(0))
            cross: Any = block.cross_attention
            if cross is not None:
                mixed = self._cross_attention(layer, F.linear(y, *query_weights(cross)), lengths)
                x, y = add_norm(x if pre else y, cross.output(mixed), norms.pop(0))
            x, y = add_norm(x if pre else y, block.feed_forward(y), norms.pop(0))
        return F.linear(y, self.output)

    def _self_attention(self, layer: int, qkv: Tensor, lengths: Tensor, origins: Tensor | None) -> Tensor:
        return step_triton.self_attention(
            qkv, self.keys[layer], self.values[layer], lengths, origins, heads=self.heads, rotary=self.rotary
        )

    def _cross_attention(self, layer: int, q: Tensor, lengths: Tensor) -> Tensor:
        k, v = self.source_keys[layer], self.source_values[layer]
        return step_triton.cross_attention(q, k, v, self.source_keep, lengths, heads=self.heads)


def norm_weights(norm: Any) -> NormWeights:
    return NormWeights(norm.weight, getattr(norm, "bias", None), norm.eps, isinstance(norm, RMSNorm))


def query_weights(cross: Any) -> tuple[Tensor, Tensor | None]:
    """Return W_Q and its bias from the stacked projection of cross-attention."""
    rows = slice(0, cross.heads * cross.d_k)
    return cross.input.weight[rows], None if cross.input.bias is None else cross.input.bias[rows]
