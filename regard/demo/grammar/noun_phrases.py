"""Noun phrases: determiner, adjectives, noun; names and pronouns."""

from __future__ import annotations

from dataclasses import dataclass

from regard.demo.grammar.draft import Draft
from regard.demo.grammar.surface import Word, prepose, starts_with_vowel
from regard.demo.grammar.words.adjectives import BEFORE_VOWEL, BESIDE, INNERMOST, UNFIT, Adjective
from regard.demo.grammar.words.nouns import PEOPLE, Name, Noun


@dataclass(slots=True)
class Nominal:
    """A noun phrase, name or pronoun in both languages, with what verbs and pronouns must know of it."""

    french: list[Word]
    english: list[Word]
    person: int = 2  # 0 to 5: je, tu, il, nous, vous, ils
    gender: str = "m"
    kind: str = "person"
    definite: bool = True  # may be taken up by a pronoun or carry a relative clause

    @property
    def plural(self) -> bool:
        return self.person > 2

    @property
    def human(self) -> bool:
        return self.kind in HUMAN

    @property
    def english_pronoun(self) -> str:
        """him, her, it, them, …: how English takes it up as an object."""
        if self.person != 2:
            return OBJECTS[self.person]
        return ("her" if self.gender == "f" else "him") if self.human else "it"


HUMAN = frozenset({"person", "profession", "relative"})

# le la les; the; by gender and number.
ARTICLES = {
    "the": ("le", "la", "les"), "a": ("un", "une", "des"), "this": ("ce", "cette", "ces"), "some": ("du", "de", "des"),
}  # fmt: skip
POSSESSIVES = (
    ("mon", "ma", "mes"), ("ton", "ta", "tes"), ("son", "sa", "ses"),
    ("notre", "notre", "nos"), ("votre", "votre", "vos"), ("leur", "leur", "leurs"),
)  # fmt: skip
OWNERS = ("my", "your", "his", "our", "your", "their")
COUNTS = (("deux", "two"), ("trois", "three"), ("quatre", "four"), ("cinq", "five"), ("six", "six"), ("dix", "ten"),
          ("plusieurs", "several"), ("quelques", "a few"))  # fmt: skip

SUBJECTS = ("je", "tu", "il", "nous", "vous", "ils")
SUBJECTS_FEMININE = ("je", "tu", "elle", "nous", "vous", "elles")
OBJECTS = ("me", "you", "him", "us", "you", "them")
SUBJECTS_ENGLISH = ("I", "you", "he", "we", "you", "they")


def pronoun(d: Draft, person: int, gender: str, kind: str = "person") -> Nominal:
    """A subject pronoun: il and elle are he and she, for an animal it."""
    link = d.link()
    french = (SUBJECTS_FEMININE if gender == "f" else SUBJECTS)[person]
    english = SUBJECTS_ENGLISH[person]
    if person == 2:
        english = ("she" if gender == "f" else "he") if kind in HUMAN else "it"
    return Nominal([(french, link)], [(english, link)], person, gender, kind, definite=False)


def name_phrase(d: Draft, name: Name, kind: str = "person") -> Nominal:
    """Marie, Paris, l'Afrique: a French article stays without partner, unless English has one too."""
    link = d.link()
    *article, last = name.french.split()
    english: list[Word] = [(word, link) for word in name.english.split()]
    partner: tuple[int, ...] = ()
    if name.english.startswith("the "):
        partner = d.link()
        english[0] = ("the", partner)
    person = 5 if article == ["les"] else 2
    return Nominal([*((a, partner) for a in article), (last, link)], english, person, name.gender, kind)


def someone(d: Draft) -> Nominal:
    """A person by name."""
    return name_phrase(d, d.pick_new(PEOPLE))


def determine(french: str, words: list[Word], link: tuple[int, ...]) -> list[Word]:
    """The determiner before its words, in the form that a vowel asks for: ce homme -> cet homme."""
    if french in BEFORE_VOWEL and starts_with_vowel(words[0][0]):
        french = BEFORE_VOWEL[french]
    return [(french, link), *words]


