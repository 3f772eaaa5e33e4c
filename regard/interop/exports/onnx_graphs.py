"""Write ONNX graphs: an encoder, a decoder for the first tokens, and a decoder for each further token.

The inputs and outputs have the names that optimum and transformers.js use. A decoder returns the keys and values of
each layer, and the one with a past takes them back:

    encoder_model              input_ids, attention_mask -> last_hidden_state
    decoder_model              input_ids, encoder_attention_mask, encoder_hidden_states -> logits, present.*
    decoder_with_past_model    input_ids, encoder_attention_mask, past_key_values.* -> logits, present.*

    B batch   m target tokens   n source tokens   t tokens of the past   H key-value heads   d width of a head
"""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.cache import ProjectedSource
from regard.errors import UsageError
from regard.interop.exports.ctranslate2_folder import tokenizer_names
from regard.interop.exports.model_source import ModelSource, new_folder
from regard.models.config import EncoderConfig, TransformerConfig, TransformerLMConfig
from regard.system.files import write_synced

STORAGES = ("float32",)
OPSET = 18
MAX_NUMBERS = 400_000_000  # in one file, whose limit is 2 GiB
ROWS, TOKENS, SOURCE_TOKENS, PAST = 2, 3, 4, 5  # of the example inputs; a size of 1 would be taken for a constant


class GrowingCache:
    """A cache without a buffer: each call returns longer keys and values."""

    def __init__(self, k: Tensor | None = None, v: Tensor | None = None) -> None:
        self.k, self.v = k, v

    def positions(self, m: int) -> Tensor:
        past = 0 if self.k is None else self.k.shape[2]
        return torch.arange(past, past + m)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.k = k if self.k is None else torch.cat([self.k, k], 2)
        self.v = v if self.v is None else torch.cat([self.v, v], 2)
        return self.k, self.v

    def restrict(self, mask: Any, causal: bool, m: int) -> tuple[Any, bool]:
        return mask, causal


class Graph(NamedTuple):
    """A module to export, with example inputs by name, the names of its outputs, and the sizes that vary."""

    name: str
    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: list[str]


