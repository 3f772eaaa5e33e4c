"""The encoder of a sentence encoder in C (regard/kernels/native/decoder/text_encoder.h), for texts of any lengths.

The modules pad the texts of a batch to one length. In C their tokens are rows one after the other, and the vectors of
some texts stay in the cache from the first block to the last one. The vector of a text has the same bits beside any
other texts.

    N tokens of all texts   p model width
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.projections import StackedProjection
from regard.decoding.cpu.c_matrix import compiled
from regard.decoding.cpu.c_structs import StructMaker, rotary_of
from regard.decoding.cpu.packed_weight import Weight
from regard.decoding.decoder_layout import BLOCK_TRAITS, all_modules, why_not_alike, why_not_hooked
from regard.kernels.native.compiler import pointer
from regard.machine import threads_in_use
from regard.models.encoders.sentence_encoder import SentenceEncoder
from regard.traits import traits_of, why_not_known

KNOWN_TRAITS = BLOCK_TRAITS | {"activation silu"}
CHUNK_TOKENS = 192  # that a thread reads at once, so that their vectors stay in its cache
MAX_TEXT_TOKENS = 65_536  # whose attention weights a thread keeps on its stack


def why_not(model: nn.Module) -> str | None:
    """Return the reason why C cannot run the encoder of a model, or None if it can."""
    if not isinstance(model, SentenceEncoder):
        return f"a {type(model).__name__} is no sentence encoder"
    if (reason := why_not_known(traits_of(model.encoder), KNOWN_TRAITS) or why_not_alike(model.encoder)) is not None:
        return reason
    if any(weight.dtype is not torch.float32 for weight in model.parameters()):
        return "its weights are not all float32"
    layers = [module for module in all_modules(model.encoder) if isinstance(module, nn.Linear | StackedProjection)]
    if not all(isinstance(layer.weight, Weight) for layer in layers):
        return "its weights are not packed"
    return None if compiled() is not None else "there is no C compiler, or REGARD_NATIVE=0 switches C off"


def make_c_encoder(model: nn.Module) -> CEncoder | None:
    """Return the encoder in C of a model with packed weights, or None where `why_not` gives a reason."""
    if why_not(model) is not None:
        return None
    assert isinstance(model, SentenceEncoder)
    return CEncoder(model, compiled())


class CEncoder:
    """The encoder of a sentence encoder with packed weights."""

    def __init__(self, model: SentenceEncoder, library: Any) -> None:
        self.library = library
        self.model, self.modules = ref(model), all_modules(model)
        self.maker = StructMaker(library, projects_source=False)
        self.stack = self.maker.stack(model.encoder)
        self.rotary = rotary_of(model.encoder)

    def why_not_now(self, longest: int) -> str | None:
        """Return the reason why the modules must read texts of up to so many tokens, or None if C can."""
        model = self.model()
        assert model is not None  # it owns this encoder
        modules = all_modules(model)
        if len(modules) != len(self.modules) or any(a is not b for a, b in zip(modules, self.modules, strict=True)):
            return "its modules were replaced: pack its weights again"
        if longest > MAX_TEXT_TOKENS:
            return f"a text has more than {MAX_TEXT_TOKENS} tokens"
        return why_not_hooked(modules) or why_not(model)

    def encode(self, texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the vectors (n, p) of the tokens of each text, none of which is empty."""
        model: Any = self.model()
        lengths = np.array([len(text) for text in texts])
        first_rows = np.concatenate([[0], lengths.cumsum()])
        positions = np.concatenate([np.arange(length) for length in lengths])
        tokens = torch.tensor([token for text in texts for token in text])
        x = model.input(tokens[None], torch.from_numpy(positions)[None])[0].contiguous()  # (N, p)
        chunks = make_chunks(lengths)  # the first text of each chunk, and the number of texts
        chunk_rows = first_rows[chunks].astype(np.int32)
        own_chunk = np.repeat(chunk_rows[:-1], np.diff(chunks))  # the first row of each text's chunk
        starts = np.repeat(first_rows[:-1] - own_chunk, lengths).astype(np.int32)
        ends = np.repeat(first_rows[1:] - own_chunk, lengths).astype(np.int32)
        rotations = self._rotations(int(lengths.max()))
        arrays = [array.ctypes.data for array in (starts, ends, chunk_rows)]
        if self.library.read_texts(
            byref(self.stack), *map(pointer, (*rotations, x)), *arrays, len(chunks) - 1, threads_in_use()
        ):
            raise MemoryError(f"no memory to encode {len(x)} tokens")
        return list(x.split(lengths.tolist()))

    def _rotations(self, length: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the cosines and sines of positions, each (length, rotated pairs); None without rotary positions."""
        if self.rotary is None:
            return None, None
        angles = torch.arange(length)[:, None] * self.rotary.frequencies()
        return angles.cos(), angles.sin()


def make_chunks(lengths: np.ndarray) -> list[int]:
    """Divide texts into chunks of about CHUNK_TOKENS tokens; return the first text of each, and how many texts."""
    chunks, tokens = [0], 0
    for number, length in enumerate(lengths.tolist()):
        if tokens and tokens + length > CHUNK_TOKENS:
            chunks.append(number)
            tokens = 0
        tokens += length
    return [*chunks, len(lengths)]
