"""The verb group of a clause: negation, clitics, adverb, auxiliary; in both languages."""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import Nominal
from regard.demo.grammar.surface import Phrase, Word
from regard.demo.grammar.time_and_place import Time
from regard.demo.grammar.words.english_verbs import verb_group
from regard.demo.grammar.words.french_verbs import FUTURE, PERFECT, PRESENT, agree
from regard.demo.grammar.words.verbs import BE, HAVE, Verb

REFLEXIVES = ("me", "te", "se", "nous", "vous", "se")

# After ne … : the French word and what English says.
NEGATIONS = {"pas": ("not",), "jamais": ("never",), "plus": ("no", "longer")}
ADVERBS = {"souvent": "often", "toujours": "always", "parfois": "sometimes", "déjà": "already", "enfin": "finally"}


@dataclass(slots=True)
class Predicate:
    """A verb and what belongs to it, not yet in a tense."""

    verb: Verb
    french: list[Word] = field(default_factory=list)  # after the verb
    english: list[Word] = field(default_factory=list)
    clitics: list[Word] = field(default_factory=list)  # French object pronouns, before the verb
    agreement: tuple[str, bool] | None = None  # gender and number of an object that stands before the participle
    object: Nominal | None = None  # the direct object, if a pronoun can take it up
    timeless: bool = False  # no time phrase: Marie is tall


def english_form(verb: Verb, time: Time, negation: str, adverb: str) -> str:
    """The English form of a French tense."""
    if time.tense == PRESENT:
        return "progressive" if time.aspect == "now" and not verb.stative else "present"
    if time.tense == FUTURE:
        return "present" if time.aspect == "later" else "future"
    if time.tense == PERFECT:
        return "perfect" if negation == "jamais" or adverb == "déjà" else "past"
    if verb.stative or negation == "jamais" or adverb:
        return "past"
    if time.aspect == "habit":
        return "past" if negation else "used to"
    return "past progressive"


def finite(
    d: Draft,
    subject: Nominal,
    predicate: Predicate,
    time: Time,
    *,
    negation: str = "",
    adverb: str = "",
    question: tuple[int, ...] | None = None,
    silent: bool = False,
    shared: bool = False,
) -> Phrase:
    """The clause: subject, verb in its tense, objects.

    `question` is the link of est-ce que. `silent` leaves the subject out, as after qui, and `shared` also the helper
    will, as after and.
    """
    d.tag(time.tense)
    if negation:
        d.tag("negation")
    v, helper, no, often = d.link(), d.link(), d.link(), d.link()
    verb = predicate.verb
    french = _french_group(subject, predicate, time, (v, helper, no, often), negation, adverb)
    if time.tense == PERFECT and predicate.agreement is None and verb.with_etre and subject.gender == "f":
        d.tag("gender agreement")
    form = english_form(verb, time, negation, adverb)
    if shared and form == "future":
        form = "base"
    supported = negation == "pas" or question is not None
    helpers, main = verb_group(verb.english, form, subject.person, supported)
    compound = time.tense == PERFECT
    helper_link: tuple[int, ...] = helper if compound else v
    if supported and helpers and helpers[0] in ("do", "does", "did"):
        helper_link = (helper if compound else no if negation == "pas" else ()) + (question or ())
    main_link = helper + v if compound and not helpers else v
    english: list[Word] = [(word, helper_link) for word in helpers]
    inner: list[Word] = []
    if negation:
        inner = [(word, no) for word in NEGATIONS[negation]]
    elif adverb:
        inner = [(ADVERBS[adverb], often)]
    if helpers == ("can",) and negation == "pas" and question is None:
        english, inner = [("cannot", v + no)], []
    rest = [*((word, main_link) for word in main), *predicate.english]
    if question is not None:
        english = [english[0], *subject.english, *english[1:], *inner, *rest]
    else:
        english = [*([] if silent or shared else subject.english), *english[:1], *inner, *english[1:], *rest]
    return Phrase([*([] if silent or shared else subject.french), *french, *predicate.french], english)


def _french_group(
    subject: Nominal,
    predicate: Predicate,
    time: Time,
    links: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    negation: str,
    adverb: str,
) -> list[Word]:
    """ne + clitics + finite verb + pas + adverb + participle."""
    v, helper, no, often = links
    verb = predicate.verb
    words: list[Word] = []
    if negation:
        words.append(("ne", no))
    if verb.reflexive:
        words.append((REFLEXIVES[subject.person], v))
    words += predicate.clitics
    if time.tense == PERFECT:
        auxiliary = BE if verb.with_etre else HAVE
        words.append((auxiliary.simple[PRESENT][subject.person], helper))
    else:
        words.append((verb.simple[time.tense][subject.person], v))
    if negation:
        words.append((negation, no))
    elif adverb:
        words.append((adverb, often))
    if time.tense == PERFECT:
        gender, plural = "m", False
        if predicate.agreement is not None:
            gender, plural = predicate.agreement
        elif verb.with_etre:
            gender, plural = subject.gender, subject.plural
        words.append((agree(verb.french.participle, gender, plural), v))
    return words


def infinitive(d: Draft, subject: Nominal, predicate: Predicate, *, form: str = "base") -> Phrase:
    """The predicate without a tense: l'acheter, buy it or buying it; French clitics stay before the verb."""
    verb = predicate.verb
    v = d.link()
    words: list[Word] = [(REFLEXIVES[subject.person], v)] if verb.reflexive else []
    words += predicate.clitics
    words.append((verb.infinitive, v))
    english = verb.english.gerund if form == "gerund" else verb.english.base
    if form == "to":
        main: list[Word] = [("to", v), (english, v)]
    else:
        main = [(english, v)]
    particle: list[Word] = [(word, v) for word in verb.english.particle]
    return Phrase([*words, *predicate.french], [*main, *particle, *predicate.english])
