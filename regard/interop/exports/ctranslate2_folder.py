"""Write a model folder of CTranslate2: model.bin, config.json, the vocabularies, and the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.interop.exports.model_source import ModelSource, new_folder, vocabulary_of
from regard.interop.families import ctranslate2 as names
from regard.interop.files.ctranslate2_file import quantized, scalar, write_file
from regard.interop.weight_table import WeightTable
from regard.machine.lazy_torch import torch
from regard.models.config import TransformerConfig
from regard.models.config.stack import StackConfig
from regard.positions.sinusoids import sinusoidal
from regard.system.files import write_synced
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer, tokenizer_files

STORAGES = ("float32", "float16", "bfloat16", "int8")
POSITIONS = 2048  # rows of a table of positions that has no end of its own


def export(source: ModelSource, out: Path, storage: str) -> None:
    """Write the folder; UsageError if CTranslate2 cannot compute the model."""
    config = names.check(source.config)
    settings, vocabularies = _settings(source), _vocabularies(source, config)
    with new_folder(out) as folder:
        write_file(folder / "model.bin", *names.KINDS[type(config)], _arrays(source, storage), names.aliases(config))
        write_synced(folder / "config.json", json.dumps(settings, indent=2, sort_keys=True).encode())
        for name, tokens in vocabularies.items():
            write_synced(folder / f"{name}.json", json.dumps(tokens, indent=2).encode())
        for name, content in tokenizer_names(source).items():
            write_synced(folder / name, content)
        write_synced(folder / "README.md", _card(source, storage).encode())


def tokenizer_names(source: ModelSource) -> dict[str, bytes]:
    """Return the files of the tokenizers, sentencepiece models under the names that others use for them."""
    files = tokenizer_files(*source.tokenizers)
    new = {
        "tokenizer.model": "sentencepiece.model",
        "source.tokenizer.model": "source.spm",
        "target.tokenizer.model": "target.spm",
    }
    return {new.get(name, name): content for name, content in files.items()}


def _settings(source: ModelSource) -> dict[str, Any]:
    special, config = source.special, source.config
    target = vocabulary_of(source.tokenizers[1], config.vocabularies[-1])
    end, start = target[special.end], target[special.start]
    settings: dict[str, Any] = {
        "bos_token": start,
        "eos_token": end,
        "unk_token": end if special.unknown is None else target[special.unknown],
        "layer_norm_epsilon": _eps(config),
        "multi_query_attention": config.kv_heads not in (None, config.heads),
    }
    if isinstance(config, TransformerConfig):
        before, after = source.around_source()
        if before not in ([], [special.start]) or after not in ([], [special.end]):
            raise UsageError("CTranslate2 puts only the start and the end token around a source; --to onnx does not")
        if source.before_target() != [special.start]:
            raise UsageError("the target begins with several tokens, which CTranslate2 takes with each text only")
        settings |= {
            "add_source_bos": bool(before),
            "add_source_eos": bool(after),
            "decoder_start_token": start,
        }
    return settings


def _eps(config: StackConfig) -> float:
    if config.norm_eps is None and config.qk_norm:
        raise UsageError("CTranslate2 has one epsilon for all normalizations, and qk_norm has another; set norm_eps")
    return (1e-6 if config.norm == "rms" else 1e-5) if config.norm_eps is None else config.norm_eps


def _vocabularies(source: ModelSource, config: StackConfig) -> dict[str, list[str]]:
    def listed(tokenizer: Tokenizer, size: int) -> list[str]:
        return vocabulary_of(tokenizer, size)

    if not isinstance(config, TransformerConfig):
        return {"vocabulary": listed(source.tokenizers[1], config.vocabularies[-1])}
    both = [listed(*side) for side in zip(source.tokenizers, config.vocabularies, strict=True)]
    if both[0] == both[1]:
        return {"shared_vocabulary": both[0]}
    return {"source_vocabulary": both[0], "target_vocabulary": both[1]}


def _arrays(source: ModelSource, storage: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all arrays of model.bin in the type in which they are stored."""
    config, weights = source.config, source.weights()
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    for name, (value, dtype) in names.attributes(config).items():
        yield name, scalar(value, dtype)
    for name, weight in WeightTable(names.rows(config), ours=shapes).write(weights.__getitem__):
        yield from _stored(name, weight, storage)
    for name, width in names.zeros(config).items():
        yield from _stored(name, torch.zeros(width), storage)
    table = positions(config)
    if table is not None:
        for stack in config.stacks:
            yield from _stored(f"{stack}/{names.ENCODINGS}", table, storage)


def positions(config: StackConfig) -> torch.Tensor | None:
    """Return the table of positions that are no weights; None if the positions are weights, or inside attention."""
    if config.position == "none":  # without a table, CTranslate2 adds sinusoids of its own
        return torch.zeros(POSITIONS, config.dim)
    if config.position != "sinusoidal":
        return None
    return sinusoidal(
        POSITIONS,
        config.dim,
        start=config.position_start,
        base=config.position_base,
        layout=config.position_layout,  # type: ignore[arg-type]  # checked by the config
        first=config.frequency_start,
    )


def _stored(name: str, weight: torch.Tensor, storage: str) -> Iterator[tuple[str, torch.Tensor]]:
    if storage == "int8":
        matrix = name.endswith("/weight")
        yield from (quantized(name, weight) if matrix else {name: weight.float()}).items()
    else:
        yield name, weight.to(getattr(torch, storage))


def _card(source: ModelSource, storage: str) -> str:
    config = source.config
    subwords = isinstance(source.tokenizers[0], SubwordTokenizer)
    tokens = 'with sentencepiece: encode(text, out_type=str)"' if subwords else "as the file of the tokenizer says"
    lines = [
        f"# {source.name} for CTranslate2",
        f"`regard export --to ct2` wrote this folder, with weights in {storage}. Split texts into tokens {tokens}.",
    ]
    if len(source.special.ends) > 1:
        ends = [source.tokenizers[1].pieces([end])[0] for end in source.special.ends]
        lines.append(f"Several tokens end a text: pass end_token={ends!r}.")
    if config.position in ("none", "sinusoidal"):
        lines.append(f"Texts may have up to {POSITIONS} tokens.")
    return "\n\n".join(lines) + "\n"
