"""Warn about input that does not look like the source language: other languages, code, noise.

A translator has no notion of languages, and translates everything. Three signs tell that it should not have: the
frequent words of another language (language_guess.py), words that it cannot read, and an output that it finds
improbable itself. The sum of the last two is the doubt about an input. What is normal differs from model to model, so
config.json gives the limit, under `max_doubt`; scripts/ship_model.py measures it. The first sign needs the source
language, which is in config.json too. If a sentence is clearly in that language, doubt means only that the model is
unsure.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from regard.api.results import Translation
from regard.api.translation.language_guess import LANGUAGES, is_clearly, other_language
from regard.text.placeholders.spans import SOME_SPAN

MIN_WORDS = 3  # fewer say too little, unless half of them cannot be read
MAX_UNKNOWN = 0.5
SHOWN_CHARACTERS = 40


def doubt(translation: Translation) -> float:
    """Return the share of source words that cannot be read, minus the mean log-probability of an output token."""
    return _unknown_share(translation) - translation.score / max(1, len(translation.ids))


def looks_foreign(translation: Translation, max_doubt: float) -> bool:
    """Whether the doubt about an input is high; never if `max_doubt` is infinite."""
    if math.isinf(max_doubt):
        return False
    if _unknown_share(translation) > MAX_UNKNOWN:
        return True
    return doubt(translation) > max_doubt and len(translation.source_words) >= MIN_WORDS


def warn_about_foreign(translations: Sequence[Translation], info: Mapping[str, Any]) -> None:
    """Warn about each input that does not look like the source language, as far as config.json tells what it is."""
    max_doubt = info.get("max_doubt")
    limit = max_doubt if isinstance(max_doubt, int | float) else math.inf
    code = (info.get("languages") or {}).get("source")
    if math.isinf(limit) and code not in LANGUAGES:
        return
    expected = LANGUAGES.get(code, code) if code else "the language that the model was trained on"
    for translation in translations:
        sentences = translation.parts or [translation]
        guesses = [guess for sentence in sentences if (guess := other_language(sentence.source, code))]
        doubtful = [sentence for sentence in sentences if looks_foreign(sentence, limit)]
        if guesses:
            problem = f"the input does not look like {expected} but like {LANGUAGES[guesses[0]]}"
        elif any(not is_clearly(sentence.source, code) for sentence in doubtful):
            problem = f"the input does not look like {expected}"
        elif doubtful:
            problem = "the model is unsure about this input"
        else:
            continue
        text = translation.source
        beginning = repr(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…")
        warnings.warn(f"{problem}, so its translation may be nonsense ({beginning})", stacklevel=3)


def _unknown_share(translation: Translation) -> float:
    """Return the share of source words that cannot be read, without names, numbers, addresses and smileys."""
    hidden = {translation.translator.special.unknown, *translation.translator.reader.placeholders.tokens}
    unknown = 0
    if hidden.isdisjoint(translation.source_ids):
        return 0.0
    for word in translation.source_words:
        is_fact = word.text[:1].isupper() or SOME_SPAN.search(word.text) or not any(map(str.isalpha, word.text))
        unknown += not is_fact and not hidden.isdisjoint(translation.source_ids[word.start : word.end])
    return unknown / max(1, len(translation.source_words))
