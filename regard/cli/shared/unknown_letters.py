"""Letters that a model never saw in training."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

MAX_NAMED_LETTERS = 8


def unknown_letters(text: str, known: Collection[str]) -> list[str]:
    """Return the letters of a text, each once, that are not among the known characters.

    A capital counts as known if its small letter is known.
    """
    letters = dict.fromkeys(filter(str.isalpha, unicodedata.normalize("NFC", text)))
    return [letter for letter in letters if letter not in known and letter.lower() not in known]


def name_letters(letters: Collection[str]) -> str:
    """Return a list of letters of bounded length for a message."""
    named = ", ".join(list(letters)[:MAX_NAMED_LETTERS])
    others = len(letters) - MAX_NAMED_LETTERS
    return named if others <= 0 else f"{named} and {others} more"
