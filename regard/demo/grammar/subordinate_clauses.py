"""Clauses before and after the main one: when, if, because, in order to, and, but."""

from __future__ import annotations

from collections.abc import Callable

from regard.demo.grammar.actions import (
    DEEDS,
    INNER,
    Builder,
    Scene,
    activity,
    addressing,
    giving,
    motion,
    pick_verb,
    to_someone,
    transitive,
)
from regard.demo.grammar.clauses import Clause, clause, comma, concat, subject, weather
from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import Nominal, noun_phrase, pronoun, someone
from regard.demo.grammar.objects import direct_object, person, take_up, take_up_indirect
from regard.demo.grammar.states import feel, mood, quality, want, wish
from regard.demo.grammar.surface import Phrase
from regard.demo.grammar.time_and_place import Time
from regard.demo.grammar.verb_groups import Predicate, finite, infinitive
from regard.demo.grammar.words.adjectives import PASSING
from regard.demo.grammar.words.french_verbs import FUTURE, IMPERFECT, PERFECT, PRESENT
from regard.demo.grammar.words.nouns import NOUNS
from regard.demo.grammar.words.verbs import (
    ACTIVITIES,
    ADDRESSING,
    BE,
    GIVING,
    MOTION,
    NEXT,
    SAYING,
    TRANSITIVE,
    WILLING,
    Verb,
)


def _named(verbs: tuple[Verb, ...], names: str) -> tuple[Verb, ...]:
    return tuple(v for v in verbs if v.infinitive in names.split())


COMINGS = _named(MOTION, "arriver partir revenir")
ERRANDS = _named(MOTION, "aller retourner rester partir entrer")
WISHES = _named(WILLING, "vouloir devoir préférer")
REFUSALS, OBSTACLES = _named(WILLING, "vouloir pouvoir"), _named(WILLING, "devoir préférer")
WANT, SAY = _named(WILLING, "vouloir")[0], _named(SAYING, "dire")
NOT_HOPING = _named(SAYING, "penser croire dire savoir")


# Before the main clause: the words, the tense that the main clause takes after them, and whom it may take up.
Opening = tuple[Phrase, str, Nominal | None]


def occasion(d: Draft, tense: str) -> Opening:
    """Quand Paul arrivera, … : When Paul arrives, … English has no future after when."""
    d.tag("subordinate clause")
    when = d.pair("quand", "when")
    if tense in (PRESENT, FUTURE) and d.chance(0.25):
        return concat(when, weather(d, Time(tense, "later" if tense == FUTURE else "habit")), comma(d)), tense, None
    time = {FUTURE: Time(FUTURE, "later"), IMPERFECT: Time(PERFECT)}.get(tense, Time(tense))
    who = subject(d)
    builders: tuple[Builder, ...] = (coming, coming, activity, motion, transitive)
    words = clause(d, who, time, builders=builders, negation="", adverbs=False).words
    return concat(when, words, comma(d)), tense, who


def condition(d: Draft, tense: str) -> Opening:
    """Si Paul vient, Marie sera contente: If Paul comes, Marie will be happy."""
    d.tag("subordinate clause")
    who = None
    if d.chance(0.3):
        words = weather(d, Time(PRESENT, "habit"))
    else:
        who = subject(d)
        builders: tuple[Builder, ...] = (coming, transitive, mood, wishing, motion)
        words = clause(d, who, Time(PRESENT), builders=builders, adverbs=False).words
    return concat(d.pair("si", "if"), words, comma(d)), FUTURE, who


def saying(d: Draft, tense: str) -> Opening:
    """Paul pense que … : Paul thinks that …"""
    d.tag("subordinate clause")
    reported = tense == IMPERFECT and d.chance(0.6)
    verbs = SAY if reported else SAYING if tense == FUTURE else NOT_HOPING
    words = finite(d, subject(d), Predicate(d.pick(verbs)), Time(PERFECT if reported else PRESENT))
    return concat(words, d.pair("que", "that")), tense, None


def coming(d: Draft, scene: Scene) -> Predicate:
    """arrive, part, revient."""
    return Predicate(d.pick(COMINGS))


def wishing(d: Draft, scene: Scene) -> Predicate:
    """veut, doit or préfère do something."""
    return want(d, scene, pick_verb(d, WISHES, scene), d.pick(INNER)(d, wish(scene)))


