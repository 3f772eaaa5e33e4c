"""Small sentences: about things, the weather, there is, this is, comparisons, and questions."""

from __future__ import annotations

from collections.abc import Callable

from regard.demo.grammar.actions import DEEDS, Builder, Scene
from regard.demo.grammar.clauses import about_thing, comma, concat, subject, weather
from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import Nominal, noun_phrase, possessed, someone
from regard.demo.grammar.objects import MEASURED, OBJECT_OF, measured
from regard.demo.grammar.states import feeling, mood, quality
from regard.demo.grammar.surface import Phrase, Word
from regard.demo.grammar.time_and_place import Time, place_phrase, somewhere, time_phrase
from regard.demo.grammar.verb_groups import Predicate, finite
from regard.demo.grammar.words.adjectives import SAID
from regard.demo.grammar.words.french_verbs import FUTURE, IMPERFECT, PERFECT, PRESENT
from regard.demo.grammar.words.nouns import NOUNS
from regard.demo.grammar.words.verbs import ACTIVITIES, BE, MOTION, THERE

Small = tuple[Phrase, str]  # the words and the mark at their end


def thing(d: Draft) -> Small:
    return about_thing(d), "."


def sky(d: Draft) -> Small:
    """Il pleut à Paris: It is raining in Paris. En avril, il pleut: In April, it rains."""
    tense = d.pick((PRESENT, PRESENT, IMPERFECT, FUTURE))
    where = somewhere(d, ("city", "country")) if d.chance(0.8) else Phrase([], [])
    if tense != IMPERFECT and d.chance(0.5):
        time = Time(tense, "habit" if tense == PRESENT else "plain")
        when = time_phrase(d, time)
        return concat(when, comma(d), weather(d, time), where), "."
    return concat(weather(d, Time(tense, "now" if tense == PRESENT else "plain")), where), "."


SCENES = (("animal", "land"), ("profession", "land"), ("profession", "room"), ("object", "room"), ("fruit", "room"),
          ("food", "room"), ("drink", "room"), ("furniture", "room"), ("vehicle", "land"),
          ("luggage", "room"))  # fmt: skip
THERE_IS = {PRESENT: ("is", "are"), IMPERFECT: ("was", "were"), FUTURE: ("will be", "will be")}


def existence(d: Draft) -> Small:
    """Il y a un chat dans le jardin: There is a cat in the garden. Il n'y a pas de pain: There is no bread."""
    kind, place = d.pick(SCENES)
    noun = d.pick_new(NOUNS[kind])
    tense = d.pick((PRESENT, PRESENT, IMPERFECT, FUTURE))
    negated = d.chance(0.25)
    if negated:
        plural = noun.counted and noun.french != noun.french_plural
        what = noun_phrase(d, noun, "none", plural=plural)
    elif noun.french in MEASURED and d.chance(0.4):
        what = measured(d, noun)
    else:
        style = d.pick(("a", "a", "count")) if noun.counted else d.pick(("some", "much"))
        what = noun_phrase(d, noun, style, plural=style == "count")
    there, v, no = d.link(), d.link(), d.link()
    french: list[Word] = [("il", there), ("y", there), (THERE.simple[tense][2], v), *what.french]
    words = what.english
    if negated:
        d.tag("negation")
        french[1:1] = [("ne", no)]
        french[4:4] = [("pas", no)]
        words = [("no", no + words[0][1]), *words[1:]]
    verb: list[Word] = [(word, v) for word in THERE_IS[tense][what.plural].split()]
    d.tag(tense)
    return concat(Phrase(french, [("there", there), *verb, *words]), place_phrase(d, place)), "."


def presentation(d: Draft) -> Small:
    """C'est le frère de Marie: This is Marie's brother. Ce sont de beaux chats: These are beautiful cats."""
    kind = d.pick(("relative", "relative", "profession", "object", "reading", "clothing", "animal", "building"))
    noun = d.pick_new(NOUNS[kind])
    plural = noun.counted and d.chance(0.3)
    if kind != "building" and d.chance(0.3):
        what = possessed(d, noun, someone(d), plural=plural)
    elif kind == "relative" or d.chance(0.3):
        what = noun_phrase(d, noun, "own", plural=plural, owner=Nominal([], [], d.pick((0, 1, 3, 4))))
    else:
        d.richness = 0.6
        what = noun_phrase(d, noun, "some" if plural else "a", plural=plural)
    tense = PRESENT
    link = d.link()
    subject = Nominal([("ce", link)], [("these" if plural else "this", link)], 5 if plural else 2)
    negation = "pas" if d.chance(0.2) else ""
    return finite(d, subject, Predicate(BE, what.french, what.english), Time(tense), negation=negation), "."


# French masculine: English, and English compared
COMPARED = {"grand": "taller", "petit": "shorter", "jeune": "younger", "vieux": "older", "riche": "richer",
            "intelligent": "more intelligent", "courageux": "braver", "drôle": "funnier", "timide": "more shy",
            "sérieux": "more serious"}  # fmt: skip


