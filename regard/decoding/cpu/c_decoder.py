"""A decoder's step in C (compiled.py); without a compiler the modules do it.

One token at a time, a small model's step is hundreds of operations of a microsecond each, and Python takes longer to
ask for them than the CPU to do them. native.c does the whole step by one call. Tests hold it against the modules.

    R rows   p model width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, byref, c_float, c_int, c_long, c_void_p
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.cache import KVCache, RowCache
from regard.attention.linear.cache import FeatureCache
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.state import check_draw
from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import StackedProjection
from regard.decoding.cpu.c_matrix import Matrix, compiled
from regard.decoding.cpu.quantize import Weight
from regard.kernels.native.compiler import pointer
from regard.kernels.native.linear_step import Features, Sums, describe, is_plain, is_written, sums
from regard.layers.block import Block
from regard.layers.normalization import LayerNorm, RMSNorm
from regard.models.decoding_state import TransformerState
from regard.models.language_model import TransformerLM
from regard.models.transformer import Transformer
from regard.positions.rotary import Rotary

LONGEST = 65_536  # tokens of a text, whose attention weights a thread keeps on its stack
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "swiglu")


class Norm(Structure):
    """As in native.c, and so are the others."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("eps", c_float), ("rms", c_int))


class Store(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("k", "v")),
        *((name, c_long) for name in ("row", "head", "token")),
        ("origins", c_void_p),
        ("room", c_long),
    )


class Layer(Structure):
    _fields_ = (
        *((name, Matrix) for name in ("qkv", "out", "cross_q", "cross_out", "up", "down")),
        *((name, Norm) for name in ("self_norm", "cross_norm", "feed_norm")),
        ("own", Store),
        ("source", Store),
        ("features", Features),
        ("sums", Sums),
        ("gate", Matrix),
    )


class Shape(Structure):
    _fields_ = (
        *((name, c_int) for name in ("layers", "dim", "heads", "kv_heads", "pre", "crosses", "activation")),
        ("turning", c_int),
        ("interleaved", c_int),
        ("last", Norm),
        ("output", Matrix),
    )


class NativeDecoder:
    """The decoder of a model with packed weights, as native.c reads it."""

    def __init__(self, model: Transformer | TransformerLM, code: Any) -> None:
        self.code, self.kept = code, []  # type: Any, list[Any]  # what the pointers point to
        self.input = model.target if isinstance(model, Transformer) else model.input
        blocks: Sequence[Block] = model.decoder.blocks
        first = blocks[0]
        self.attentions: list[Any] = [block.self_attention for block in blocks]
        attention = self.attentions[0]
        sizes = attention.input.sizes
        self.rotary = attention.position if isinstance(attention.position, Rotary) else None
        table, _ = model.output_table
        self.vocabulary = len(table)
        self.modules = list(model.modules())
        self.shape = Shape(
            layers=len(blocks),
            dim=attention.dim,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            pre=first.order == "pre",
            crosses=first.cross_attention is not None,
            activation=ACTIVATIONS.index(first.feed_forward.activation),
            turning=0 if self.rotary is None else self.rotary.turning,
            interleaved=self.rotary is not None and self.rotary.layout == "interleaved",
            last=Norm() if model.decoder.norm is None else self._norm(model.decoder.norm),
            output=self._matrix(table, None),
        )
        self.layers = (Layer * len(blocks))(*map(self._layer, blocks))

    def fits(self, state: Any, tokens: Tensor) -> bool:
        """Whether this step can be taken here: rows of one token each, and nobody watches the modules."""
        return (
            isinstance(state, TransformerState)
            and tokens.shape[1] == 1
            and all(map(has_room, state.caches))
            and not any(module._forward_hooks or module._forward_pre_hooks for module in self.modules)
        )

    def step(self, state: TransformerState, tokens: Tensor) -> Tensor:
        """The scores (R, V) after the tokens (R, 1); the state moves on."""
        rows, positions = len(state), state.positions(1)
        places = positions.expand(rows, 1).contiguous()
        x = self.input(tokens, positions).contiguous()  # (R, 1, p)
        scores = x.new_empty(rows, self.vocabulary)
        layers = type(self.layers).from_buffer_copy(self.layers)  # another thread may be at a step of its own
        table = shared_origins(state)
        for layer, attention, own in zip(layers, self.attentions, state.caches, strict=True):
            if isinstance(own, FeatureCache):
                check_draw(own.state, attention.features.draw)
                layer.sums = sums(own)
            else:
                layer.own = store(own, table)
        n, keep = 0, None
        if state.memory is not None:
            n = state.memory[0].k.shape[2]
            for layer, memory in zip(layers, state.memory, strict=True):
                layer.source = store(memory)
            keep = None if state.memory_mask is None else state.memory_mask.contiguous()  # (B, 1, 1, n), a byte each
        angles = None if self.rotary is None else places * self.rotary.frequencies()  # (R, pairs that turn)
        cosines, sines = (None, None) if angles is None else (angles.cos(), angles.sin())
        failed = self.code.decode_step(
            byref(self.shape),
            layers,
            *map(pointer, (x, scores)),
            rows,
            state.sharing,
            n,
            *map(pointer, (places, keep, cosines, sines)),
            torch.get_num_threads(),  # what was set is the main thread's, and OpenMP would not know it in others
        )
        if failed:
            raise MemoryError(f"no memory for a step of {rows} rows")
        for own in state.caches:
            if isinstance(own, RowCache):
                own.lengths += 1
                own.longest += 1
            elif isinstance(own, KVCache):
                own.length += 1
            else:
                own.advance(own.state, 1)
        return scores

    def _layer(self, block: Block) -> Layer:
        own: Any = block.self_attention
        cross: Any = block.cross_attention
        feed: Any = block.feed_forward
        layer = Layer(
            qkv=self._matrix(own.input.weight, own.input.bias),
            out=self._linear(own.output),
            up=self._linear(feed.up),
            down=self._linear(feed.down),
            self_norm=self._norm(block.self_norm),
            feed_norm=self._norm(block.feed_norm),
        )
        if isinstance(own, RandomFeatureAttention):
            self.kept += [own.features.W, own.features.sigma]
            layer.features = describe(own.features, self.rotary, own.sizes.heads, own.sizes.d_v)
            layer.gate = Matrix() if own.gate is None else self._linear(own.gate)
        if cross is not None:
            rows = slice(0, cross.heads * cross.d_k)
            bias = None if cross.input.bias is None else cross.input.bias[rows]
            layer.cross_q = self._matrix(cross.input.weight[rows], bias)
            layer.cross_out, layer.cross_norm = self._linear(cross.output), self._norm(block.cross_norm)
        return layer

    def _linear(self, linear: Any) -> Matrix:
        return self._matrix(linear.weight, linear.bias)

    def _matrix(self, weight: Any, bias: Tensor | None) -> Matrix:
        laid = weight.laid_out(self.code)
        self.kept.append(laid)
        matrix = Matrix.from_buffer_copy(laid.matrix)
        matrix.bias = None if bias is None else self._keep(bias)
        return matrix

    def _norm(self, norm: Any) -> Norm:
        bias = getattr(norm, "bias", None)
        return Norm(
            weight=self._keep(norm.weight),
            bias=None if bias is None else self._keep(bias),
            eps=norm.eps,
            rms=isinstance(norm, RMSNorm),
        )

    def _keep(self, tensor: Tensor) -> int:
        self.kept.append(tensor.detach().contiguous())
        return self.kept[-1].data_ptr()