def hindered(d: Draft, scene: Scene) -> Predicate:
    """doit or préfère do something; ne veut pas, ne peut pas."""
    return want(d, scene, d.pick(REFUSALS if scene.negated else OBSTACLES), d.pick(INNER)(d, wish(scene)))


def handing(d: Draft, scene: Scene, whom: Nominal) -> Predicate:
    """lui donne un livre, gives her a book; lui parle, talks to her: somebody whom the sentence has named."""
    if d.chance(0.4):
        return take_up_indirect(d, d.pick(ADDRESSING), whom)
    verb = d.pick(GIVING)
    return take_up_indirect(d, verb, whom, direct_object(d, verb, scene.subject, scene.negated))


# After the main clause; None where nothing fits.


def next_deed(d: Draft, main: Clause) -> Phrase | None:
    """… et la mange: … and eats it. The pronoun takes up the object of the main clause."""
    what = main.predicate.object
    verbs = NEXT.get(main.predicate.verb.infinitive, ())
    fitting = [v for v in verbs if what and (what.kind in v.kinds or (v in ADDRESSING and what.human))]
    if not fitting or what is None or main.negation or main.time.aspect != "plain" or d.chance(0.2):
        return None
    d.tag("coordination")
    verb = d.pick_new(fitting)
    if verb in ADDRESSING:
        predicate = take_up_indirect(d, verb, what)
    else:
        predicate = take_up(d, verb, what)
        if verb in GIVING:
            words = to_someone(d, Nominal([], predicate.english), person(d, main.subject))
            predicate = Predicate(verb, words.french, words.english, predicate.clitics, predicate.agreement)
    return concat(d.pair("et", "and"), finite(d, main.subject, predicate, main.time, shared=True))


def purpose(d: Draft, main: Clause) -> Phrase | None:
    """… pour acheter du pain: … to buy bread."""
    if main.time.aspect != "plain" or main.predicate.verb not in ERRANDS or not main.subject.human or main.negation:
        return None
    d.tag("subordinate clause")
    builder = d.pick((transitive, transitive, giving, addressing))
    inner = infinitive(d, main.subject, builder(d, wish(Scene(main.subject, main.time))), form="to")
    link = d.link()
    return Phrase([("pour", link), *inner.french], [("to", link), *inner.english[1:]])


def circumstance(d: Draft, main: Clause) -> Phrase | None:
    """… avant de partir: … before leaving; … sans fermer la porte: … without closing the door."""
    if main.time.aspect != "plain" or main.negation or not main.subject.human or d.chance(0.5):
        return None
    d.tag("subordinate clause")
    lead = d.pair(*d.pick((("avant de", "before"), ("sans", "without"))))
    if d.chance(0.5):
        verb = d.pick_new(LEAVINGS if lead.english[0][0] == "before" else BREAKS)
        inner = Predicate(verb)
    else:
        verb = d.pick_new(CLOSINGS)
        noun = d.pick_new(NOUNS[d.pick(verb.kinds)])
        what = noun_phrase(d, noun, d.pick(("the", "this", "own")), plural=d.chance(0.2), owner=main.subject)
        inner = take_up(d, verb, what) if d.chance(0.25) else Predicate(verb, what.french, what.english)
    return concat(lead, infinitive(d, main.subject, inner, form="gerund"))


LEAVINGS = (*COMINGS, *_named(ACTIVITIES, "dormir travailler étudier coucher habiller reposer"))
BREAKS = _named(ACTIVITIES, "dormir rire pleurer chanter travailler")
CLOSINGS = _named(TRANSITIVE, "fermer ouvrir lire finir regarder laver choisir vendre écrire")

REASON_TENSES = {PRESENT: PRESENT, PERFECT: IMPERFECT, FUTURE: PRESENT, IMPERFECT: IMPERFECT}
# What makes one do it: a feeling, or an adjective.
FEELING_OF = {"manger": ("faim", "hungry"), "boire": ("soif", "thirsty")}
MOOD_OF = {"dormir": "fatigué", "reposer": "fatigué", "coucher": "fatigué", "pleurer": "triste", "rire": "content",
           "danser": "heureux", "chanter": "heureux"}  # fmt: skip


