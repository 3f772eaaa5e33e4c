"""config.json of a model folder, and JSON from strangers: read in little memory, and held against what it must be.

Besides the kind and the settings of the model, config.json tells what its training knew; what of that regard makes use
of is checked here, so that whoever reads it later can rely on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.errors import ModelError, unknown_name
from regard.models.presets import MODELS
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

LARGEST_JSON = 4 * 2**20  # bytes; some JSON takes 24 times as much memory as space in its file
LONGEST_MESSAGE = 300  # characters of what is quoted from a file
STORAGES = ("float32", "bfloat16", "int8")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in that file. A name may stand in an object once only: readers differ on which one counts."""
    if path.is_symlink() or not path.is_file():
        raise ModelError(f"{path}: not a plain file")
    if path.stat().st_size > LARGEST_JSON:
        raise ModelError(f"{path}: larger than {LARGEST_JSON} bytes, which no such file is")
    try:
        content = json.loads(path.read_bytes().decode(), object_pairs_hook=_once)
        json.dumps(content, ensure_ascii=False).encode()  # half surrogates are no characters
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON: {shortened(error)}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: holds no JSON object")
    return content


def read_checked_config(path: Path) -> dict[str, Any]:
    """config.json, with everything in it that regard knows as it must be; what it does not know is left as it is."""
    config = read_json(path)
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in MODELS:
        raise ModelError(f"{path}: {shortened(unknown_name('kind of model', kind, tuple(MODELS)))}")
    if not isinstance(config.get("model"), dict):
        raise ModelError(f"{path}: the settings of the model are missing")
    if fault := find_fault(config):
        raise ModelError(f"{path}: {fault}")
    return config


def find_fault(config: Mapping[str, Any]) -> str:
    """What is wrong with what config.json says beside kind and settings; nothing: an empty text."""
    for name, (fits, wanted) in INFO.items():
        value = config.get(name)
        if value is not None and not fits(value):
            return f"{name} must be {wanted}, got {shortened(repr(value))}"
    return ""


def shortened(text: object) -> str:
    """What is told of a stranger's file: short enough to be read, and nothing that a terminal would obey."""
    text = str(text)
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return content


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least  # true and false are no numbers here


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(one is None or isinstance(one, str) for one in value.values())


def _are_scores(value: Any) -> bool:
    """Numbers, and numbers with a name and a signature such as BLEU's. One that training could not compute is NaN."""
    return isinstance(value, dict) and all(
        type(one) in (int, float) or (isinstance(one, dict) and type(one.get("value")) in (int, float))
        for one in value.values()
    )


def _is_recipe(value: Any) -> bool:
    data = value.get("data", {}) if isinstance(value, dict) else None
    return isinstance(data, dict) and (data.get("max_length") is None or _is_whole(data["max_length"], 1))


def _is_alignment(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("layer"), str)
        and (value.get("head") is None or _is_whole(value["head"], 0))
    )


# What config.json says beside kind and settings: whether it is as it must be, and how that is. Each may be missing.
INFO: dict[str, tuple[Callable[[Any], bool], str]] = {
    "storage": (lambda value: value in STORAGES, f"one of {', '.join(STORAGES)}"),
    "special_tokens": (
        lambda value: value == {token: number for number, token in enumerate(SPECIAL_TOKENS)},
        f"{' '.join(SPECIAL_TOKENS)}, numbered from 0",
    ),
    "versions": (_are_texts, "texts by name"),
    "languages": (_are_texts, "texts by name"),
    "scores": (_are_scores, "numbers by name"),
    "recipe": (_is_recipe, "the tables of a recipe"),
    "context": (lambda value: _is_whole(value, 2), "a whole number from 2"),
    "unseen_pieces": (
        lambda value: isinstance(value, list) and all(_is_whole(piece, 0) for piece in value),
        "a list of whole numbers from 0",
    ),
    "known_names": (
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "a list of words",
    ),
    "alignment": (_is_alignment, "the name of a layer and the number of a head"),
}