def comparison(d: Draft) -> Small:
    """Marie est plus grande que Paul: Marie is taller than Paul; aussi grande que: as tall as."""
    d.tag("comparison")
    who, other = subject(d), someone(d)
    adjective = d.pick([a for a in SAID["person"] if a.masculine in COMPARED])
    tense = Time(d.pick((PRESENT, PRESENT, IMPERFECT, FUTURE)))
    base = quality(d, who, adjective, BE)
    ((form, link),) = base.french
    more, than = d.link(), d.link()
    if d.chance(0.6):
        words: list[Word] = [(w, more + link) for w in COMPARED[adjective.masculine].split()]
        if len(words) == 2:
            words = [(words[0][0], more), (words[1][0], link)]
        predicate = Predicate(
            BE, [("plus", more), (form, link), ("que", than), *other.french], [*words, ("than", than), *other.english]
        )
    else:
        predicate = Predicate(
            BE, [("aussi", more), (form, link), ("que", than), *other.french],
            [("as", more), (adjective.english, link), ("as", than), *other.english],
        )  # fmt: skip
    negation = "pas" if d.chance(0.2) else ""
    return finite(d, who, predicate, tense, negation=negation), "."


def asked_about(d: Draft) -> Nominal:
    """A subject that one asks about: not I, not we."""
    who = subject(d)
    return someone(d) if who.person in (0, 3) else who


ASKED = (PRESENT, PRESENT, PERFECT, FUTURE)


def ask(d: Draft, lead: Phrase, who: Nominal, predicate: Predicate, time: Time, negation: str = "") -> Small:
    """The lead (où), est-ce que, and the clause; English inverts the order."""
    d.tag("question")
    link = d.link()
    words = finite(d, who, predicate, time, negation=negation, question=link)
    return concat(lead, Phrase([("est-ce", link), ("que", link)], []), words), "?"


def yes_or_no(d: Draft) -> Small:
    """Est-ce que Paul mange une pomme? Does Paul eat an apple?"""
    time = Time(d.pick(ASKED))
    who = asked_about(d)
    negation = "pas" if d.chance(0.1) else ""
    builders: tuple[Builder, ...] = DEEDS if time.tense == PERFECT else (*DEEDS, feeling, feeling, mood, mood, mood)
    return ask(d, Phrase([], []), who, d.pick(builders)(d, Scene(who, time, bool(negation))), time, negation)


def why_or_when(d: Draft) -> Small:
    """Pourquoi est-ce que Paul rit? Why does Paul laugh?"""
    time = Time(d.pick(ASKED))
    who = asked_about(d)
    why = d.chance(0.5)
    negation = "pas" if why and d.chance(0.3) else ""
    predicate = d.pick(DEEDS)(d, Scene(who, time, bool(negation)))
    return ask(d, d.pair("pourquoi", "why") if why else d.pair("quand", "when"), who, predicate, time, negation)


def where_to(d: Draft) -> Small:
    """Où est-ce que Paul travaille? Where does Paul work?"""
    time = Time(d.pick(ASKED))
    return ask(d, d.pair("où", "where"), asked_about(d), Predicate(d.pick(PLACED)), time)


PLACED = tuple(v for v in (*ACTIVITIES, *MOTION) if v.perfect and {"room", "land", "to", "water"} & set(v.kinds))


def what_thing(d: Draft) -> Small:
    """Qu'est-ce que Paul mange? What does Paul eat?"""
    time = Time(d.pick(ASKED))
    verb = d.pick(OBJECT_OF[d.pick(("fruit", "drink", "object", "reading", "show", "clothing", "device", "building"))])
    where = place_phrase(d, d.pick(("room", "land"))) if verb.place and d.chance(0.6) else Phrase([], [])
    return ask(d, d.pair("que", "what"), asked_about(d), Predicate(verb, where.french, where.english), time)


def whereabouts(d: Draft) -> Small:
    """Où est le chat de Marie? Where is Marie's cat?"""
    d.tag("question")
    kind = d.pick(("relative", "object", "animal", "device", "clothing", "reading", "luggage"))
    noun = d.pick_new(NOUNS[kind])
    plural = noun.counted and d.chance(0.3)
    owner = Nominal([], [], d.pick((0, 1, 3, 4)))
    what = noun_phrase(d, noun, "own", plural=plural, owner=owner)
    if d.chance(0.4):
        what = possessed(d, noun, someone(d), plural=plural)
    tense = d.pick((PRESENT, PRESENT, IMPERFECT))
    words = finite(d, what, Predicate(BE), Time(tense), silent=True)
    return concat(d.pair("où", "where"), words, Phrase(what.french, what.english)), "?"


def who_does(d: Draft) -> Small:
    """Qui a ouvert la porte? Who opened the door?"""
    d.tag("question")
    link = d.link()
    who = Nominal([("qui", link)], [("who", link)])
    time = Time(d.pick(ASKED))
    # The subject is not known, so nothing can be his or hers.
    predicate = d.pick(DEEDS)(d, Scene(Nominal([], [], 2, "m", "animal"), time))
    return finite(d, who, predicate, time), "?"


SMALL: tuple[Callable[[Draft], Small], ...] = (
    thing, thing, sky, existence, existence, presentation, presentation, comparison, yes_or_no, yes_or_no, why_or_when,
    where_to, what_thing, whereabouts, who_does,
)  # fmt: skip
