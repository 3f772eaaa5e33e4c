"""Clauses: a subject, a predicate that fits it, a tense with its time phrase."""

from __future__ import annotations

from typing import NamedTuple

from regard.demo.grammar.actions import DEEDS, Builder, Scene, act, activity, motion, transitive
from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import Nominal, noun_phrase, possessed, pronoun, someone
from regard.demo.grammar.objects import MANY, object_relative
from regard.demo.grammar.states import COMING_STATES, STATES, becoming, being, liking, mood
from regard.demo.grammar.surface import Phrase, Word
from regard.demo.grammar.time_and_place import Time, time_phrase
from regard.demo.grammar.verb_groups import Predicate, finite
from regard.demo.grammar.words.french_verbs import FUTURE, IMPERFECT, PERFECT, PRESENT
from regard.demo.grammar.words.nouns import BY_FRENCH, NOUNS
from regard.demo.grammar.words.verbs import ACTIVITIES, BE, IT_IS, RAIN, SEEM, SNOW, TRANSITIVE, WEATHER

SUBJECT_STYLES = ("name",) * 9 + ("pronoun",) * 9 + ("the",) * 5 + ("a", "this", "count", "mine", "mine", "owned")
THINGS = ("object", "clothing", "vehicle", "building", "reading", "show", "dish", "device", "matter", "opening",
          "luggage", "container")  # fmt: skip


class Clause(NamedTuple):
    """A clause and what the next one must know of it."""

    words: Phrase
    subject: Nominal
    predicate: Predicate
    time: Time
    negation: str = ""


def subject(d: Draft, *, pronouns: bool = True) -> Nominal:
    """A person as subject."""
    style = d.pick(SUBJECT_STYLES)
    if style == "pronoun" and pronouns:
        return pronoun(d, d.pick((0, 0, 1, 2, 2, 2, 3, 4, 5, 5)), d.pick("mf"))
    if style in ("name", "pronoun"):
        return someone(d)
    if style == "mine":
        noun = d.pick_new(NOUNS["relative"])
        plural = noun.counted and d.chance(0.25)
        return noun_phrase(d, noun, "own", plural=plural, owner=Nominal([], [], d.pick((0, 0, 1, 3, 4))))
    if style == "owned":
        return possessed(d, d.pick_new(NOUNS["relative"]), someone(d))
    noun = d.pick_new(NOUNS[d.pick(("person", "profession"))])
    if not noun.counted:
        style = "the"
    plural = style == "count" or (style != "a" and noun.counted and d.chance(0.35))
    who = noun_phrase(d, noun, style, plural=plural)
    if not d.chance(d.richness / 2):
        return who
    return subject_relative(d, who) if d.chance(0.6) else object_relative(d, who)


def subject_relative(d: Draft, who: Nominal) -> Nominal:
    """le garçon qui dort, the boy who sleeps."""
    d.tag("relative clause")
    richness, d.richness = d.richness, d.richness / 4
    time = Time(d.pick((PRESENT, PRESENT, PERFECT)))
    builder = d.pick((transitive, transitive, activity, motion) if time.tense == PERFECT else RELATIVE)
    link = d.link()
    inner = finite(d, who, builder(d, Scene(who, time)), time, silent=True)
    d.richness = richness
    who.french = [*who.french, ("qui", link), *inner.french]
    who.english = [*who.english, ("who", link), *inner.english]
    return who


RELATIVE: tuple[Builder, ...] = (transitive, transitive, activity, motion, liking, mood)


def choose_negation(d: Draft, tense: str) -> str:
    if not d.chance(0.2):
        return ""
    negation = d.pick(("pas", "pas", "pas", "pas", "jamais", "plus"))
    return "pas" if negation == "plus" and tense in (PERFECT, IMPERFECT) else negation


def choose_adverb(d: Draft, predicate: Predicate, tense: str) -> str:
    verb = predicate.verb
    if verb.once or predicate.timeless or not d.chance(0.15):
        return ""
    if tense == PERFECT:
        return d.pick(("déjà", "enfin"))
    return d.pick(("souvent", "toujours") if tense == FUTURE else ("souvent", "toujours", "parfois"))


def choose_aspect(d: Draft, predicate: Predicate, tense: str) -> str:
    """How a clause with a time phrase is seen."""
    verb = predicate.verb
    if tense == PRESENT:
        if not verb.stative and d.chance(0.15):
            return "now"
        return "plain" if verb.once or d.chance(0.4) else "habit"
    if tense == IMPERFECT and not verb.once and (verb.stative or d.chance(0.5)):
        return "habit"
    return "plain"


