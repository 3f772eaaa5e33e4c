"""The contenders of generate_cpu.py: regard, transformers and llama.cpp with the same weights.

All generate a fixed number of tokens after prompts of one length. The rows of PAD, START and END in the table are zero,
so their logits are 0: with hundreds of random logits, they are never among the 40 most probable tokens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from benchmarks.decode.generate_formats import PEER_MODELS, write_gguf
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.models.config import TransformerLMConfig
from regard.models.language_model import TransformerLM
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START

Tokens = Sequence[int]
TOP_K, TEMPERATURE = 40, 0.8
BATCH_TOKENS = 2**20  # all streams in one batch
SHAPES = {
    "gpt2": TransformerLMConfig(
        vocabulary=50_257, layers=12, dim=768, heads=12, hidden=3072, activation="gelu-tanh", order="pre",
        position="learned", scale_embedding=False,
    ),
    "llama": TransformerLMConfig(
        vocabulary=32_000, layers=12, dim=768, heads=12, kv_heads=4, hidden=2048, activation="swiglu", norm="rms",
        order="pre", position="rotary", bias=False, tie_output=False, scale_embedding=False,
    ),
    "quick": TransformerLMConfig(
        vocabulary=320, layers=2, dim=64, heads=4, kv_heads=2, hidden=96, activation="swiglu", norm="rms",
        order="pre", position="rotary", bias=False, tie_output=False, scale_embedding=False,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One measurement: so many streams, each with a prompt and a continuation of so many tokens."""

    streams: int
    threads: int
    sampled: bool
    prompt: int = 32
    length: int = 32


class Contender(Protocol):
    """A library that continues prompts by exactly `cell.length` tokens."""

    def generate(self, prompts: Sequence[Tokens], cell: Cell) -> list[list[int]]: ...


def make_model(config: TransformerLMConfig, *, seed: int = 0) -> TransformerLM:
    """Return a language model with random weights, biases and gains included, that never generates a special token."""
    model = TransformerLM(config).eval()
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.normal_(std=weight.shape[1] ** -0.5, generator=noise)
            else:
                weight.normal_(mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.1, generator=noise)
        model.output_table[0][[PAD, START, END]] = 0.0
    return model


def make_prompts(config: TransformerLMConfig, cell: Cell, *, seed: int = 1) -> list[list[int]]:
    """Return random prompts of one length, so that nobody pads."""
    noise = torch.Generator().manual_seed(seed)
    shape = cell.streams, cell.prompt
    return torch.randint(len(SPECIAL_TOKENS), config.vocabulary, shape, generator=noise).tolist()


class Regard:
    """regard with weights packed for a CPU, in float32 or int8."""

    def __init__(self, model: TransformerLM, form: str) -> None:
        self.model = pack_weights(deepcopy(model), form)  # type: ignore[arg-type]

    def generate(self, prompts: Sequence[Tokens], cell: Cell) -> list[list[int]]:
        search = Sample(temperature=TEMPERATURE, top_k=TOP_K) if cell.sampled else Greedy()
        results = generate_tokens(
            self.model, None, search=search, prefixes=prompts, max_tokens=cell.length, batch_tokens=BATCH_TOKENS
        )
        return [texts[0].tokens for texts in results]


class Transformers:
    """transformers: GPT-2 or Llama with our weights, in float32, with its cache."""

    def __init__(self, model: TransformerLM) -> None:
        self.model = PEER_MODELS[model.config.norm, model.config.position](model)

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Tokens], cell: Cell) -> list[list[int]]:
        inputs = torch.tensor(prompts)
        sampling = {"temperature": TEMPERATURE, "top_k": TOP_K} if cell.sampled else {}
        outputs = self.model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            do_sample=cell.sampled,
            max_new_tokens=cell.length,
            use_cache=True,
            eos_token_id=None,
            pad_token_id=PAD,
            **sampling,
        )
        return outputs[:, inputs.shape[1] :].tolist()


class LlamaCpp:
    """llama.cpp (package xllamacpp) with our weights in F32 or Q8_0, one slot of its server for each stream."""

    def __init__(self, model: TransformerLM, cell: Cell, storage: str) -> None:
        import xllamacpp

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            write_gguf(model, path, storage)
            params = xllamacpp.CommonParams()
            params.model.path = str(path)
            params.n_parallel = cell.streams
            params.n_ctx = cell.streams * 256 * -(-(cell.prompt + cell.length) // 256)  # slots are multiples of 256
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = cell.threads
            params.verbosity = -1
            self.server = xllamacpp.Server(params)

    def generate(self, prompts: Sequence[Tokens], cell: Cell) -> list[list[int]]:
        request = {
            "prompt": [*prompts],
            "n_predict": cell.length,
            "temperature": TEMPERATURE if cell.sampled else 0.0,
            "top_k": TOP_K if cell.sampled else 1,
            "samplers": ["top_k", "temperature"],
            "cache_prompt": False,
            "return_tokens": True,
            "ignore_eos": True,
        }
        return tokens_of(self.server.handle_completions(request))


def tokens_of(answer: Any) -> list[list[int]]:
    """Return the tokens of each choice. Their texts are their numbers, separated by spaces."""
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    return [[int(word[1:]) for word in choice["text"].split()] for choice in choices]
