"""What a subject is, has, likes or wants."""

from __future__ import annotations

from regard.demo.grammar.actions import INNER, Builder, Scene, pick_verb
from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import Nominal, noun_phrase
from regard.demo.grammar.surface import Word
from regard.demo.grammar.time_and_place import Time, somewhere
from regard.demo.grammar.verb_groups import Predicate, infinitive
from regard.demo.grammar.words.adjectives import PASSING, SAID, Adjective
from regard.demo.grammar.words.french_verbs import FUTURE, PRESENT
from regard.demo.grammar.words.nouns import BY_FRENCH, NOUNS
from regard.demo.grammar.words.verbs import BE, BECOME, FEEL, FEELINGS, HAVE, LIKING, SEEM, WILLING, Verb


def liking(d: Draft, scene: Scene) -> Predicate:
    """aime le chocolat, likes chocolate; aime les chats, likes cats."""
    verb = d.pick(LIKING)
    noun = d.pick_new(NOUNS[d.pick(verb.kinds)])
    what = noun_phrase(d, noun, "kind", plural=noun.counted)
    return Predicate(verb, what.french, what.english, timeless=True)


def being(d: Draft, scene: Scene) -> Predicate:
    """est grande, is tall; est médecin, is a doctor; est à Paris, is in Paris; est triste, is sad."""
    subject = scene.subject
    if subject.human:
        roll = d.pick(range(10))
        if roll < 2:
            return profession(d, scene)
        if roll < 4:
            where = somewhere(d, ("room", "land", "city", "country"))
            return Predicate(BE, where.french, where.english)
        if roll < 7 or scene.time.tense == FUTURE:
            return mood(d, scene)
    lasting = scene.time.tense != FUTURE
    return quality(d, subject, d.pick_new(SAID[subject.kind]), SEEM if lasting and d.chance(0.1) else BE, timeless=True)


def mood(d: Draft, scene: Scene) -> Predicate:
    """est fatiguée, is tired."""
    d.has_mood = True
    return quality(d, scene.subject, d.pick(PASSING[scene.subject.kind]), BE)


def quality(d: Draft, subject: Nominal, adjective: Adjective, verb: Verb, *, timeless: bool = False) -> Predicate:
    """The adjective agrees with the subject."""
    link = d.link()
    if subject.gender == "f":
        d.tag("gender agreement")
    if subject.plural:
        d.tag("number agreement")
    form = adjective.form(subject.gender, subject.plural)
    return Predicate(verb, [(form, link)], [(adjective.english, link)], timeless=timeless)


def profession(d: Draft, scene: Scene) -> Predicate:
    """est médecin, is a doctor: the English article has no partner."""
    noun = d.pick(PROFESSIONS[scene.subject.gender])
    link = d.link()
    verb = BECOME if scene.time.tense == FUTURE else BE
    if scene.subject.plural:
        return Predicate(verb, [(noun.french_plural, link)], [(noun.english_plural, link)], timeless=True)
    return Predicate(verb, [(noun.french, link)], [("a", ()), (noun.english, link)], timeless=True)


def becoming(d: Draft, scene: Scene) -> Predicate:
    """est devenue médecin, became a doctor."""
    predicate = profession(d, scene)
    return Predicate(BECOME, predicate.french, predicate.english, timeless=True)


# médecin and pilote are said of women too; a singer has two words.
PROFESSIONS = {
    "m": tuple(n for n in NOUNS["profession"] if n.gender == "m"),
    "f": tuple(BY_FRENCH[n] for n in ("médecin", "architecte", "journaliste", "pilote", "peintre", "chanteuse",
                                      "étudiante", "actrice", "infirmière", "professeur")),
}  # fmt: skip


def feeling(d: Draft, scene: Scene) -> Predicate:
    """a faim, is hungry."""
    return feel(d, d.pick(FEELINGS))


def feel(d: Draft, which: tuple[str, str]) -> Predicate:
    link = d.link()
    return Predicate(FEEL, [(which[0], link)], [(which[1], link)])


def having(d: Draft, scene: Scene) -> Predicate:
    """a un chien, has a dog; n'a pas de voiture, does not have a car; a dix ans, is ten years old."""
    if scene.time.tense == PRESENT and not scene.negated and d.chance(0.5):
        return aged(d)
    noun = d.pick(NOUNS[d.pick(("animal", "vehicle", "device", "object", "clothing", "reading", "matter"))])
    style = d.pick(("a", "a", "count", "some", "much"))
    if scene.negated:
        what = noun_phrase(d, noun, "none", plural=style != "a" and noun.french != noun.french_plural)
    else:
        what = noun_phrase(d, noun, style, plural=style != "a")
    return Predicate(HAVE, what.french, what.english, timeless=True)


AGES = (("six", "six"), ("sept", "seven"), ("huit", "eight"), ("dix", "ten"), ("douze", "twelve"), ("vingt", "twenty"),
        ("trente", "thirty"), ("quarante", "forty"), ("soixante", "sixty"))  # fmt: skip


def aged(d: Draft) -> Predicate:
    d.tag("number")
    number, years = d.link(), d.link()
    french, english = d.pick(AGES)
    words: list[Word] = [(english, number), ("years", years), ("old", years)]
    return Predicate(FEEL, [(french, number), ("ans", years)], words, timeless=True)


def willing(d: Draft, scene: Scene) -> Predicate:
    """veut manger, wants to eat; peut nager, can swim; oublie de fermer la porte, forgets to close the door."""
    verb = pick_verb(d, WILLING, scene)
    return want(d, scene, verb, d.pick(INNER)(d, wish(scene)))


def wish(scene: Scene) -> Scene:
    """The scene of an infinitive under the verb of this one."""
    return Scene(scene.subject, Time(PRESENT), wanted=True)


def want(d: Draft, scene: Scene, verb: Verb, inner: Predicate) -> Predicate:
    """The verb with the inner predicate as an infinitive."""
    modal = verb.english.base in ("can", "must")
    what = infinitive(d, scene.subject, inner, form="base" if modal else "to")
    lead: list[Word] = [(verb.preposition, ())] if verb.preposition else []
    return Predicate(verb, [*lead, *what.french], what.english, timeless=not verb.perfect)


STATES: tuple[Builder, ...] = (*(being,) * 4, feeling, having, having, liking, liking, willing, willing, willing)
COMING_STATES: tuple[Builder, ...] = (being, being, feeling, having, willing, willing)
