"""Objects of verbs: persons, things, pronouns, and clauses about things (the book that Paul reads)."""

from __future__ import annotations

from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import (
    HUMAN,
    Nominal,
    name_phrase,
    noun_phrase,
    possessed,
    pronoun,
    someone,
    the_noun,
)
from regard.demo.grammar.surface import Word, prepose
from regard.demo.grammar.time_and_place import Time
from regard.demo.grammar.verb_groups import Predicate, finite
from regard.demo.grammar.words.french_verbs import PERFECT, PRESENT
from regard.demo.grammar.words.nouns import BY_FRENCH, CITIES, COUNTRIES, NOUNS, Noun, english_plural, french_plural
from regard.demo.grammar.words.verbs import TRANSITIVE, Verb

DIRECT = ("me", "te", "le", "nous", "vous", "les")
INDIRECT = ("me", "te", "lui", "nous", "vous", "leur")

PERSON_STYLES = ("the", "the", "a", "this", "count", "own", "own", "name", "name", "name", "owned")
MASS_STYLES = ("some", "some", "some", "this", "the", "much", "measure", "measure")
# Things that one has many of, and those of which one takes one.
MANY_STYLES = ("the", "the", "the", "a", "a", "a", "this", "own", "own", "count", "count", "some", "much", "owned")
ONE_STYLES = ("the", "the", "a", "a", "this")
MANY = frozenset({"fruit", "object", "reading", "press", "clothing", "animal", "furniture", "dish", "luggage"})
MEASURES = {
    "verre m glass": "eau lait vin jus",
    "bouteille f bottle": "eau lait vin jus",
    "tasse f cup": "café thé",
    "morceau m piece": "pain fromage viande chocolat",
    "kilo m kilo": "riz beurre viande poisson",
    "pot m jar": "confiture miel",
    "bol m bowl": "soupe riz lait",
}  # fmt: skip


CHEMISE = BY_FRENCH["chemise"]


def _read_measures() -> dict[str, tuple[Noun, ...]]:
    fitting: dict[str, list[Noun]] = {}
    for entry, contents in MEASURES.items():
        french, gender, english = entry.split()
        for content in contents.split():
            noun = Noun(french, french_plural(french), gender, english, english_plural(english), "measure")
            fitting.setdefault(content, []).append(noun)
    return {content: tuple(nouns) for content, nouns in fitting.items()}


MEASURED = _read_measures()


def person(d: Draft, owner: Nominal, kind: str = "person") -> Nominal:
    """A person: the boy, Marie, his sister, Paul's uncle. `owner` is the subject, for son, sa, ses."""
    style = d.pick(PERSON_STYLES)
    if style == "name":
        return someone(d)
    if style == "own":
        noun = d.pick_new(NOUNS["relative"])
        plural = noun.counted and d.chance(0.2)
        if not owner.human:
            owner = Nominal([], [], d.pick((0, 1, 3, 4)))
        return noun_phrase(d, noun, "own", plural=plural, owner=owner)
    if style == "owned":
        return possessed(d, d.pick_new(NOUNS["relative"]), someone(d))
    noun = d.pick_new(NOUNS[kind])
    if not noun.counted:
        return noun_phrase(d, noun, "the")
    return noun_phrase(d, noun, style, plural=style == "count" or (style != "a" and d.chance(0.3)))


def thing(d: Draft, noun: Noun, owner: Nominal, negated: bool, *, relative: bool = True) -> Nominal:
    """A thing: a book, some bread, his car, Marie's hat, the door of the church; after a negation: pas de pain."""
    if not noun.counted:
        return _mass(d, noun, negated)
    if noun.kind == "opening" and d.chance(0.4):
        return part_of_building(d, noun)
    style = d.pick(MANY_STYLES if noun.kind in MANY else ONE_STYLES)
    if style == "owned":
        return possessed(d, noun, someone(d), plural=d.chance(0.2))
    if style == "own" and not owner.human:
        style = "the"
    plural = style in ("count", "some", "much") or (style != "a" and d.chance(0.25))
    if negated and style in ("a", "some"):
        # Where the noun hides its number (une souris, des souris), pas de souris is taken as singular.
        return noun_phrase(d, noun, "none", plural=plural and noun.french != noun.french_plural)
    if negated and style in ("much", "count"):
        style = "the"
    what = noun_phrase(d, noun, style, plural=plural, owner=owner)
    if relative and style in ("the", "a", "this") and d.chance(d.richness / 2):
        return object_relative(d, what)
    return what


def _mass(d: Draft, noun: Noun, negated: bool) -> Nominal:
    style = d.pick(MASS_STYLES)
    if negated and style != "this":
        return noun_phrase(d, noun, "none")
    if style == "measure" and noun.french in MEASURED:
        return measured(d, noun)
    return noun_phrase(d, noun, "some" if style == "measure" else style)


