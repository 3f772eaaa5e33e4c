"""Numbers, ordinals and months as words, in the languages that have tables here: French and English."""

from __future__ import annotations

from collections.abc import Iterator


def _list(words: str) -> list[str]:
    return words.split()


MONTHS = {
    "fr": _list("janvier février mars avril mai juin juillet août septembre octobre novembre décembre"),
    "en": _list("January February March April May June July August September October November December"),
}
ORDINAL_ENDINGS = {"fr": "ers?|res?|ères?|ièmes?|èmes?|es?|nde?s?", "en": "st|nd|rd|th"}

UNITS = {
    "fr": _list(
        "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept "
        "dix-huit dix-neuf"
    ),
    "en": _list(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen"
    ),
}
TENS = {
    "fr": {20: "vingt", 30: "trente", 40: "quarante", 50: "cinquante", 60: "soixante", 80: "quatre-vingt"},
    "en": {10 * i: word for i, word in enumerate(_list("twenty thirty forty fifty sixty seventy eighty ninety"), 2)},
}
# Words that make a larger number of the word beside them: "deux mille" is not 2.
SCALES = {
    "fr": frozenset(_list("cent cents mille million millions milliard milliards demi demie et quart")),
    "en": frozenset(_list("hundred thousand million billion half dozen quarter")),
}


def number_words(language: str) -> dict[str, int]:
    """Return the words for 2 to 99 with their values; "un" and "one" are more often an article or a pronoun."""
    return {word: value for word, value in _words(language) if value >= 2}


def _words(language: str) -> Iterator[tuple[str, int]]:
    """Yield all words below 100 and their values."""
    if language not in UNITS:
        return
    units = UNITS[language]
    yield from ((word, value) for value, word in enumerate(units))
    for ten, word in TENS[language].items():
        yield word, ten
        last = 19 if language == "fr" and ten in (60, 80) else 9
        yield from ((f"{word}-{units[i]}", ten + i) for i in range(1, last + 1))
    if language == "fr":
        yield "quatre-vingts", 80
        yield from ((f"{TENS['fr'][ten]} et un", ten + 1) for ten in (20, 30, 40, 50, 60))


def ordinal(value: int, language: str) -> str | None:
    """Return an ordinal in digits, such as "3rd"; None for a language without a table."""
    if language == "en":
        ending = "th" if value % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
        return f"{value}{ending}"
    if language == "fr":
        return f"{value}er" if value == 1 else f"{value}e"
    return None