class EncoderGraph(nn.Module):
    """The encoder of a translator, or a sentence encoder with its pooling."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        keep = attention_mask.bool()
        tokens = self.model.input if hasattr(self.model, "input") else self.model.source
        states = self.model.encoder(tokens(input_ids), mask=keep[:, None, None])
        if not hasattr(self.model, "_pooled"):
            return (states,)
        pooled = self.model._pooled(states, keep)
        return states, nn.functional.normalize(pooled, dim=-1) if self.model.config.normalize else pooled


class DecoderGraph(nn.Module):
    """The decoder; without a past it reads the first tokens, and with one a further token."""

    def __init__(self, model: Any, *, past: bool) -> None:
        super().__init__()
        self.model, self.past = model, past
        self.tokens = model.target if hasattr(model, "target") else model.input
        self.crossed = hasattr(model, "target")

    def forward(self, input_ids: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        blocks, mask, memory, others = self.model.decoder.blocks, None, None, inputs
        if self.crossed:
            mask, others = inputs[0].bool()[:, None, None], inputs[1:]
        if not self.past:
            caches = [GrowingCache() for _ in blocks]
            memory = [block.project_source(others[0], None) for block in blocks] if self.crossed else None
        else:
            size = 4 if self.crossed else 2
            groups = [others[i : i + size] for i in range(0, len(others), size)]
            caches = [GrowingCache(*group[:2]) for group in groups]
            memory = [ProjectedSource(*group[2:]) for group in groups] if self.crossed else None
        x = self.tokens(input_ids, caches[0].positions(input_ids.shape[1]))
        x = self.model.decoder(x, causal=True, caches=caches, memory=memory, memory_mask=mask)
        presents: list[Any] = []
        for i, cache in enumerate(caches):
            presents += [cache.k, cache.v]
            if memory is not None and not self.past:
                presents += [memory[i].k, memory[i].v]
        return self.model.project(x), *presents


def export(source: ModelSource, out: Path, storage: str) -> None:
    """Write the folder; UsageError if the model is no Transformer of these kinds. `storage` is float32."""
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"--to onnx needs {' and '.join(missing)}: pip install 'regard[onnx]'")
    config = source.config
    if not isinstance(config, TransformerConfig | TransformerLMConfig | EncoderConfig):
        raise UsageError(f"regard writes no ONNX graphs of the kind {config.kind!r}")
    if config.attention != "softmax" or config.window is not None:
        raise UsageError("regard writes no ONNX graphs of random features or of a window")
    settings = {**config.to_dict(), "model_type": f"regard-{config.kind}", **_tokens(source)}
    with new_folder(out) as folder:
        for graph in _graphs(source.model.eval(), config):
            _write(graph, folder)
        write_synced(folder / "config.json", json.dumps(settings, indent=2).encode())
        for name, content in tokenizer_names(source).items():
            write_synced(folder / name, content)


def _tokens(source: ModelSource) -> dict[str, Any]:
    """Return the special tokens, and what stands around a text."""
    special = source.special
    before, after = source.around_source()
    return {
        "pad_token_id": special.pad,
        "decoder_start_token_id": special.start,
        "eos_token_id": list(special.ends),
        "bad_token_ids": sorted(special.never_chosen(allow_unknown=False)),
        "source_before": before,
        "source_after": after,
        "target_before": source.before_target(),
    }


def _graphs(model: Any, config: Any) -> list[Graph]:
    ids, mask = torch.zeros(ROWS, SOURCE_TOKENS, dtype=torch.long), torch.ones(ROWS, SOURCE_TOKENS, dtype=torch.long)
    source = {"input_ids": ids, "attention_mask": mask}
    if isinstance(config, EncoderConfig):
        return [Graph("model", EncoderGraph(model), source, ["last_hidden_state", "sentence_embedding"])]
    crossed = isinstance(config, TransformerConfig)
    graphs = [Graph("encoder_model", EncoderGraph(model), source, ["last_hidden_state"])] if crossed else []
    layers, heads = config.stacks["decoder"], config.kv_heads or config.heads
    sides = ("decoder", "encoder") if crossed else ("decoder",)
    target = torch.zeros(ROWS, TOKENS, dtype=torch.long)
    first = {"input_ids": target}
    if crossed:
        first |= {"encoder_attention_mask": mask, "encoder_hidden_states": torch.zeros(ROWS, SOURCE_TOKENS, config.dim)}
    presents = [f"present.{i}.{side}.{what}" for i in range(layers) for side in sides for what in ("key", "value")]
    graphs.append(Graph("decoder_model", DecoderGraph(model, past=False), first, ["logits", *presents]))
    further = {name: value for name, value in first.items() if name != "encoder_hidden_states"}
    for name in presents:
        length = PAST if ".decoder." in name else SOURCE_TOKENS
        width = config.key_width if name.endswith("key") else config.value_width
        further[name.replace("present", "past_key_values")] = torch.zeros(ROWS, heads, length, width)
    changed = [name for name in presents if ".decoder." in name]
    graphs.append(Graph("decoder_with_past_model", DecoderGraph(model, past=True), further, ["logits", *changed]))
    return graphs


def _write(graph: Graph, folder: Path) -> None:
    """Export a graph whose batch and lengths vary."""
    dim = torch.export.Dim
    batch, sizes = dim("batch"), {"t": dim("past"), "n": dim("source_tokens"), "m": dim("tokens")}

    def varying(name: str) -> dict[int, Any]:
        if name.startswith("past_key_values"):
            return {0: batch, 2: sizes["t" if ".decoder." in name else "n"]}
        length = "n" if name.startswith(("attention", "encoder")) or "attention_mask" in graph.inputs else "m"
        return {0: batch, 1: sizes[length]}

    shapes = [varying(name) for name in graph.inputs]
    names = list(graph.inputs)
    rest = [tuple(shapes[1:])] if len(shapes) > 1 else []  # a decoder's inputs behind the first are one list
    dynamic = [shapes[0], *rest] if isinstance(graph.module, DecoderGraph) else shapes
    with _quiet():
        program = torch.onnx.export(
            graph.module,
            tuple(graph.inputs.values()),
            input_names=names,
            output_names=graph.outputs,
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=tuple(dynamic),
            verbose=False,
        )
        assert program is not None
        large = sum(weight.numel() for weight in graph.module.parameters()) > MAX_NUMBERS
        program.save(str(folder / f"{graph.name}.onnx"), external_data=large)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the exporter tells developers of PyTorch."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
