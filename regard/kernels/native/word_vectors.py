"""Train word vectors on a CPU in C (word_vectors.c): many small steps, which PyTorch's overhead would slow down.

A2. `why_not` says what the C code does not support; then the plain update of regard/tasks/word_vectors/update.py
remains. The results are the same for any number of threads.
"""

from __future__ import annotations

from ctypes import Structure, byref, c_double, c_float, c_int, c_long, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.kernels.native.compiler import load_library, pointer
from regard.models.word_vectors import WEIGHT_POWER, WordVectorModel
from regard.text.batches.batch import Batch
from regard.text.random_streams import random_keys
from regard.traits import why_unknown

SOURCE = Path(__file__).with_name("word_vectors.c")
KNOWN_TRAITS = frozenset({"WordVectorModel", "module Embedding"})
BLOCKS = 16  # of the rows of a table, as in the C code
DRAWS = 7  # random stream


class ModelStruct(Structure):
    """The struct `Model` of word_vectors.c; the class below mirrors `Glove`."""

    _fields_ = (
        *((name, c_void_p) for name in ("keep", "chance", "alias", "block", "words", "outputs")),
        *((name, c_int) for name in ("vocabulary", "dim", "window", "negatives")),
    )


class GloveStruct(Structure):
    _fields_ = (
        *((name, c_void_p * 2) for name in ("vectors", "vector_sums", "biases", "bias_sums")),
        ("block", c_void_p),
        ("dim", c_int),
        *((name, c_float) for name in ("max_count", "power", "eps")),
    )


def why_not(model: WordVectorModel) -> str | None:
    """Return why the C code cannot train this model, or None."""
    if (reason := why_unknown(model, KNOWN_TRAITS)) is not None:
        return reason
    weights = list(model.parameters())
    if any(weight.device.type != "cpu" or weight.dtype is not torch.float32 for weight in weights):
        return "the C code is for float32 on a CPU"
    if not all(weight.is_contiguous() and weight.requires_grad for weight in weights):
        return "the C code changes all rows of every table"
    return None if compiled() is not None else "there is no C compiler"


class NativeUpdate:
    """Changes the weights by the examples of a batch, one after the other. Call it with a batch and its step."""

    def __init__(self, model: WordVectorModel, seed: int) -> None:
        self.model, self.seed = model, seed
        rank = np.arange(model.config.vocabulary)  # the most frequent words first: deal them out to the blocks
        turn = np.where(rank // BLOCKS % 2, BLOCKS - 1 - rank % BLOCKS, rank % BLOCKS)
        self.blocks = torch.from_numpy(turn.astype(np.int32))
        if model.config.method != "glove":
            self.keep = torch.from_numpy((model.keep_probability.numpy() * (2**32 - 1)).astype(np.uint32))
            self.chance, self.alias = map(torch.from_numpy, alias_table(model.noise.numpy()))

    def __call__(self, batch: Batch, optimizer: torch.optim.Optimizer, step: int) -> Tensor:
        """Take the steps of a batch; return the mean loss of an example."""
        rate = float(optimizer.param_groups[0]["lr"])
        results = (c_double * 2)()
        if self.model.config.method == "glove":
            failed = self._glove(batch, optimizer, rate, results)
        else:
            failed = self._predict(batch, step, rate, results)
        if failed:
            raise MemoryError(f"not enough memory for a batch of {batch.tokens} words")
        return torch.tensor(results[0] / max(results[1], 1.0))

    def _predict(self, batch: Batch, step: int, rate: float, results: Any) -> int:
        model, config = self.model, self.model.config
        assert model.contexts is not None
        arrays = (self.keep, self.chance, self.alias, self.blocks, model.words.weight, model.contexts.weight)
        numbers = (config.vocabulary, config.dim, config.window, config.negatives)
        described = ModelStruct(*(array.data_ptr() for array in arrays), *numbers)
        tokens = batch.inputs.to(torch.int32).contiguous()
        seed = int(random_keys(1, self.seed, step, DRAWS)[0])
        arguments = (byref(described), pointer(tokens), *tokens.shape, c_uint64(seed), c_float(rate))
        if config.method == "cbow":
            return int(compiled().train_cbow(*arguments, results))
        return int(compiled().train_skip_gram(*arguments, torch.get_num_threads(), results))

    def _glove(self, batch: Batch, optimizer: torch.optim.Optimizer, rate: float, results: Any) -> int:
        model = self.model
        assert model.contexts is not None
        assert model.word_biases is not None
        assert model.context_biases is not None
        vectors = (model.words.weight, model.contexts.weight)
        biases = (model.word_biases.weight, model.context_biases.weight)
        sums = [[optimizer.state[weight]["sum"] for weight in pair] for pair in (vectors, biases)]
        pointers = [(c_void_p * 2)(*(x.data_ptr() for x in pair)) for pair in (vectors, sums[0], biases, sums[1])]
        eps = optimizer.param_groups[0]["eps"]
        numbers = (model.config.dim, model.config.max_count, WEIGHT_POWER, eps)
        described = GloveStruct(*pointers, self.blocks.data_ptr(), *numbers)
        entries, counts = batch.inputs.to(torch.int32).contiguous(), batch.labels.contiguous()
        arguments = (byref(described), pointer(entries), pointer(counts), c_long(len(entries)), c_float(rate))
        return int(compiled().train_glove(*arguments, torch.get_num_threads(), results))


def alias_table(distribution: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return an alias table: draw i uniformly; it stands for i with probability chance[i], else for alias[i].

    Walker 1977; the construction of Vose 1991.
    """
    chance, alias = (distribution * len(distribution)).tolist(), list(range(len(distribution)))
    low = [i for i, value in enumerate(chance) if value < 1]
    high = [i for i, value in enumerate(chance) if value >= 1]
    while low and high:
        poor, rich = low.pop(), high[-1]
        alias[poor] = rich
        chance[rich] -= 1 - chance[poor]
        if chance[rich] < 1:
            low.append(high.pop())
    for i in low + high:  # 1 despite rounding
        chance[i] = 1.0 if distribution[i] > 0 else 0.0
        alias[i] = int(distribution.argmax())
    return np.array(chance, np.float32), np.array(alias, np.int32)


@cache
def compiled() -> Any:
    """Load the functions of word_vectors.c; None where they cannot be compiled."""
    return load_library(SOURCE)
