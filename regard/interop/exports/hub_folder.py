"""Write a folder in the format of Hugging Face, which `from_pretrained` of transformers opens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from regard.errors import UsageError
from regard.interop.exports import hub_classes, hub_tokenizer, hub_translators, marian_tokenizers
from regard.interop.exports.hub_model import HubModel
from regard.interop.exports.model_source import ModelSource, new_folder
from regard.interop.weight_table import WeightTable
from regard.machine.lazy_torch import torch
from regard.models.config import Config, EncoderConfig, TransformerConfig, TransformerLMConfig
from regard.system.files import write_synced

STORAGES = ("float32", "float16", "bfloat16")
KINDS: dict[type[Config], Callable[[ModelSource], HubModel | str]] = {
    TransformerLMConfig: hub_classes.language_model,
    EncoderConfig: hub_classes.encoder,
    TransformerConfig: hub_translators.translator,
}


def export(source: ModelSource, out: Path, storage: str) -> None:
    """Write the folder; UsageError if no class of transformers computes the model."""
    find = KINDS.get(type(source.config))
    model = f"transformers has no class for the kind {source.config.kind!r}" if find is None else find(source)
    if isinstance(model, str):
        raise UsageError(f"{model}; --to ct2 and --to onnx take other settings")
    translates_pieces = isinstance(source.config, TransformerConfig) and marian_tokenizers.are_piece_tokenizers(source)
    tokenizer_files = (marian_tokenizers if translates_pieces else hub_tokenizer).tokenizer_files
    files = {**_settings(source, model, storage), **tokenizer_files(source)}
    with new_folder(out) as folder:
        weights = {name: weight.to(getattr(torch, storage)) for name, weight in _weights(model).items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_synced(folder / name, content)


def _weights(model: HubModel) -> dict[str, torch.Tensor]:
    """Return the weights under the names of transformers."""
    shapes = {name: tuple(weight.shape) for name, weight in model.weights.items()}
    theirs = dict(WeightTable(model.rows, ours=shapes, excluded=model.excluded).write(model.weights.__getitem__))
    heads = ("lm_head.", "embed_out.", "final_logits_bias")
    named = {name if name.startswith(heads) else model.prefix + name: weight for name, weight in theirs.items()}
    return {name: weight.contiguous().clone() for name, weight in model.finish(named).items()}


def _settings(source: ModelSource, model: HubModel, storage: str) -> dict[str, bytes]:
    """Return the files with settings, by name."""
    tokens = hub_classes.token_settings(source)
    settings = {"architectures": [model.architecture], **model.settings, "dtype": storage}
    files: dict[str, Any] = {"config.json": settings}
    if isinstance(source.config, TransformerLMConfig):
        files["generation_config.json"] = {**tokens, "do_sample": False}
    if isinstance(source.config, TransformerConfig):
        files["generation_config.json"] = hub_translators.generation_settings(source)
    if isinstance(source.config, EncoderConfig):
        files |= _sentence_transformers(source)
    return {name: json.dumps(content, indent=2).encode() for name, content in files.items()}


def _sentence_transformers(source: ModelSource) -> dict[str, Any]:
    """Return what sentence-transformers reads: the modules, the pooling, and the longest text."""
    config: EncoderConfig = source.config
    modules = [
        ("", "Transformer"),
        ("1_Pooling", "Pooling"),
        *([("2_Normalize", "Normalize")] if config.normalize else []),
    ]
    pooling = {"mean": "mean_tokens", "first": "cls_token", "max": "max_tokens"}[config.pooling]
    return {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
            for i, (path, name) in enumerate(modules)
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": config.dim, f"pooling_mode_{pooling}": True},
        "sentence_bert_config.json": {"max_seq_length": min(config.max_length, source.info.get("max_tokens") or 2**24)},
    }
