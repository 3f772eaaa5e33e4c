"""Names of columns: language codes, header rows of tables, and suggestions for `data.columns`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

# ISO 639-1, as far as there is text to translate.
CODES = """
ab af am an ar as ay az ba be bg bi bm bn bo br bs ca ce co cs cv cy da de dz ee el en eo es et eu fa ff fi fj fo fr fy
ga gd gl gn gu gv ha he hi hr ht hu hy ia id ig is it iu ja jv ka kg ki kk kl km kn ko ks ku kw ky la lb lg ln lo lt lv
mg mi mk ml mn mr ms mt my nb ne nl nn no nv ny oc om or os pa pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn
so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
NAMES = """
arabic basque bengali bulgarian catalan chinese croatian czech danish dutch english esperanto estonian finnish french
galician german greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian
norwegian persian polish portuguese romanian russian serbian slovak slovene slovenian spanish swahili swedish tamil thai
turkish ukrainian urdu vietnamese welsh
"""
LANGUAGES, LANGUAGE_NAMES = frozenset(CODES.split()), frozenset(NAMES.split())
SOURCE_NAMES = frozenset(("source", "src", "source_text", "source_sentence", "input", "original"))
TARGET_NAMES = frozenset(("target", "tgt", "trg", "target_text", "target_sentence", "output", "translation"))
CODE = re.compile(r"([a-z]{2}|[A-Z]{2})(?:[-_][A-Za-z]{2,4})?")  # de, DE, de-DE, zh_Hans; not "De" or "No"
NAME = re.compile(r"(?:[^\W\d_][\w -]{0,30})?")  # a column may have no name, as the row numbers of pandas


def is_language(name: str, *, alone: bool = True) -> bool:
    """Whether a column name is a language code (de, EN, pt-BR) or an English language name (German).

    With more than two columns, the two are not alone, and "id" is an identifier rather than Indonesian.
    """
    code = CODE.fullmatch(name)
    if code is not None and code[1].lower() in LANGUAGES:
        return alone or name.lower() != "id"
    return name.lower() in LANGUAGE_NAMES


def header_columns(cells: Sequence[str]) -> list[int] | None:
    """Return the columns that a header row names, source first; None if the row is not a header.

    A row is a header if its cells look like names and one of them is a usual name of the source and one of the target,
    or if at least two of them, and different ones, are languages. The list has more than two columns if there are more
    than two languages.
    """
    names = [cell.strip() for cell in cells]
    if not all(map(NAME.fullmatch, names)):
        return None
    sides = [[i for i, name in enumerate(names) if name.lower() in known] for known in (SOURCE_NAMES, TARGET_NAMES)]
    if all(len(columns) == 1 for columns in sides):
        return [columns[0] for columns in sides]
    languages = [i for i, name in enumerate(names) if is_language(name) and (len(names) == 2 or name.lower() != "id")]
    return languages if len({names[i] for i in languages}) == len(languages) >= 2 else None


def columns_option(names: Sequence[str | int]) -> str:
    """Return the option that chooses two columns, as one types it."""
    return f"--set 'data.columns={json.dumps(list(names), ensure_ascii=False)}'"


def text_keys(entry: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the keys of a JSON object that have texts as values; a dot leads into an object inside it."""
    keys: list[str] = []
    for key, value in entry.items():
        if isinstance(value, str):
            keys.append(prefix + key)
        elif isinstance(value, Mapping) and not prefix:
            keys += text_keys(value, f"{key}.")
    return keys


def nested_languages(entry: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the keys of {"translation": {"de": …, "en": …}}, the layout of Hugging Face datasets.

    The object must be the only one of its kind, and contain two languages and nothing else. Their order is the file's.
    """
    candidates = [
        (f"{outer}.{first}", f"{outer}.{second}")
        for outer, inner in entry.items()
        if isinstance(inner, Mapping) and len(inner) == 2
        for first, second in [inner]
        if is_language(first) and is_language(second) and all(isinstance(text, str) for text in inner.values())
    ]
    return candidates[0] if len(candidates) == 1 else None


def suggested_keys(keys: Sequence[str]) -> tuple[str, str] | None:
    """Return the two keys that are probably source and target: the only two languages, or else the first two."""
    languages = [key for key in keys if is_language(key.rpartition(".")[2], alone=len(keys) == 2)]
    pair = languages if len(languages) == 2 else keys
    return (pair[0], pair[1]) if len(pair) >= 2 else None
