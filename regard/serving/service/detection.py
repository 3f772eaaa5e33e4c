"""Detect the language of a text, with py3langid (the extra `detect`)."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

from regard.serving.service.errors import RequestError

MAX_CHARACTERS = 2_000  # of a text that are looked at


def can_detect() -> bool:
    return importlib.util.find_spec("py3langid") is not None


@cache
def identifier() -> Any:
    """Return the detector; loading it takes a fraction of a second."""
    if not can_detect():
        message = "languages cannot be detected, because py3langid is not installed: pip install 'regard[detect]'"
        raise RequestError(501, message)
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detection(text: str) -> list[dict[str, Any]]:
    """Return the most probable languages of a text, with a confidence from 0 to 100."""
    ranked = identifier().rank(text[:MAX_CHARACTERS])
    best = [(code, round(100 * float(probability), 1)) for code, probability in ranked[:3]]
    return [{"confidence": confidence, "language": code} for code, confidence in best if confidence > 0]


def detect_language(text: str) -> tuple[str, float]:
    """Return the most probable language of a text, and the confidence."""
    best = detection(text)[0]
    return best["language"], best["confidence"]
