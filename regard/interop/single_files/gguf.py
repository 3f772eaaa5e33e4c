"""Read a model from a GGUF file: its weights, its tokenizer and its chat template."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.interop.families import gguf, llama
from regard.interop.families.family import TokenIds
from regard.interop.files.gguf_file import GGUFFile
from regard.interop.files.settings_file import SettingsFile
from regard.interop.files.weight_source import WeightSource
from regard.interop.rotary_order import to_halves
from regard.interop.single_files.byte_pairs import SPLITS, byte_level_tokenizer, scored_tokenizer
from regard.interop.single_files.single_file import SingleFile
from regard.machine.lazy_torch import torch
from regard.models.folder.config_file import shortened
from regard.text.tokenizers.imported import ImportedTokenizer

PREFIX = "tokenizer.ggml."
CONTROL, VERBATIM = 3, 4  # types of tokens; 2 is the unknown one, 6 a byte
HARMLESS = ("bos_token_id", "unknown_token_id", "eot_token_id", "eom_token_id", "mask_token_id", "seperator_token_id")


def read_gguf(path: Path, allow_keys: Collection[str] = ()) -> SingleFile:
    """Read the settings of a GGUF file; its weights are read later."""
    file = GGUFFile(path)
    settings = SettingsFile(path, file.settings, allowed=allow_keys)
    shapes = {name: weight.shape for name, weight in file.weights.items()}
    frequencies = file.get(gguf.FREQUENCIES).float() if gguf.FREQUENCIES in shapes else None
    mapped = gguf.hub_settings(settings, shapes, frequencies)
    tokenizer, tokens, notes = _tokenizer(settings)
    template = settings.take("tokenizer.chat_template", str, "")
    settings.ignore(*(name for name in settings.content if name.startswith("tokenizer.chat_template.")))
    settings.ignore("tokenizer.chat_templates", "tokenizer.huggingface.json")
    settings.finish()
    plan = llama.make_plan(SettingsFile(path, mapped), tokens)
    names = {gguf.hub_name(name): name for name in shapes if name != gguf.FREQUENCIES}
    heads = {"q_proj": mapped["num_attention_heads"], "k_proj": mapped["num_key_value_heads"]}
    interleaved = file.settings["general.architecture"] in gguf.INTERLEAVED

    def get(name: str) -> torch.Tensor:
        weight = file.get(names[name])
        part = name.split(".")[-2]
        return to_halves(weight, heads[part]) if interleaved and part in heads else weight

    dtypes = {name: file.dtype(stored) for name, stored in names.items()}
    source = WeightSource(path, {name: shapes[stored] for name, stored in names.items()}, get, dtypes)
    kinds = sorted({*dtypes.values()} - {"F32", "F16", "BF16"})
    if kinds:
        notes.append(
            f"Its matrices were quantized ({', '.join(kinds)}); they are stored as the numbers that these stand for."
        )
    return SingleFile(mapped["model_type"], plan, tokens, tokenizer, source, template, tuple(notes))


def _tokenizer(settings: SettingsFile) -> tuple[ImportedTokenizer, TokenIds, list[str]]:
    def take(name: str, kind: type, default: Any = None) -> Any:
        return settings.take(PREFIX + name, kind, default)

    tokens, types = take("tokens", list, []), take("token_type", list, [])
    if not tokens or not all(isinstance(token, str) for token in tokens):
        raise ModelError(f"{settings.path}: {PREFIX}tokens must list the tokens")
    if types and (len(types) != len(tokens) or not all(type(kind) is int for kind in types)):
        raise ModelError(f"{settings.path}: {PREFIX}token_type must have a number for each token")
    special = [number for number, kind in enumerate(types) if kind == CONTROL]
    verbatim = [number for number, kind in enumerate(types) if kind == VERBATIM]
    ids = {name: take(f"{name}_token_id", int) for name in ("bos", "eos", "unknown", "padding", "eot", "eom")}
    if wrong := [number for number in ids.values() if number is not None and not 0 <= number < len(tokens)]:
        raise ModelError(f"{settings.path}: token {wrong[0]} is none of the {len(tokens)} tokens")
    if ids["eos"] is None:
        raise ModelError(f"{settings.path}: there is no {PREFIX}eos_token_id, the token that ends a text")
    model = take("model", str, "")
    begins = take("add_bos_token", bool, model == "llama")
    before = (ids["bos"],) if begins and ids["bos"] is not None else ()
    settings.ignore(*(PREFIX + name for name in HARMLESS), f"{PREFIX}add_eos_token")
    options = {"special": special, "verbatim": verbatim, "before": before}
    notes: list[str] = []
    try:
        tokenizer = _library(settings, model, tokens, ids, options, notes)
    except ModelError as error:
        raise ModelError(f"{settings.path}: {error}") from error
    ends = tuple(dict.fromkeys(ids[name] for name in ("eos", "eot", "eom") if ids[name] is not None))
    framed = TokenIds(ids["bos"], ends, ids["padding"], tokenizer.unknown, tokenizer.size, before, ())
    return tokenizer, framed, notes


def _library(
    settings: SettingsFile, model: str, tokens: list[str], ids: Mapping[str, int | None], options: Any, notes: list[str]
) -> ImportedTokenizer:
    scores = settings.take(f"{PREFIX}scores", list, [])
    merges = settings.take(f"{PREFIX}merges", list, [])
    prefix = settings.take(f"{PREFIX}add_space_prefix", bool, True)
    split = settings.take(f"{PREFIX}pre", str, "default")
    settings.must_be(f"{PREFIX}remove_extra_whitespaces", False)
    if model == "gpt2":
        if split not in SPLITS:
            known = ", ".join(SPLITS)
            raise ModelError(f"{PREFIX}pre is {shortened(repr(split))}, and regard knows the splits {known}")
        if split == "default":
            notes.append(
                "The file does not say how a text is split before its bytes are merged; regard splits as GPT-2 does."
            )
        if not all(isinstance(merge, str) for merge in merges):
            raise ModelError(f"{PREFIX}merges must be a list of texts")
        return byte_level_tokenizer(tokens, merges, split=split, **options)
    if model == "llama":
        if len(scores) != len(tokens) or not all(isinstance(score, float) for score in scores):
            raise ModelError(f"{PREFIX}scores must have a number for each token")
        return scored_tokenizer(tokens, scores, unknown=ids["unknown"], prefix=prefix, **options)
    raise ModelError(f"{PREFIX}model is {shortened(repr(model))}, known: gpt2, llama")
