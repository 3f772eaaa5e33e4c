"""Read and check config.json of a model folder, and other JSON from untrusted sources, within a limit on memory.

Besides the kind and the settings of the model, config.json contains information from training. Whatever regard uses of
it is checked here, so that later readers can rely on it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.errors import ModelError, unknown_name
from regard.text.chat import is_chat_format
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

MAX_JSON_BYTES = 4 * 2**20  # parsed JSON can take 24 times as much memory as its file
MAX_FRAME = 64  # tokens around a text
CODE_ENTRIES = frozenset({"tokens", "source", "target", "default_source", "default_target"})
MAX_BEAM, MAX_PENALTY = 64, 10  # of the usual search
MAX_QUOTED_CHARACTERS = 300  # of a file, in a message
STORAGES = ("float32", "bfloat16", "float16", "int8", "int4")


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. A name may occur only once in an object: readers differ on which value counts."""
    content = read_json_value(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a JSON object")
    return content


def read_json_value(path: Path) -> Any:
    """Read the JSON value in a file."""
    if path.is_symlink() or not path.is_file():
        raise ModelError(f"{path}: not a regular file")
    if path.stat().st_size > MAX_JSON_BYTES:
        raise ModelError(f"{path}: larger than {MAX_JSON_BYTES} bytes, too large for such a file")
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        content = json.loads(text.decode(), object_pairs_hook=_unique_names)
        json.dumps(content, ensure_ascii=False).encode()  # fails on lone surrogates, which are not characters
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON: {shortened(error)}") from error
    return content


def read_checked_config(path: Path) -> dict[str, Any]:
    """Read config.json and check all entries that regard knows; others are returned as they are."""
    from regard.models.presets import MODELS

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
    """Return what is wrong with the entries of config.json beside kind and settings; an empty string if nothing is."""
    for name, (is_valid, requirement) in INFO.items():
        value = config.get(name)
        if value is not None and not is_valid(value):
            return f"{name} must be {requirement}, got {shortened(repr(value))}"
    return ""


def shortened(text: object) -> str:
    """Return text from an untrusted file for a message: shortened, and without control characters."""
    text = str(text)
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= MAX_QUOTED_CHARACTERS else text[: MAX_QUOTED_CHARACTERS - 1] + "…"


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return content


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least  # bool is a subclass of int


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(text is None or isinstance(text, str) for text in value.values())


def _are_prompts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _are_scores(value: Any) -> bool:
    """Whether these are numbers, some with a signature such as that of BLEU; NaN if not computable."""
    return isinstance(value, dict) and all(
        type(score) in (int, float) or (isinstance(score, dict) and type(score.get("value")) in (int, float))
        for score in value.values()
    )


def _is_recipe(value: Any) -> bool:
    data = value.get("data", {}) if isinstance(value, dict) else None
    return isinstance(data, dict) and (data.get("max_length") is None or _is_whole(data["max_length"], 1))


def _is_head(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("layer"), str)
        and (value.get("head") is None or _is_whole(value["head"], 0))
        and isinstance(value.get("shifted", False), bool)
    )


def _is_alignment(value: Any) -> bool:
    """Whether this names a head and, since several heads align, those heads; folders before that have no `heads`."""
    if not _is_head(value):
        return False
    heads = value.get("heads", [value])
    return isinstance(heads, list) and bool(heads) and all(map(_is_head, heads))


def _is_frame(value: Any) -> bool:
    """Whether this says which tokens a model reads around a text: {"source": {"before": [ids], "after": [ids]}}."""
    if not isinstance(value, dict) or not value.keys() <= {"source", "target"}:
        return False
    return all(
        isinstance(side, dict)
        and side.keys() <= {"before", "after"}
        and all(
            isinstance(tokens, list) and len(tokens) <= MAX_FRAME and all(_is_whole(token, 0) for token in tokens)
            for tokens in side.values()
        )
        for side in value.values()
    )


def _are_language_codes(value: Any) -> bool:
    """Whether these are the tokens of languages, and where they stand."""
    if not isinstance(value, dict) or not value.keys() <= CODE_ENTRIES:
        return False
    tokens = value.get("tokens")
    if not isinstance(tokens, dict) or not tokens or not all(_is_whole(token, 0) for token in tokens.values()):
        return False
    places = value.get("source") in (None, "before", "after"), value.get("target") in (None, "before", "target")
    defaults = (value.get("default_source"), value.get("default_target"))
    return all(places) and all(name is None or name in tokens for name in defaults)


def _is_search(value: Any) -> bool:
    """Whether these are the width and the length penalty of a beam."""
    if not isinstance(value, dict) or not value.keys() <= {"beam", "length_penalty"}:
        return False
    penalty = value.get("length_penalty", 0)
    width = value.get("beam", 1)
    return _is_whole(width, 1) and width <= MAX_BEAM and type(penalty) in (int, float) and 0 <= penalty <= MAX_PENALTY


def _is_scale(value: Any) -> bool:
    """Whether these are the names, means and deviations of a series' columns."""
    if not isinstance(value, dict):
        return False
    names, means, deviations = (value.get(key) for key in ("columns", "mean", "deviation"))
    lists = (names, means, deviations)
    if not all(isinstance(entries, list) and len(entries) == len(names or ()) > 0 for entries in lists):
        return False
    numbers = [*(means or ()), *(deviations or ())]
    return (
        all(isinstance(name, str) for name in names or ())
        and all(type(number) is float and math.isfinite(number) for number in numbers)
        and all(number > 0 for number in deviations or ())
    )


# The optional entries of config.json beside kind and settings: a check, and the requirement in words.
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
    "longest_caption": (lambda value: _is_whole(value, 1) and value <= 4096, "a whole number from 1 to 4096"),
    "series": (_is_scale, "the names, means and deviations of some columns"),
    "max_tokens": (lambda value: _is_whole(value, 3), "a whole number from 3"),
    "prompts": (_are_prompts, "texts by name"),
    "frame": (_is_frame, 'the tokens around a text, as {"target": {"before": [1]}}'),
    "language_codes": (_are_language_codes, 'the tokens of languages, as {"tokens": {"deu": 7}, "target": "before"}'),
    "search": (_is_search, 'the usual search, as {"beam": 4, "length_penalty": 1.0}'),
    "chat": (is_chat_format, "what stands around the messages of a conversation, by role: open, close and answer"),
    "alignment": (_is_alignment, "the name of a layer and the number of a head, and a list `heads` of such heads"),
}
