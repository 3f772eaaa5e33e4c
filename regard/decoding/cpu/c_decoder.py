"""A decoding step by one call of C (regard/kernels/native/decoder/decoder.c); without a C compiler the modules decode.

One token at a time, a small model's step is hundreds of operations of about a microsecond each, and Python takes longer
to launch them than the CPU to compute them. The tests compare the C code with the modules.

    R rows   p model width   V vocabulary
"""

from __future__ import annotations

from ctypes import Structure, byref, c_long, c_void_p
from typing import Any
from weakref import WeakSet, ref

import torch
from torch import Tensor, nn

from regard.attention.cache import KVCache, RowCache
from regard.attention.linear.cache import FeatureCache
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.state import check_draw
from regard.attention.projections import StackedProjection
from regard.decoding import decoder_layout
from regard.decoding.cpu.c_matrix import SHARED_BYTES, MatrixStruct, compiled
from regard.decoding.cpu.c_structs import StructMaker, rotary_of
from regard.decoding.cpu.packed_weight import Weight
from regard.decoding.decoder_layout import BLOCK_TRAITS, all_modules, input_of, why_not_hooked
from regard.kernels.native import linear_step
from regard.kernels.native.compiler import pointer
from regard.kernels.native.linear_step import Features, Sums, describe, is_plain, is_written, sums
from regard.layers.ssru import SSRU, SSRUCache
from regard.models.decoding_state import TransformerState
from regard.models.language_model import TransformerLM
from regard.models.transformer import Transformer

C_TRAITS = frozenset({"output-bias", "activation silu", "ssru"})  # beside those of every fast decoder
MAX_TEXT_TOKENS = 65_536  # whose attention weights a thread keeps on its stack
# Random features as linear_step.h implements them, but with heads of one width and an output matrix.
KNOWN_TRAITS = BLOCK_TRAITS | C_TRAITS | (linear_step.KNOWN_TRAITS - {"head-widths", "input-widths", "no-output"})


class CacheStruct(Structure):
    """The struct Cache of decoder.c; the class below mirrors LayerState."""

    _fields_ = (
        *((name, c_void_p) for name in ("k", "v")),
        *((name, c_long) for name in ("row", "head", "token")),
        ("origins", c_void_p),
        ("capacity", c_long),
    )


class LayerStruct(Structure):
    _fields_ = (
        ("own", CacheStruct),
        ("source", CacheStruct),
        ("features", Features),
        ("sums", Sums),
        ("gate", MatrixStruct),
    )


def why_not(model: nn.Module) -> str | None:
    """Return the reason why the C decoder cannot decode with this model, or None if it can."""
    reason = decoder_layout.why_not(model, KNOWN_TRAITS, runs_input=True)
    return reason or _why_not_weights(model) or _why_not_features(model) or _why_not_compiled()


def _why_not_weights(model: Any) -> str | None:
    if any(weight.dtype is not torch.float32 for weight in model.parameters()):
        return "its weights are not all float32"
    layers = [module for module in all_modules(model.decoder) if isinstance(module, nn.Linear | StackedProjection)]
    matrices = [*(layer.weight for layer in layers), model.output_table[0]]
    return None if all(isinstance(weight, Weight) for weight in matrices) else "its weights are not packed"


def _why_not_features(model: Any) -> str | None:
    for block in model.decoder.blocks:
        attention, cross = block.self_attention, block.cross_attention
        if isinstance(attention, SSRU) and (cross is None or cross.input.sizes.kv_heads < cross.input.sizes.heads):
            return "it has an SSRU beside grouped queries, or no cross-attention"
        if isinstance(cross, RandomFeatureAttention):
            return "its cross-attention has random features"
        if isinstance(attention, RandomFeatureAttention) and not is_written(
            attention.features, attention.position, attention.sizes.heads
        ):
            return "linear_step.h does not implement its random features"
    return None


def _why_not_compiled() -> str | None:
    return None if compiled() is not None else "there is no C compiler, or REGARD_NATIVE=0 switches C off"


def make_c_decoder(model: nn.Module) -> CDecoder | None:
    """Return the C decoder of a model with packed weights, or None where `why_not` gives a reason."""
    if why_not(model) is not None:
        return None
    assert isinstance(model, Transformer | TransformerLM)
    return CDecoder(model, compiled())


