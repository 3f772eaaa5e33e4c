"""Write a GGUF file of llama.cpp: a Llama, Qwen2 or Qwen3, and its tokenizer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from regard.errors import UsageError
from regard.interop.exports import hub_classes
from regard.interop.exports.hub_model import HubModel
from regard.interop.exports.model_source import ModelSource, new_file, vocabulary_of
from regard.interop.families import gguf
from regard.interop.files.gguf_blocks import to_q8_0
from regard.interop.files.gguf_file import write_gguf
from regard.interop.rotary_order import to_interleaved
from regard.interop.weight_table import WeightTable
from regard.machine.lazy_torch import torch
from regard.models.config import TransformerLMConfig
from regard.text.tokenizers.characters import CharacterTokenizer
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.imported_file import LLAMA3_SPLIT, QWEN2_SPLIT
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import SPACE, Tokenizer

STORAGES = ("float32", "float16", "bfloat16", "int8")
TYPES = {"float32": 0, "float16": 1, "bfloat16": 30, "int8": 8}  # of matrices; int8 is Q8_0
FILE_TYPES = {"float32": 0, "float16": 1, "bfloat16": 32, "int8": 7}  # general.file_type
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6  # types of tokens
BYTE_NAME = re.compile(r"<0x[0-9A-F]{2}>")
UNIGRAM_TYPE, BPE_TYPE = "t5", "llama"


def export(source: ModelSource, out: Path, storage: str) -> None:
    """Write the file; UsageError if llama.cpp cannot compute the model."""
    if not isinstance(source.config, TransformerLMConfig):
        raise UsageError(f"llama.cpp has no model of the kind {source.config.kind!r}; try --to ct2 or --to onnx")
    model = hub_classes.language_model(source)
    if isinstance(model, str) or model.settings["model_type"] not in gguf.ARCHITECTURES:
        reason = model if isinstance(model, str) else f"it would be a {model.architecture}"
        raise UsageError(
            f"regard writes GGUF files of Llama, Qwen2 and Qwen3 only (norm = 'rms', rotary positions): {reason}; "
            "--to hf and --to ct2 take other settings"
        )
    settings = {**_settings(source, model.settings, storage), **_tokenizer(source)}
    weights = {name: _stored(weight, storage) for name, weight in _weights(model).items()}
    with new_file(out) as path:
        write_gguf(path, settings, weights)


def _settings(source: ModelSource, hub: Any, storage: str) -> dict[str, Any]:
    architecture = next(ours for ours, theirs in gguf.ARCHITECTURES.items() if theirs == hub["model_type"])
    rope = hub["rope_parameters"]
    if rope["rope_type"] not in ("default", "linear"):
        raise UsageError(f"regard writes no GGUF file with rope_scaling = {rope['rope_type']!r} yet; --to hf does")
    keys = {name: hub[key] for name, (key, _) in gguf.KEYS.items() if key in hub}
    keys |= {"rope.freq_base": rope["rope_theta"], "rope.dimension_count": hub["head_dim"]}
    keys["attention.value_length"] = hub["head_dim"]
    if rope["rope_type"] == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": rope["factor"]}
    general = {"general.architecture": architecture, "general.type": "model", "general.name": source.name}
    general |= {"general.file_type": FILE_TYPES[storage], "general.quantization_version": 2}  # type: ignore[dict-item]
    return {**general, **{f"{architecture}.{name}": value for name, value in keys.items()}}


def _weights(model: HubModel) -> dict[str, torch.Tensor]:
    """Return the weights under the names of GGUF, queries and keys in the order of the architecture."""
    shapes = {name: tuple(weight.shape) for name, weight in model.weights.items()}
    heads = {"q_proj": model.settings["num_attention_heads"], "k_proj": model.settings["num_key_value_heads"]}
    interleaved = model.settings["model_type"] in gguf.INTERLEAVED
    weights = {}
    for name, weight in WeightTable(model.rows, ours=shapes).write(model.weights.__getitem__):
        part = name.split(".")[-2]
        reordered = to_interleaved(weight, heads[part]) if interleaved and part in heads else weight
        weights[gguf.gguf_name(name)] = reordered.contiguous()
    return weights


def _stored(weight: torch.Tensor, storage: str) -> tuple[int, np.ndarray]:
    if weight.dim() < 2 or (storage == "int8" and weight.shape[-1] % 32):
        return TYPES["float32"], weight.float().numpy()
    if storage == "int8":
        blocks = to_q8_0(weight.float().numpy())
        return TYPES["int8"], blocks.reshape(len(weight), -1)
    if storage == "bfloat16":
        return TYPES["bfloat16"], weight.bfloat16().view(torch.int16).numpy()
    return TYPES[storage], weight.to(getattr(torch, storage)).numpy()


def _tokenizer(source: ModelSource) -> dict[str, Any]:
    tokenizer, special = source.tokenizers[1], source.special
    names = vocabulary_of(tokenizer, source.config.vocabulary)
    before = source.before_target()
    if len(before) > 1:
        raise UsageError("llama.cpp puts one token before a text, and this model has several; --to hf takes them")
    settings: dict[str, Any] = {
        "tokens": names,
        **_kind(tokenizer, names),
        "bos_token_id": before[0] if before else special.start,
        "eos_token_id": special.end,
        "padding_token_id": special.pad,
        "add_bos_token": bool(before),
        "add_eos_token": False,
    }
    if len(special.ends) > 1:
        settings["eot_token_id"] = special.ends[1]
    if special.unknown is not None:
        settings["unknown_token_id"] = special.unknown
    return {f"tokenizer.ggml.{name}": value for name, value in settings.items()}


def _kind(tokenizer: Tokenizer, names: list[str]) -> dict[str, Any]:
    """Return what a tokenizer needs beside the names of its tokens; UsageError if llama.cpp has none like it."""
    if isinstance(tokenizer, ImportedTokenizer):
        return _imported(tokenizer, names)
    special_types = [UNKNOWN if name == "<unk>" else CONTROL for name in SPECIAL_TOKENS]
    if isinstance(tokenizer, CharacterTokenizer):
        for number, name in enumerate(names):
            names[number] = SPACE if name == " " else name
        types = special_types + [NORMAL] * (len(names) - len(special_types))
        return {"model": BPE_TYPE, "scores": [0.0] * len(names), "token_type": types, "add_space_prefix": False}
    if isinstance(tokenizer, SubwordTokenizer) and not tokenizer.lossless:
        pieces = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.save()[1])
        scores = [float(pieces.get_score(number)) for number in range(pieces.get_piece_size())]
        bytes_and_rest = [
            BYTE if pieces.is_byte(number) else NORMAL for number in range(len(special_types), len(scores))
        ]
        unigram = any(score != int(score) for score in scores)
        more = len(names) - len(scores)
        settings = {"model": UNIGRAM_TYPE if unigram else BPE_TYPE, "add_space_prefix": True}
        if unigram:
            settings["remove_extra_whitespaces"] = True
        return {
            **settings,
            "scores": scores + [0.0] * more,
            "token_type": special_types + bytes_and_rest + [USER] * more,
        }
    raise UsageError(f"llama.cpp has no tokenizer like this {type(tokenizer).__name__}; --to hf and --to ct2 take it")


def _imported(tokenizer: ImportedTokenizer, names: list[str]) -> dict[str, Any]:
    content = json.loads(tokenizer.save()[1])
    model, added = content["model"], {token["id"]: token["special"] for token in content["added_tokens"]}
    types = [NORMAL if number not in added else CONTROL if added[number] else USER for number in range(len(names))]
    types[tokenizer.size :] = [USER] * (len(names) - tokenizer.size)
    if tokenizer.unknown is not None:
        types[tokenizer.unknown] = UNKNOWN
    split = _split(content.get("pre_tokenizer"))
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges", [])]
    if model["type"] == "BPE" and split is not None:
        merges = [" ".join(pair) for pair in pairs]
        return {"model": "gpt2", "pre": split, "merges": merges, "token_type": types}
    if model["type"] == "BPE" and model.get("byte_fallback") and content.get("pre_tokenizer") is None:
        ranks: dict[str, int] = {}
        for rank, pair in enumerate(pairs):
            ranks.setdefault("".join(pair), rank)
        types = [BYTE if BYTE_NAME.fullmatch(name) else kind for name, kind in zip(names, types, strict=True)]
        prefix = '"Prepend"' in json.dumps(content.get("normalizer"))
        scores = [-float(ranks.get(name, 0)) for name in names]
        return {"model": BPE_TYPE, "scores": scores, "token_type": types, "add_space_prefix": prefix}
    raise UsageError("llama.cpp has no tokenizer like that of this model, as far as regard knows; --to hf takes it")


def _split(part: Any) -> str | None:
    """Return the name of a way to split texts, from the pre_tokenizer of tokenizer.json; None if llama.cpp lacks it."""
    sequence = isinstance(part, dict) and part.get("type") == "Sequence"
    parts: list[Any] = part.get("pretokenizers") or [] if sequence else [part]
    kinds = [each.get("type") for each in parts if isinstance(each, dict)]
    if kinds == ["ByteLevel"] and parts[0].get("use_regex", True):
        return "gpt-2"
    if kinds == ["Digits", "ByteLevel"]:
        return "smollm"
    if kinds == ["Split", "ByteLevel"]:
        pattern = parts[0].get("pattern", {}).get("Regex")
        return {LLAMA3_SPLIT: "llama-bpe", QWEN2_SPLIT: "qwen2"}.get(pattern)
    return None
