"""What a subject does: the verb with objects and places that make sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import HUMAN, Nominal, name_phrase, noun_phrase
from regard.demo.grammar.objects import (
    contracted,
    direct_object,
    other_person,
    person,
    take_up_indirect,
    with_pronoun,
)
from regard.demo.grammar.surface import Phrase, Word, prepose
from regard.demo.grammar.time_and_place import Time, place_phrase, somewhere
from regard.demo.grammar.verb_groups import Predicate
from regard.demo.grammar.words.french_verbs import FUTURE, IMPERFECT, PERFECT
from regard.demo.grammar.words.nouns import CITIES, COUNTRIES, NOUNS
from regard.demo.grammar.words.verbs import ABOUT, ACTIVITIES, ADDRESSING, GIVING, MOTION, PLAY, TRANSITIVE, Verb


class Scene(NamedTuple):
    """The context of a predicate: its subject, its time, and whether it is negated."""

    subject: Nominal
    time: Time
    negated: bool = False
    wanted: bool = False  # an infinitive: veut manger


Builder = Callable[[Draft, Scene], Predicate]


def pick_verb(d: Draft, verbs: tuple[Verb, ...], scene: Scene) -> Verb:
    """Pick a verb that fits the tense, the negation or the intention."""
    tense = scene.time.tense
    while True:
        verb = d.pick_new(verbs)
        if tense == IMPERFECT:
            missing = verb.event
        else:  # no future for knowing, living somewhere and hoping
            lasting = verb.kinds != () or verb.positive
            missing = not verb.perfect and (tense == PERFECT or (tense == FUTURE and lasting))
        unwanted = scene.wanted and (verb.event or not verb.perfect)
        if not missing and not unwanted and not (verb.positive and scene.negated):
            return verb


def transitive(d: Draft, scene: Scene) -> Predicate:
    """Verb and direct object; sometimes the object is a pronoun."""
    return act_on(d, scene, pick_verb(d, TRANSITIVE, scene))


def act_on(d: Draft, scene: Scene, verb: Verb) -> Predicate:
    """The verb with an object, and perhaps where it happens."""
    if verb.kinds[0] != "transport" and "country" not in verb.kinds and d.chance(0.2):
        return with_pronoun(d, verb, scene.time, scene.subject)
    what = direct_object(d, verb, scene.subject, scene.negated)
    taken = what if what.definite and what.kind not in ("country", "city") else None
    predicate = Predicate(verb, list(what.french), list(what.english), object=taken)
    if verb.place and d.chance(0.25):
        where = place_phrase(d, d.pick(("room", "land", "land")))
        predicate.french += where.french
        predicate.english += where.english
    return predicate


def visiting(d: Draft, scene: Scene) -> Predicate:
    """visite l'Afrique, visits Africa."""
    return act_on(d, scene, VISIT)


VISIT = next(v for v in TRANSITIVE if v.infinitive == "visiter")


def giving(d: Draft, scene: Scene) -> Predicate:
    """donne un livre à Marie, gives a book to Marie; leur donne un livre, gives them a book."""
    verb = d.pick(GIVING)
    what = direct_object(d, verb, scene.subject, scene.negated, relative=False)
    if d.chance(0.3):
        whom = Nominal([], [], other_person(d, scene.subject, (5, 5, 0, 1, 3, 4)))
        return take_up_indirect(d, verb, whom, what)
    return Predicate(verb, *to_someone(d, what, person(d, scene.subject)))


def to_someone(d: Draft, what: Nominal, whom: Nominal) -> Phrase:
    """un livre à Marie, a book to Marie."""
    link = d.link()
    return Phrase([*what.french, *contracted(d, ("à", link), whom)], [*what.english, ("to", link), *whom.english])


def addressing(d: Draft, scene: Scene) -> Predicate:
    """parle au médecin, talks to the doctor; téléphone à Marie, calls Marie; leur répond, answers them."""
    verb = d.pick(ADDRESSING)
    if d.chance(0.2):
        return take_up_indirect(d, verb, Nominal([], [], other_person(d, scene.subject, (5, 5, 0, 1, 3, 4))))
    whom = person(d, scene.subject)
    return Predicate(verb, *preposed(d, verb, whom), object=whom)


