"""Sentence pairs with numbers, dates, times, prices, measures, addresses and names, from templates.

Both sides write a fact in the same way, except for dates with a month. Real sentences contain few facts: of Tatoeba's
pairs one in 200 has a digit.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from regard.demo.fact_templates import TEMPLATES
from regard.text.placeholders.number_words import MONTHS, ordinal

SLOT = re.compile(r"\{(\w)\d?\}")
UNITS = ("kg", "g", "mg", "km", "m", "cm", "mm", "L", "ml", "%", "°C", "km/h", "kWh", "Go", "m²")
SYLLABLES = (
    "ba",
    "bel",
    "cor",
    "da",
    "fa",
    "gon",
    "ka",
    "lar",
    "lo",
    "ma",
    "mi",
    "nor",
    "pra",
    "ri",
    "ro",
    "sen",
    "zan",
)
WORDS = ("rapport", "facture", "notes", "photo", "budget", "liste", "menu", "plan", "devis", "archive")
HOSTS = ("exemple.fr", "site.org", "boutique.com", "mairie.fr", "musee.net", "cours.edu")

Values = tuple[str, str]  # of a slot, in French and in English


def fact_pairs(count: int, *, seed: int = 1) -> list[tuple[str, str]]:
    """Return pairs of French and English sentences; the same arguments give the same pairs."""
    draw = random.Random(f"facts {seed}")
    templates = TEMPLATES.strip().split("\n")
    return [_filled(draw.choice(templates), draw) for _ in range(count)]


def _filled(template: str, draw: random.Random) -> Values:
    """Fill the slots of a template; {o} is an ordinal."""
    source, target = template.split(" | ")
    for slot in SLOT.finditer(source):
        french, english = SLOTS[slot[1]](draw)
        source, target = source.replace(slot[0], french), target.replace(slot[0], english)
    return source, target


def _number(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.55:
        return str(draw.randint(2, 60))
    if kind < 0.8:
        return str(draw.randint(100, 2100))
    if kind < 0.9:
        return f"{draw.randint(1, 99)} {draw.randint(0, 999):03}"
    return f"{draw.randint(0, 99)},{draw.randint(1, 99)}"


def _time(draw: random.Random) -> str:
    hour, minute = draw.randint(0, 23), draw.choice([0, 5, 10, 15, 20, 30, 40, 45, 50, 55])
    return draw.choice([f"{hour} h {minute:02}", f"{hour}h{minute:02}", f"{hour}:{minute:02}", f"{hour} h"])


def _date(draw: random.Random) -> Values:
    day, month, year = draw.randint(2, 28), draw.randrange(12), draw.randint(1900, 2030)
    if draw.random() < 0.2:
        text = f"{day:02}/{month + 1:02}/{year}"
        return text, text
    ending = f" {year}" if draw.random() < 0.5 else ""
    french, english = (f"{day} {MONTHS[language][month]}{ending}" for language in ("fr", "en"))
    return french, english


def _ordinal(draw: random.Random) -> Values:
    number = draw.randint(2, 60)
    return f"{number}e", ordinal(number, "en") or ""


def _price(draw: random.Random) -> str:
    amount = draw.choice([f"{draw.randint(1, 999)},{draw.randint(0, 99):02}", str(draw.randint(2, 900)), "1 250"])
    return f"{amount} {draw.choice(['€', '€', '€', '$', 'CHF'])}"


def _measure(draw: random.Random) -> str:
    sign = "-" if draw.random() < 0.15 else ""
    amount = draw.choice([str(draw.randint(1, 500)), f"{draw.randint(0, 99)},{draw.randint(1, 9)}"])
    return f"{sign}{amount} {draw.choice(UNITS)}"


def _phone(draw: random.Random) -> str:
    return " ".join([f"0{draw.randint(1, 9)}", *(f"{draw.randint(0, 99):02}" for _ in range(4))])


def _file(draw: random.Random) -> str:
    return f"{draw.choice(WORDS)}_{draw.randint(1, 99)}.{draw.choice(['pdf', 'txt', 'csv', 'docx', 'zip', 'py'])}"


def _address(draw: random.Random) -> str:
    start = draw.choice(["https://www.", "https://", "www."])
    return f"{start}{draw.choice(HOSTS)}/{draw.choice(WORDS)}{draw.choice(['', f'?id={draw.randint(1, 99)}'])}"


def _mail(draw: random.Random) -> str:
    return f"{_name(draw).lower().replace(' ', '.')}@{draw.choice(HOSTS)}"


def _code(draw: random.Random) -> str:
    letters = "".join(draw.choice("ABCDEFGHKLMNPRTXZ") for _ in range(draw.randint(1, 3)))
    word = draw.choice(WORDS)
    return draw.choice([f"{letters}{draw.randint(1, 999)}", f"{word}_{draw.randint(1, 9)}", f"{word}(x)"])


def _name(draw: random.Random) -> str:
    names = ("".join(draw.choice(SYLLABLES) for _ in range(draw.randint(2, 3))) for _ in range(draw.choice([1, 1, 2])))
    return " ".join(name.capitalize() for name in names)


def _same(make: Callable[[random.Random], str]) -> Callable[[random.Random], Values]:
    """Return a slot whose value is the same in both languages."""

    def values(draw: random.Random) -> Values:
        text = make(draw)
        return text, text

    return values


SLOTS: dict[str, Callable[[random.Random], Values]] = {
    "n": _same(_number),
    "t": _same(_time),
    "d": _date,
    "p": _same(_price),
    "m": _same(_measure),
    "u": _same(_address),
    "e": _same(_mail),
    "f": _same(_file),
    "c": _same(_code),
    "N": _same(_name),
    "T": _same(_phone),
    "o": _ordinal,
}
