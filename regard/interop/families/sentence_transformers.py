"""What sentence-transformers puts around an encoder: how its vectors become one, and how long a text may be."""

from __future__ import annotations

import dataclasses
from typing import Any

from regard.errors import ModelError
from regard.interop.files.hub_folder import HubFolder
from regard.models.config import EncoderConfig
from regard.models.folder.config_file import read_json_value, shortened

POOLINGS = {"mean": "mean", "cls": "first", "max": "max"}
OLD_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
}
PLAIN = "The folder does not say how token vectors become the vector of a sentence; regard takes their mean."


def with_pooling(config: EncoderConfig, folder: HubFolder) -> tuple[EncoderConfig, dict[str, Any], list[str]]:
    """Return the config with the pooling of the folder, entries of config.json, and notes.

    The entries are the most tokens of a text, and the prompts by their names. Without a module that normalizes them,
    vectors keep their lengths.
    """
    path = folder.path("modules.json")
    if path is None:
        return config, {"max_tokens": config.max_length}, [PLAIN]
    modules = read_json_value(path.resolve())
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ModelError(f"{path}: must list the modules of sentence-transformers")
    kinds = [str(module.get("type")).rpartition(".")[2] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]) or modules[0].get("path"):
        raise ModelError(f"{path}: the modules are {shortened(kinds)}; known: Transformer, Pooling and Normalize")
    pooling = _pooling(folder, modules[1].get("path"), config.dim)
    settings = folder.settings("sentence_bert_config.json", required=False)
    limit = min(settings.take("max_seq_length", int, config.max_length), config.max_length)
    settings.must_be("do_lower_case", False)
    settings.finish()
    prompts = _prompts(folder)
    if limit < 3:
        raise ModelError(f"{folder.root}: max_seq_length must be at least 3, got {limit}")
    info = {"max_tokens": limit, **({"prompts": prompts} if prompts else {})}
    return dataclasses.replace(config, pooling=pooling, normalize=kinds[-1] == "Normalize"), info, _notes(prompts)


def _prompts(folder: HubFolder) -> dict[str, str]:
    """Return the prompts that a user may put before a text; ModelError if one is put there by default."""
    settings = folder.settings("config_sentence_transformers.json", required=False)
    settings.must_be("default_prompt_name", why="regard puts nothing before a text by itself")
    settings.must_be("similarity_fn_name", "cosine")
    prompts = settings.take("prompts", dict, {})
    settings.ignore("__version__", "model_type")
    settings.finish()
    if not all(isinstance(text, str) for text in prompts.values()):
        raise ModelError(f"{settings.path}: prompts must be texts by name")
    return {name: text for name, text in prompts.items() if text}


def _notes(prompts: dict[str, str]) -> list[str]:
    listed = ", ".join(f"{shortened(repr(text))} as {shortened(name)}" for name, text in prompts.items())
    note = f'Its authors put these words before a text, as `embed(texts, prompt="…")` does: {listed}.'
    return [note] if listed else []


def _pooling(folder: HubFolder, place: Any, dim: int) -> str:
    settings = folder.settings("config.json", folder=str(place))
    width = settings.take("word_embedding_dimension", int, dim)
    if width != dim:
        raise ModelError(f"{settings.path}: word_embedding_dimension is {width}, and the vectors have {dim} numbers")
    settings.must_be("include_prompt", True)
    named = settings.take("pooling_mode", str, None)
    chosen = [] if named is None else [POOLINGS.get(named, named)]
    for key in [key for key in settings.content if key.startswith("pooling_mode_")]:
        if settings.take(key, bool, False):
            chosen.append(OLD_POOLINGS.get(key, key))
    settings.finish()
    if len({*chosen}) != 1 or chosen[0] not in POOLINGS.values():
        raise ModelError(f"{settings.path}: the pooling is {shortened(chosen)}, known: {', '.join(POOLINGS)}")
    return str(chosen[0])
