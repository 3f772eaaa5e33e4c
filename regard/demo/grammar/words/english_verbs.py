"""English verbs: the forms of one, and the verb group of a clause."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

# Where the consonant is doubled: running, travelled.
DOUBLED = frozenset({"run", "swim", "get", "forget", "prefer", "travel"})
VOWELS = "aeiou"


class EnglishVerb(NamedTuple):
    """base, he …s, past, participle, -ing; and the words that always follow (look *for*)."""

    base: str
    third: str
    past: str
    participle: str
    gerund: str
    particle: tuple[str, ...]


@cache
def english_verb(entry: str) -> EnglishVerb:
    """The verb of a dictionary entry: "help", "eat ate eaten" or "get got got + up"."""
    forms, _, particle = entry.partition("+")
    base, *irregular = forms.split()
    past, participle = irregular if irregular else (_past(base),) * 2
    third = {"have": "has", "be": "is"}.get(base) or _third(base)
    return EnglishVerb(base, third, past, participle, _gerund(base), tuple(particle.split()))


def _third(base: str) -> str:
    if base.endswith(("s", "x", "z", "ch", "sh", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in VOWELS:
        return base[:-1] + "ies"
    return base + "s"


def _past(base: str) -> str:
    if base in DOUBLED:
        return base + base[-1] + "ed"
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in VOWELS:
        return base[:-1] + "ied"
    return base + "ed"


def _gerund(base: str) -> str:
    if base in DOUBLED:
        return base + base[-1] + "ing"
    if base.endswith("e") and not base.endswith(("ee", "be")):
        return base[:-1] + "ing"
    return base + "ing"


BE_PRESENT = ("am", "are", "is", "are", "are", "are")
BE_PAST = ("was", "were", "was", "were", "were", "were")

# Modal verbs: helper and what follows it, for each form; pouvoir and devoir.
MODALS = {
    ("can", "present"): (("can",), ()),
    ("can", "past"): (("could",), ()),
    ("can", "future"): (("will",), ("be", "able", "to")),
    ("must", "present"): (("must",), ()),
    ("must", "past"): ((), ("had", "to")),
    ("must", "future"): (("will",), ("have", "to")),
}


@cache
def verb_group(verb: EnglishVerb, form: str, person: int, supported: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The helpers and the main verb. `supported`: a negation or question, which needs a helper (do)."""
    if verb.base in ("can", "must"):
        return MODALS[verb.base, form]
    main: tuple[str, ...]
    helpers: tuple[str, ...] = ()
    if form == "present":
        if verb.base == "be":
            return (BE_PRESENT[person],), ()
        main = (verb.third if person == 2 else verb.base,)
        if supported:
            helpers, main = ("does" if person == 2 else "do",), (verb.base,)
    elif form == "past":
        if verb.base == "be":
            return (BE_PAST[person],), ()
        main = (verb.past,)
        if supported:
            helpers, main = ("did",), (verb.base,)
    elif form == "progressive":
        helpers, main = (BE_PRESENT[person],), (verb.gerund,)
    elif form == "past progressive":
        helpers, main = (BE_PAST[person],), (verb.gerund,)
    elif form == "base":
        main = (verb.base,)
    elif form == "used to":
        main = ("used", "to", verb.base)
    elif form == "future":
        helpers, main = ("will",), (verb.base,)
    elif form == "perfect":
        helpers, main = ("has" if person == 2 else "have",), (verb.participle,)
    else:
        raise ValueError(f"unknown form {form!r}")
    return helpers, main + verb.particle
