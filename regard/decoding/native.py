"""A decoder's step in C: compiled when it is first wanted, and kept; without a compiler the modules do it.

One token at a time, a small model's step is hundreds of operations of a microsecond each, and Python takes longer to
ask for them than the CPU to do them. native.c does the whole step by one call. Tests hold it against the modules.

    R rows   p model width   V vocabulary
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int32, c_long, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.cache import KVCache
from regard.attention.projections import StackedProjection
from regard.decoding.quantize import Int8Weight, PackedWeight
from regard.layers.block import Block
from regard.layers.normalization import LayerNorm, RMSNorm
from regard.models.language_model import TransformerLM
from regard.models.state import TransformerState
from regard.models.transformer import Transformer
from regard.positions.rotary import Rotary

SOURCE = Path(__file__).with_name("native.c")
# Sums in any order, so that they can be done side by side; all of -ffast-math would round small numbers of the whole
# process to zero, torch's among them.
FAST = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno")
FLAGS = ("-O3", "-march=native", *FAST, "-shared", "-fPIC", "-lm")
LONGEST = 65_536  # tokens of a text, whose attention weights a thread keeps on its stack
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "swiglu")
# With more rows torch's products of matrices are faster. In int8 one way for all, so that a row's numbers are the same
# bit by bit in every batch: a difference in the last bit can make another whole number.
MOST_ROWS = {Int8Weight: 2**31, PackedWeight: 4}


class Matrix(Structure):
    """As in native.c, and so are the others."""

    _fields_ = (
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("numbers", c_void_p),
        ("worth", c_void_p),
        ("sums", c_void_p),
        ("rows", c_int),
        ("columns", c_int),
    )


class Norm(Structure):
    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("eps", c_float), ("rms", c_int))


class Store(Structure):
    _fields_ = (("k", c_void_p), ("v", c_void_p), ("row", c_long), ("head", c_long), ("token", c_long))


class Layer(Structure):
    _fields_ = (
        *((name, Matrix) for name in ("qkv", "out", "cross_q", "cross_out", "up", "down")),
        *((name, Norm) for name in ("self_norm", "cross_norm", "feed_norm")),
        ("own", Store),
        ("source", Store),
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

    def __init__(self, model: Transformer | TransformerLM, step: Any) -> None:
        self.step_in_c, self.kept = step, []  # type: Any, list[Tensor]  # what the pointers point to
        self.input = model.target if isinstance(model, Transformer) else model.input
        blocks: Sequence[Block] = model.decoder.blocks
        first = blocks[0]
        attention = first.self_attention
        self.rotary = attention.position if isinstance(attention.position, Rotary) else None
        table, _ = model.output_table
        self.most_rows = MOST_ROWS[type(table)]
        self.vocabulary = len(table)
        self.modules = list(model.modules())
        self.shape = Shape(
            layers=len(blocks),
            dim=attention.dim,
            heads=attention.heads,
            kv_heads=attention.kv_heads,
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
        """Whether this step can be taken here: few rows of one token each, and nobody watches the modules."""
        return (
            isinstance(state, TransformerState)
            and tokens.shape[1] == 1
            and len(state) <= self.most_rows
            and isinstance(state.caches[0], KVCache)
            and state.caches[0].length < min(state.caches[0].capacity, LONGEST)
            and not any(module._forward_hooks or module._forward_pre_hooks for module in self.modules)
        )

    def step(self, state: TransformerState, tokens: Tensor) -> Tensor:
        """The scores (R, V) after the tokens (R, 1); the state moves on."""
        cache: KVCache = state.caches[0]  # type: ignore[assignment]  # `fits` has looked
        place, rows = cache.length, len(state)
        x = self.input(tokens, state.positions(1)).contiguous()  # (R, 1, p)
        scores = x.new_empty(rows, self.vocabulary)
        layers = type(self.layers).from_buffer_copy(self.layers)  # another thread may be at a step of its own
        for layer, own in zip(layers, state.caches, strict=True):
            layer.own = store(own)
        n, keep = 0, None
        if state.memory is not None:
            n = state.memory[0].k.shape[2]
            for layer, memory in zip(layers, state.memory, strict=True):
                layer.source = store(memory)
            keep = None if state.memory_mask is None else state.memory_mask.contiguous()  # (B, 1, 1, n), a byte each
        angles = None if self.rotary is None else place * self.rotary.frequencies()
        cosines, sines = (None, None) if angles is None else (angles.cos(), angles.sin())
        failed = self.step_in_c(
            byref(self.shape),
            layers,
            *map(pointer, (x, scores)),
            rows,
            state.sharing,
            place,
            n,
            *map(pointer, (keep, cosines, sines)),
        )
        if failed:
            raise MemoryError(f"no memory for a step of {rows} rows")
        for own in state.caches:
            own.length += 1  # type: ignore[union-attr]
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
        if cross is not None:
            rows = slice(0, cross.heads * cross.d_k)
            bias = None if cross.input.bias is None else cross.input.bias[rows]
            layer.cross_q = self._matrix(cross.input.weight[rows], bias)
            layer.cross_out, layer.cross_norm = self._linear(cross.output), self._norm(block.cross_norm)
        return layer

    def _linear(self, linear: Any) -> Matrix:
        return self._matrix(linear.weight, linear.bias)

    def _matrix(self, weight: Any, bias: Tensor | None) -> Matrix:
        rows, columns = weight.shape
        if isinstance(weight, Int8Weight):
            sums = 128 * weight.numbers.sum(1, dtype=torch.int32)
            parts = {"numbers": weight.numbers, "worth": weight.scales, "sums": sums}
        else:
            parts = {"weight": weight.numbers}
        given = {name: self._keep(part) for name, part in parts.items()}
        return Matrix(**given, bias=None if bias is None else self._keep(bias), rows=rows, columns=columns)

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
    table, _ = model.output_table
    if type(table) not in MOST_ROWS or any(weight.dtype is not torch.float32 for weight in model.parameters()):
        return None
    step = compiled_step()
    return None if step is None else NativeDecoder(model, step)


def _is_known(block: Block) -> bool:
    attentions = [one for one in (block.self_attention, block.cross_attention) if one is not None]
    return (
        all(isinstance(norm, LayerNorm | RMSNorm) for norm in (block.self_norm, block.feed_norm))
        and all(
            isinstance(one.input, StackedProjection)
            and one.q_norm is None
            and one.output is not None
            and one.d_k == one.d_v == one.dim // one.heads
            and type(one.input.weight) in MOST_ROWS
            for one in attentions
        )
        and (block.self_attention.position is None or isinstance(block.self_attention.position, Rotary))
    )


def store(kept: Any) -> Store:
    """Where keys and values (rows, heads, tokens, d) lie."""
    k, v = kept.k, kept.v
    if k.stride() != v.stride() or k.stride(3) != 1:
        kept.k, kept.v = k, v = k.contiguous(), v.contiguous()
    return Store(k.data_ptr(), v.data_ptr(), *k.stride()[:3])


def pointer(tensor: Tensor | None) -> c_void_p:
    return c_void_p(None if tensor is None else tensor.data_ptr())


@cache
def compiled_step() -> Any:
    """The function of native.c; None where there is no compiler, or no place for what it makes."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or os.environ.get("REGARD_NATIVE") == "0":
        return None
    try:
        about = f"{SOURCE.read_text(encoding='utf-8')} {FLAGS} {platform.machine()} {_cpu()}"
        place = cache_folder() / f"native-{hashlib.sha256(about.encode()).hexdigest()[:16]}.so"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as folder:
                fresh = Path(folder) / place.name
                _compile(compiler, fresh)
                fresh.replace(place)
        step = ctypes.CDLL(str(place)).decode_step
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError):  # the last: there is no home folder
        return None
    step.argtypes = [POINTER(Shape), POINTER(Layer), *[c_void_p] * 2, *[c_int] * 4, *[c_void_p] * 3]
    step.restype = c_int32
    return step


def _compile(compiler: str, out: Path) -> None:
    """With threads where the compiler knows them, else without."""
    for threads in (["-fopenmp"], []):
        command = [compiler, str(SOURCE), *threads, *FLAGS, "-o", str(out)]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        if done.returncode == 0:
            return
    raise OSError(done.stderr.decode(errors="replace"))


def cache_folder() -> Path:
    """Where compiled code is kept for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def _cpu() -> str:
    """What tells this CPU from another that shares the folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""