def native_decoder(model: nn.Module) -> NativeDecoder | None:
    """The decoder of a model with packed weights in C, if it is of a kind that is written there and C can be had."""
    if not isinstance(model, Transformer | TransformerLM) or not all(map(_is_known, model.decoder.blocks)):
        return None
    if len({type(block.self_attention) for block in model.decoder.blocks}) > 1:  # a beam's rows move alike in all
        return None
    table, _ = model.output_table
    if not isinstance(table, Weight) or any(weight.dtype is not torch.float32 for weight in model.parameters()):
        return None
    code = compiled()
    return None if code is None else NativeDecoder(model, code)


def _is_known(block: Block) -> bool:
    own, cross = block.self_attention, block.cross_attention
    return (
        all(isinstance(norm, LayerNorm | RMSNorm) for norm in (block.self_norm, block.feed_norm))
        and (_is_exact(own) or _is_random(own))
        and (own.position is None or isinstance(own.position, Rotary))
        and (cross is None or _is_exact(cross))
    )


def _is_exact(one: Any) -> bool:
    return (
        isinstance(one, MultiHeadAttention)
        and one.q_norm is None
        and one.window is None
        and _is_stacked(one, one.d_k, one.d_v, one.heads)
    )


def _is_random(one: Any) -> bool:
    return (
        isinstance(one, RandomFeatureAttention)
        and is_written(one.features, one.position, one.sizes.heads)
        and _is_stacked(one, one.sizes.d_k, one.sizes.d_v, one.sizes.heads)
    )


def _is_stacked(one: Any, d_k: int, d_v: int, heads: int) -> bool:
    """Whether its matrices are packed, one for queries, keys and values, with heads of one width."""
    return (
        isinstance(one.input, StackedProjection)
        and isinstance(one.input.weight, Weight)
        and one.output is not None
        and d_k == d_v == one.dim // heads
    )


def has_room(cache: Any) -> bool:
    """Whether one token more can be put there, by C."""
    if isinstance(cache, FeatureCache):
        return cache.seen is None and is_plain(cache)
    return isinstance(cache, KVCache | RowCache) and longest(cache) < min(cache.capacity, LONGEST)


def longest(cache: KVCache | RowCache) -> int:
    """How many tokens the longest row has."""
    return cache.longest if isinstance(cache, RowCache) else cache.length


def shared_origins(state: TransformerState) -> Tensor | None:
    """In which row each token lies, where all rows have one age: hypotheses share their past, and nothing is copied."""
    first = state.caches[0]
    if isinstance(first, KVCache) and first.origins is None:
        own = torch.arange(len(state), dtype=torch.int32)[:, None].repeat(1, first.capacity)
        for cache in state.caches:
            cache.origins = own
    return first.origins if isinstance(first, KVCache) else None


def store(kept: Any, rows: Tensor | None = None) -> Store:
    """Where keys and values (rows, heads, tokens, d) lie; in `rows` (rows, tokens) where each token does, if given."""
    k, v = kept.k, kept.v
    if k.stride() != v.stride() or k.stride(3) != 1:
        kept.k, kept.v = k, v = k.contiguous(), v.contiguous()
    return Store(k.data_ptr(), v.data_ptr(), *k.stride()[:3], pointer(rows), k.shape[2])