def clause(
    d: Draft,
    who: Nominal,
    time: Time,
    *,
    builders: tuple[Builder, ...] | None = None,
    timed: float = 0.0,
    negation: str | None = None,
    adverbs: bool = True,
) -> Clause:
    """A clause about the subject, with a time phrase at the given rate."""
    if negation is None:
        negation = choose_negation(d, time.tense)
    if builders is None:
        builders = DEEDS
        if time.tense == PERFECT:
            builders = (*DEEDS, becoming)
        elif d.chance(0.45):
            builders = COMING_STATES if time.tense == FUTURE else STATES
    predicate = d.pick(builders)(d, Scene(who, time, bool(negation)))
    return tell(d, who, predicate, time, timed=timed, negation=negation, adverbs=adverbs)


def tell(
    d: Draft, who: Nominal, predicate: Predicate, time: Time, *, timed: float, negation: str, adverbs: bool = True
) -> Clause:
    """The predicate said of the subject: adverb and time phrase as they fit."""
    if predicate.verb.english.base == "must" and time.tense == IMPERFECT:
        negation = ""  # did not have to is not what ne devait pas says
    if negation and predicate.timeless and predicate.verb in (BE, SEEM):
        negation = "pas"  # a mouse is never no longer small
    plain = time.aspect == "plain"
    adverb = choose_adverb(d, predicate, time.tense) if adverbs and plain and not negation else ""
    if not (timed and plain) or adverb or predicate.timeless or negation in ("jamais", "plus") or not d.chance(timed):
        return Clause(finite(d, who, predicate, time, negation=negation, adverb=adverb), who, predicate, time, negation)
    if not negation:
        time = Time(time.tense, choose_aspect(d, predicate, time.tense))
    words = finite(d, who, predicate, time, negation=negation)
    when = time_phrase(d, time)
    words = concat(when, comma(d), words) if d.chance(0.45) else concat(words, when)
    return Clause(words, who, predicate, time, negation)


def about_thing(d: Draft) -> Phrase:
    """la maison est grande, the house is big; le livre que Paul lit est intéressant."""
    noun = d.pick_new(NOUNS[d.pick(THINGS)])
    owner = Nominal([], [], d.pick((0, 1, 3, 4)))
    styles = ("the", "the", "this", "own") if noun.kind in MANY else ("the", "the", "this")
    what = noun_phrase(d, noun, d.pick(styles), plural=d.chance(0.3), owner=owner)
    if d.chance(d.richness):
        what = object_relative(d, what)
    time = Time(d.pick((PRESENT, PRESENT, IMPERFECT)))
    return finite(d, what, being(d, Scene(what, time)), time, negation=d.pick(("", "", "", "", "pas")))


def animal_clause(d: Draft, time: Time, *, timed: float = 0.0, deeds: bool = False) -> Clause:
    """le chat dort dans le jardin, the cat sleeps in the garden."""
    style = d.pick(("the", "the", "a", "this", "count"))
    plural = style == "count" or (style != "a" and d.chance(0.3))
    who = noun_phrase(d, d.pick(NOUNS["animal"]), style, plural=plural)
    builders: tuple[Builder, ...] = (animal_meal, animal_activity)
    if time.tense != PERFECT and not deeds:
        builders = (*builders, mood, being)
    return clause(d, who, time, builders=builders, timed=timed)


def animal_meal(d: Draft, scene: Scene) -> Predicate:
    """mange du pain, boit de l'eau, cherche une pomme."""
    verb = d.pick(ANIMAL_VERBS)
    noun = BY_FRENCH[d.pick(DRINKS if verb.infinitive == "boire" else MEALS)]
    style = d.pick(("the", "a", "some")) if noun.counted else d.pick(("the", "some"))
    if scene.negated and style != "the":
        style = "none"
    what = noun_phrase(d, noun, style, plural=style == "some" and noun.counted)
    return Predicate(verb, what.french, what.english, object=what)


def animal_activity(d: Draft, scene: Scene) -> Predicate:
    return act(d, d.pick(ANIMAL_ACTIVITIES))


MEALS = ("pomme", "poire", "tomate", "pain", "viande", "fromage", "poisson", "riz")
DRINKS = ("eau", "lait")
ANIMAL_VERBS = tuple(v for v in TRANSITIVE if v.infinitive in ("manger", "boire", "chercher"))
ANIMAL_ACTIVITIES = tuple(v for v in ACTIVITIES if v.infinitive in ("dormir", "courir", "jouer", "se reposer"))


def weather(d: Draft, time: Time) -> Phrase:
    """il pleut, it is raining (it rains, beside a time phrase or after when and if); il fait froid, it is cold."""
    link = d.link()
    it = Nominal([("il", link)], [("it", link)])
    if d.chance(0.5):
        french, english = d.pick(WEATHER)
        link = d.link()
        return finite(d, it, Predicate(IT_IS, [(french, link)], [(english, link)]), time)
    return finite(d, it, Predicate(d.pick((RAIN, SNOW))), time)


def comma(d: Draft) -> Phrase:
    return d.pair(",", ",")


def concat(*phrases: Phrase) -> Phrase:
    """Phrases that follow each other in both languages."""
    french: list[Word] = []
    english: list[Word] = []
    for phrase in phrases:
        french += phrase.french
        english += phrase.english
    return Phrase(french, english)