def because(d: Draft, main: Clause) -> Phrase | None:
    """… parce qu'il a faim: … because he is hungry."""
    if main.time.aspect == "now":
        return None
    d.tag("subordinate clause")
    time = Time(REASON_TENSES[main.time.tense])
    lead = d.pair("parce que", "because")
    if d.chance(0.12):
        return concat(lead, weather(d, Time(PRESENT, "now") if time.tense == PRESENT else time))
    who = pronoun(d, main.subject.person, main.subject.gender, main.subject.kind)
    scene = Scene(who, time)
    predicate = None if main.negation else motive(d, scene, main)
    if predicate is None:
        if who.human and d.chance(0.3):
            scene = Scene(subject(d, pronouns=False), time)
        if d.has_mood and not who.human:
            return None
        predicate = (wishing if d.has_mood or (who.human and d.chance(0.5)) else mood)(d, scene)
    return concat(lead, finite(d, scene.subject, predicate, time))


def motive(d: Draft, scene: Scene, main: Clause) -> Predicate | None:
    """The reason that belongs to the deed: eats, because hungry; buys it, because wants to read it."""
    verb, what = main.predicate.verb.infinitive, main.predicate.object
    if verb in FEELING_OF and d.chance(0.7):
        return feel(d, FEELING_OF[verb])
    if verb in MOOD_OF and d.chance(0.7):
        adjective = next(a for a in PASSING["person"] if a.masculine == MOOD_OF[verb])
        return quality(d, scene.subject, adjective, BE)
    if what is not None and main.subject.human and d.chance(0.5):
        wanted = [v for v in NEXT.get(verb, ()) if v not in GIVING and v not in d.used and not v.event]
        fitting = [v for v in wanted if what.kind in v.kinds]
        if fitting:
            return want(d, scene, WANT, take_up(d, d.pick(fitting), what))
    return None


def meanwhile(d: Draft, main: Clause) -> Phrase | None:
    """… pendant que Marie travaillait: … while Marie was working."""
    if main.time.tense not in (PERFECT, IMPERFECT) or main.time.aspect != "plain":
        return None
    d.tag("subordinate clause")
    who = subject(d) if main.subject.human else someone(d)
    words = clause(d, who, Time(IMPERFECT), builders=(activity, transitive), negation="", adverbs=False).words
    return concat(d.pair("pendant que", "while"), words)


CONTRASTS: tuple[Builder, ...] = (hindered, hindered, mood)


def contrast(d: Draft, main: Clause) -> Phrase | None:
    """…, mais elle ne veut pas manger: …, but she does not want to eat."""
    if not main.subject.human:
        return None
    d.tag("coordination")
    who = pronoun(d, main.subject.person, main.subject.gender)
    time = Time(REASON_TENSES[main.time.tense])
    builders = CONTRASTS[: 2 if d.has_mood else 3]
    words = clause(d, who, time, builders=builders, negation=d.pick(("", "pas")), adverbs=False).words
    return concat(comma(d), d.pair("mais", "but"), words)


def addition(d: Draft, main: Clause) -> Phrase | None:
    """… et Marie lit un livre: … and Marie reads a book."""
    d.tag("coordination")
    who = subject(d, pronouns=main.subject.human)
    return concat(d.pair("et", "and"), clause(d, who, Time(main.time.tense), builders=DEEDS).words)


def series(d: Draft, main: Clause) -> Phrase | None:
    """…, Paul boit du thé et Marie lit un livre: …, Paul drinks tea and Marie reads a book."""
    words = Phrase([], [])
    for _ in range(d.pick((1, 1, 2))):
        who = subject(d, pronouns=main.subject.human)
        words = concat(words, comma(d), clause(d, who, Time(main.time.tense), builders=DEEDS, adverbs=False).words)
    last = addition(d, main)
    return None if last is None else concat(words, last)


Extension = Callable[[Draft, Clause], Phrase | None]
# In the order in which they may follow each other.
ORDERS: tuple[tuple[Extension, ...], ...] = (
    (next_deed, purpose, circumstance, because, contrast, addition),
    (next_deed, purpose, because, addition),
    (next_deed, circumstance, meanwhile, contrast),
    (series, contrast),
    (series, because),
    (next_deed, contrast, because, addition),
)
NO_SERIES = tuple(order for order in ORDERS if series not in order)