def measured(d: Draft, noun: Noun) -> Nominal:
    """un verre d'eau, a glass of water; trois kilos de riz."""
    measure = d.pick(MEASURED[noun.french])
    richness, d.richness = d.richness, 0.0
    style = d.pick(("a", "a", "count"))
    first = noun_phrase(d, measure, style, plural=style == "count")
    d.richness = richness
    of, link = d.link(), d.link()
    first.french += [("de", of), (noun.french, link)]
    first.english += [("of", of), (noun.english, link)]
    first.kind = noun.kind
    return first


def part_of_building(d: Draft, noun: Noun) -> Nominal:
    """la porte du château, the door of the castle."""
    part = the_noun(d, noun)
    richness, d.richness = d.richness, d.richness / 2
    whole = the_noun(d, d.pick_new(NOUNS["building"]))
    d.richness = richness
    link = d.link()
    part.french += contracted(d, ("de", link), whole)
    part.english += [("of", link), *whole.english]
    return part


def direct_object(d: Draft, verb: Verb, owner: Nominal, negated: bool, *, relative: bool = True) -> Nominal:
    """An object that the verb can take."""
    kind = d.pick(verb.kinds)
    negated = negated and verb.infinitive != "finir"  # ne finit pas de … would be heard as de + infinitive
    if kind == "country":
        return name_phrase(d, d.pick_new(COUNTRIES), "country")
    if kind == "city":
        return name_phrase(d, d.pick(CITIES), "city")
    if kind == "language":
        return noun_phrase(d, d.pick(NOUNS[kind]), "kind")
    if kind in HUMAN:
        return person(d, owner, kind)
    noun = d.pick_new(NOUNS[kind])
    if owner.gender == "m" and noun.french in ("robe", "jupe"):
        noun = CHEMISE
    return thing(d, noun, owner, negated, relative=relative)


def contracted(d: Draft, preposition: Word, what: Nominal) -> list[Word]:
    """The preposition before the noun phrase, contracted with its article."""
    words = prepose(preposition, what.french)
    if len(words) == len(what.french):
        d.tag("contraction")
    return words


def other_person(d: Draft, subject: Nominal, choices: tuple[int, ...]) -> int:
    """A person for an object pronoun that is not the subject itself: je me and nous me are left out."""
    chosen = d.pick(choices)
    same = chosen % 3 == subject.person % 3 and chosen % 3 != 2
    return 5 if same else chosen


def with_pronoun(d: Draft, verb: Verb, time: Time, subject: Nominal) -> Predicate:
    """le voit, sees him; la mange, eats it; les, them; me, te, nous, vous.

    Before a vowel le and la are both l'. Then him or her can only be told from a participle (l'a invitée), and
    elsewhere the object is plural.
    """
    personal = verb.kinds[0] in HUMAN
    whom = other_person(d, subject, (2, 2, 2, 5, 0, 1, 3, 4) if personal else (2, 2, 5))
    gender = d.pick("mf")
    if personal and whom == 2 and time.tense != PERFECT and verb.infinitive[0] in "aeiouéêh":
        whom = 5
    if verb.infinitive == "boire":
        whom = 2
    return take_up(d, verb, Nominal([], [], whom, gender, verb.kinds[0]))


def take_up(d: Draft, verb: Verb, what: Nominal) -> Predicate:
    """The verb with a pronoun for its direct object, with which the participle will agree."""
    d.tag("object pronoun")
    link = d.link()
    french = "la" if what.person == 2 and what.gender == "f" else DIRECT[what.person]
    return Predicate(verb, [], [(what.english_pronoun, link)], [(french, link)], (what.gender, what.plural))


def take_up_indirect(d: Draft, verb: Verb, whom: Nominal, what: Nominal | None = None) -> Predicate:
    """The verb with a pronoun for the person: lui donne un livre, gives him a book; lui parle, talks to her."""
    d.tag("object pronoun")
    link = d.link()
    french, english = (what.french, what.english) if what else ([], [])
    lead: list[Word] = [(verb.partner, link)] if verb.partner else []
    return Predicate(verb, french, [*lead, (whom.english_pronoun, link), *english], [(INDIRECT[whom.person], link)])


# The verbs that a thing can be the object of: the book that Paul reads.
OBJECT_OF = {kind: tuple(v for v in TRANSITIVE if kind in v.kinds) for kind in NOUNS}


def object_relative(d: Draft, what: Nominal) -> Nominal:
    """la lettre que Paul a écrite, the letter that Paul wrote: the participle agrees with the object before it."""
    verbs = [v for v in OBJECT_OF[what.kind] if v not in d.used]
    if not verbs:
        return what
    d.tag("relative clause")
    verb = d.pick(verbs)
    time = Time(PERFECT if verb.perfect and (verb.once or verb.event or d.chance(0.5)) else PRESENT)
    link = d.link()
    who = someone(d) if d.chance(0.6) else pronoun(d, d.pick((0, 1, 2, 2, 3, 4, 5)), d.pick("mf"))
    inner = finite(d, who, Predicate(verb, agreement=(what.gender, what.plural)), time)
    what.french = [*what.french, ("que", link), *inner.french]
    what.english = [*what.english, ("that", link), *inner.english]
    return what