def describe(d: Draft, noun: Noun, plural: bool, rate: float) -> tuple[list[Word], list[Word], bool]:
    """The noun with adjectives or without: French words, English words, whether an adjective comes first."""
    link = d.link()
    french: list[Word] = [(noun.french_plural if plural else noun.french, link)]
    english: list[Word] = [(noun.english_plural if plural else noun.english, link)]
    if plural:
        d.tag("number agreement")
    chosen: list[Adjective] = []
    if d.chance(rate) and BESIDE[noun.kind]:
        chosen.append(d.pick_new(BESIDE[noun.kind]))
        if d.chance(rate / 3):  # a second one only on the other side: un petit chat noir
            second = d.pick(BESIDE[noun.kind])
            outer, inner = (chosen[0], second) if chosen[0].before else (second, chosen[0])
            if outer.before and inner.english in INNERMOST:
                chosen = [inner, outer]
    first = False
    for adjective in chosen:
        if (adjective.masculine, noun.french) in UNFIT:
            continue
        link = d.link()
        form = adjective.form(noun.gender, plural)
        if adjective.before:
            d.tag("adjective before noun")
            first = True
            if not plural and form in BEFORE_VOWEL and starts_with_vowel(french[0][0]):
                form = BEFORE_VOWEL[form]
            french.insert(0, (form, link))
        else:
            d.tag("adjective after noun")
            french.append((form, link))
        english.insert(0, (adjective.english, link))
        if noun.gender == "f":
            d.tag("gender agreement")
    return french, english, first


def noun_phrase(
    d: Draft, noun: Noun, style: str, *, plural: bool = False, owner: Nominal | None = None, bare: str = ""
) -> Nominal:
    """The noun with a determiner of the style.

    the, a, this, some (du pain, des pommes; English bare, or with `bare`), none (pas de pain), kind (aime le pain),
    count (trois, plusieurs), much (beaucoup de), own (of `owner`).
    """
    french, english, adjective_first = describe(d, noun, plural, d.richness if style != "kind" else d.richness / 2)
    number = 2 if plural else noun.gender == "f"
    link = d.link()
    definite = True
    if style == "the":
        french = [(ARTICLES["the"][number], link), *french]
        english = [("the", link), *english]
    elif style == "this":
        french = determine(ARTICLES["this"][number], french, link)
        english = [("these" if plural else "this", link), *english]
    elif style == "own":
        assert owner is not None
        d.tag("possessive")
        english_owner = "her" if owner.person == 2 and owner.gender == "f" else OWNERS[owner.person]
        french = determine(POSSESSIVES[owner.person][number], french, link)
        english = [(english_owner, link), *english]
    elif style == "a":
        french = [(ARTICLES["a"][number], link), *french]
        english = [("a", link), *english]
    elif style == "some":
        french, english = _some(d, noun, french, english, plural=plural, adjective_first=adjective_first, bare=bare)
        definite = False
    elif style == "none":
        french = [("de", link), *french]
        english = [("any" if plural or not noun.counted else "a", link), *english]
        definite = False
    elif style == "kind":
        french = [(ARTICLES["the"][number], ()), *french]
        definite = False
    elif style == "count":
        count = d.pick(COUNTS)
        d.tag("number")
        french, english = [(count[0], link), *french], [*((w, link) for w in count[1].split()), *english]
    elif style == "much":
        of = d.link()
        french = [("beaucoup", link), ("de", of), *french]
        english = [("a", link), ("lot", link), ("of", of), *english]
        definite = False
    else:
        raise ValueError(f"unknown style {style!r}")
    return Nominal(french, english, 5 if plural else 2, noun.gender, noun.kind, definite)


def _some(
    d: Draft, noun: Noun, french: list[Word], english: list[Word], *, plural: bool, adjective_first: bool, bare: str
) -> tuple[list[Word], list[Word]]:
    """du pain, de la soupe, de l'eau, des pommes, de belles pommes."""
    link = d.link() if bare else ()
    if bare:
        english = [(bare, link), *english]
    if plural:
        return [("de" if adjective_first else "des", link), *french], english
    d.tag("contraction")
    return prepose(("de", link), [("la" if noun.gender == "f" else "le", link), *french]), english


def the_noun(d: Draft, noun: Noun) -> Nominal:
    """le jardin, the garden."""
    return noun_phrase(d, noun, "the")


def possessed(d: Draft, noun: Noun, owner: Nominal, *, plural: bool = False) -> Nominal:
    """la sœur de Marie, Marie's sister: the owner crosses over, the article has no partner."""
    d.tag("possessive")
    french, core, _ = describe(d, noun, plural, d.richness / 2)
    link = d.link()
    article = ARTICLES["the"][2 if plural else noun.gender == "f"]
    last, last_links = owner.english[-1]
    return Nominal(
        [(article, ()), *french, *prepose(("de", link), owner.french)],
        [*owner.english[:-1], (last + "'", last_links), ("s", link), *core],
        5 if plural else 2,
        noun.gender,
        noun.kind,
    )