def preposed(d: Draft, verb: Verb, what: Nominal) -> Phrase:
    """au médecin, to the doctor; after an English verb without preposition à has no partner: calls the doctor."""
    link = d.link() if verb.partner else ()
    lead: list[Word] = [(verb.partner, link)] if verb.partner else []
    return Phrase(contracted(d, (verb.preposition, link), what), [*lead, *what.english])


def about(d: Draft, scene: Scene) -> Predicate:
    """parle du film, talks about the film; rêve de l'Afrique, dreams about Africa."""
    verb = d.pick(ABOUT)
    kind = d.pick(verb.kinds)
    if kind == "country":
        what = name_phrase(d, d.pick(COUNTRIES), "country")
    elif kind in HUMAN:
        what = person(d, scene.subject, kind)
    else:
        style = d.pick(("the", "the", "a", "this"))
        what = noun_phrase(d, d.pick(NOUNS[kind]), style, plural=style != "a" and d.chance(0.3))
    return Predicate(verb, *preposed(d, verb, what))


def activity(d: Draft, scene: Scene) -> Predicate:
    """dort, sleeps; travaille dans le jardin, works in the garden; joue du piano, plays the piano."""
    if d.chance(0.15):
        return playing(d)
    return act(d, pick_verb(d, ACTIVITIES, scene))


def act(d: Draft, verb: Verb) -> Predicate:
    """The activity, and perhaps where it happens."""
    if verb.kinds and (verb.stative or d.chance(0.7)):
        where = somewhere(d, verb.kinds)
        return Predicate(verb, where.french, where.english, timeless=verb.stative)
    return Predicate(verb)


def playing(d: Draft) -> Predicate:
    """joue au football, plays football; joue du piano, plays the piano."""
    kind = d.pick(("game", "instrument"))
    noun = d.pick(NOUNS[kind])
    link, the = d.link(), d.link()
    article = ARTICLE_OF.get(noun.french) or ("la" if noun.gender == "f" else "le")
    if article != "la":
        d.tag("contraction")
    if kind == "game":
        return Predicate(PLAY, prepose(("à", ()), [(article, ()), (noun.french, link)]), [(noun.english, link)])
    words = prepose(("de", ()), [(article, the), (noun.french, link)])
    return Predicate(PLAY, words, [("the", the), (noun.english, link)])


ARTICLE_OF = {"cartes": "les", "échecs": "les"}


def motion(d: Draft, scene: Scene) -> Predicate:
    """va à Paris, goes to Paris; vient du marché, comes from the market; part pour Rome, leaves for Rome."""
    return move(d, pick_verb(d, INTENDED if scene.wanted else MOTION, scene))


INTENDED = tuple(v for v in MOTION if v.infinitive in ("aller", "retourner", "rester", "partir", "entrer"))


def move(d: Draft, verb: Verb) -> Predicate:
    """The verb of motion with a place that it leads to, or from."""
    (kind,) = verb.kinds
    if kind in ("to", "at") and d.chance(0.5):
        where = somewhere(d, ("city", "country"), "to" if kind == "to" else "in")
    elif kind in ("from", "for") and d.chance(0.5):
        city = name_phrase(d, d.pick(CITIES), "city")
        link = d.link()
        where = Phrase([("de" if kind == "from" else "pour", link), *city.french], [(kind, link), *city.english])
    else:
        where = somewhere(d, verb.kinds)
    return Predicate(verb, where.french, where.english)


INNER: tuple[Builder, ...] = (*(transitive,) * 5, activity, activity, motion, giving, addressing)
DEEDS: tuple[Builder, ...] = (
    *(transitive,) * 8,
    visiting,
    *(activity,) * 4,
    *(motion,) * 4,
    giving,
    giving,
    addressing,
    about,
)