class CDecoder:
    """The decoder of a model with packed weights, as decoder.c reads it."""

    def __init__(self, model: Transformer | TransformerLM, library: Any) -> None:
        self.library = library
        self.model, self.modules = ref(model), all_modules(model)
        self.accepted_states: WeakSet[TransformerState] = WeakSet()
        self.input = input_of(model)
        self.attentions: list[Any] = [block.self_attention for block in model.decoder.blocks]
        self.rotary = rotary_of(model.decoder)
        self.angles = torch.empty(0), torch.empty(0)  # cosines and sines of the first positions
        self.maker = StructMaker(library, projects_source=False)
        self.stack = self.maker.stack(model.decoder)
        table, bias = model.output_table
        self.vocabulary, self.output = len(table), self.maker.matrix(table, bias)
        self.layers = (LayerStruct * len(self.attentions))(*map(self._layer, self.attentions))

    def why_not(self, state: Any, tokens: Tensor) -> str | None:
        """Return the reason why the modules must take this step, or None if C can take it.

        Whether C still implements the model is asked once for each state, the rest at every step.
        """
        if tokens.shape[1] != 1:
            return "several tokens for each row"
        if not isinstance(state, TransformerState):
            return f"a {type(state).__name__} has no key-value caches"
        if not all(map(has_room, state.caches)):
            return "a cache is full, or of a kind that C does not read"
        if (reason := why_not_hooked(self.modules)) is None and state not in self.accepted_states:
            reason = self._why_not_model()
            if reason is None:
                self.accepted_states.add(state)
        return reason

    def _why_not_model(self) -> str | None:
        model = self.model()
        assert model is not None  # it owns this decoder
        modules = all_modules(model)
        if len(modules) != len(self.modules) or any(a is not b for a, b in zip(modules, self.modules, strict=True)):
            return "its modules were replaced: pack its weights again"
        return why_not(model)

    def step(self, state: TransformerState, tokens: Tensor) -> Tensor:
        """Return the scores (R, V) after the tokens (R, 1), and advance the state."""
        rows, positions = len(state), state.positions(1)
        row_positions = positions.expand(rows, 1).contiguous()
        x = self.input(tokens, positions).contiguous()  # (R, 1, p)
        scores = x.new_empty(rows, self.vocabulary)
        layers = type(self.layers).from_buffer_copy(self.layers)  # other threads may be taking steps at the same time
        origins = shared_origins(state)
        for layer, attention, cache in zip(layers, self.attentions, state.caches, strict=True):
            if isinstance(cache, SSRUCache):
                cache.state = cache.state.contiguous()
                layer.own.k = cache.state.data_ptr()  # C overwrites the state
            elif isinstance(cache, FeatureCache):
                check_draw(cache.state, attention.features.draw)
                layer.sums = sums(cache)
            else:
                layer.own = cache_struct(cache, origins)
        n, keep = 0, None
        if state.memory is not None:
            n = state.memory[0].k.shape[2]
            for layer, source in zip(layers, state.memory, strict=True):
                layer.source = cache_struct(source)
            keep = None if state.memory_mask is None else state.memory_mask.contiguous()  # (B, 1, 1, n), a byte each
        cosines, sines = self._rotations(row_positions[:, 0])
        threads = torch.get_num_threads()  # OpenMP knows the number that was set only in the main thread
        together = self.maker.matrix_bytes >= SHARED_BYTES
        failed = self.library.decode_step(
            byref(self.stack),
            byref(self.output),
            layers,
            *map(pointer, (x, scores)),
            rows,
            state.sharing,
            n,
            *map(pointer, (row_positions, keep, cosines, sines)),
            threads if together else min(threads, rows),
            together,
        )
        if failed:
            raise MemoryError(f"no memory for a step of {rows} rows")
        for cache in state.caches:
            if isinstance(cache, RowCache):
                cache.lengths += 1
                cache.longest += 1
            elif isinstance(cache, KVCache):
                cache.length += 1
            else:
                cache.advance(cache.state, 1)
        return scores

    def _rotations(self, positions: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the cosines and sines of positions (R,), each (R, rotated pairs); None without rotary positions.

        They come from a table, because torch divides even small cosines among threads, and waits for all of them.
        """
        if self.rotary is None:
            return None, None
        table = self.angles
        if (count := int(positions.max()) + 1) > len(table[0]):
            angles = torch.arange(2 * count)[:, None] * self.rotary.frequencies()
            self.angles = table = angles.cos(), angles.sin()
        cosines, sines = table
        return cosines[positions], sines[positions]

    def _layer(self, attention: Any) -> LayerStruct:
        """Describe what the step of a layer needs besides the weights of its block."""
        layer = LayerStruct()
        if isinstance(attention, RandomFeatureAttention):
            self.maker.referenced += [attention.features.W, attention.features.sigma]
            layer.features = describe(attention.features, self.rotary, attention.sizes.heads, attention.sizes.d_v)
            layer.gate = MatrixStruct() if attention.gate is None else self.maker.linear(attention.gate)
        return layer


def has_room(cache: Any) -> bool:
    """Whether C can append one token to this cache."""
    if isinstance(cache, SSRUCache):
        return True
    if isinstance(cache, FeatureCache):
        return cache.seen is None and is_plain(cache)
    return isinstance(cache, KVCache | RowCache) and longest(cache) < min(cache.capacity, MAX_TEXT_TOKENS)


def longest(cache: KVCache | RowCache) -> int:
    """Return the number of tokens of the longest row."""
    return cache.longest if isinstance(cache, RowCache) else cache.length


def shared_origins(state: TransformerState) -> Tensor | None:
    """Return `origins` of the caches if all rows have the same length: which row holds each token, (rows, capacity).

    With it, reordering the hypotheses of a beam copies no keys and values: see KVCache.origins. The first step creates
    it, and all layers share it.
    """
    first = state.caches[0]
    if isinstance(first, KVCache) and first.origins is None:
        origins = torch.arange(len(state), dtype=torch.int32)[:, None].repeat(1, first.capacity)
        for cache in state.caches:
            cache.origins = origins
    return first.origins if isinstance(first, KVCache) else None


def cache_struct(cache: Any, origins: Tensor | None = None) -> CacheStruct:
    """Describe keys and values (rows, heads, tokens, d) to C; `origins` (rows, tokens) says which row holds a token."""
    k, v = cache.k, cache.v
    if k.stride() != v.stride() or k.stride(3) != 1:
        cache.k, cache.v = k, v = k.contiguous(), v.contiguous()
    return CacheStruct(k.data_ptr(), v.data_ptr(), *k.stride()[:3], pointer(origins), k.shape[2])
