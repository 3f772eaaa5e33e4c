"""Sentences: clauses are joined until the sentence has its length, and then written out."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from regard.demo.grammar.actions import DEEDS, Scene
from regard.demo.grammar.clauses import (
    Clause,
    animal_clause,
    clause,
    concat,
    subject,
    tell,
)
from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import Nominal
from regard.demo.grammar.simple_sentences import SMALL
from regard.demo.grammar.subordinate_clauses import NO_SERIES, ORDERS, condition, handing, occasion, saying
from regard.demo.grammar.surface import Phrase, align, choose_articles, elide, join
from regard.demo.grammar.time_and_place import Time
from regard.demo.grammar.words.french_verbs import FUTURE, IMPERFECT, PERFECT, PRESENT

MIN_WORDS, MAX_WORDS = 3, 30  # separated by spaces, on both sides
TENSES = (PRESENT,) * 8 + (PERFECT,) * 6 + (FUTURE,) * 4 + (IMPERFECT,) * 3
# The minimum number of words of a sentence; it ends with the clause that reaches this number.
GOALS = (0,) * 43 + (8,) * 21 + (12,) * 12 + (16,) * 6 + (20,) * 4 + (27,) * 16


class Sentence(NamedTuple):
    """A sentence in both languages. `phenomena` are the grammatical phenomena that occur in it."""

    french: str
    english: str
    alignment: tuple[tuple[int, int], ...]
    phenomena: frozenset[str]


def statement(d: Draft, goal: int) -> Phrase:
    """Generate a main clause, perhaps with a clause before it, and as many after it as the goal requires."""
    tense = d.pick(TENSES)
    opening: Phrase | None = None
    known: Nominal | None = None
    if goal >= 8 and d.chance(0.5):
        opening, tense, known = d.pick((occasion, condition, saying))(d, tense)
    main = main_clause(d, Time(tense), known, deeds=goal > 0, timed=0.5 if opening is None else 0.0)
    words = main.words if opening is None else concat(opening, main.words)
    for extension in d.pick(ORDERS if opening is None or known else NO_SERIES):
        if len(words.french) >= goal or main.time.aspect == "now":
            break
        addition = extension(d, main)
        if addition is not None:
            words = concat(words, addition)
    return words


def main_clause(d: Draft, time: Time, known: Nominal | None, *, deeds: bool, timed: float) -> Clause:
    """Generate the main clause; `known` is somebody named before it, to whom the pronoun lui may refer."""
    if known is not None and known.person == 2 and d.chance(0.35):
        who = subject(d, pronouns=False)
        return tell(d, who, handing(d, Scene(who, time), known), time, timed=0.0, negation="", adverbs=False)
    if d.chance(0.1):
        return animal_clause(d, time, timed=timed, deeds=deeds)
    return clause(d, subject(d), time, builders=DEEDS if deeds and time.tense != PERFECT else None, timed=timed)


class Sketch(NamedTuple):
    """A generated sentence of which only the English is written out, which determines its part of the corpus."""

    draft: Draft
    phrase: Phrase
    english: str

    def finish(self) -> Sentence | None:
        """Write out the French and the alignment; return None if the sentence is too long or too short."""
        french, english = elide(self.phrase.french), self.phrase.english
        text = join(french)
        if text.count(" ") + 1 < MIN_WORDS or max(text.count(" "), self.english.count(" ")) >= MAX_WORDS:
            return None
        if "'" in text:
            self.draft.tag("elision")
        return Sentence(text, self.english, align(Phrase(french, english)), frozenset(self.draft.phenomena))


def draw_sketch(random: Random) -> Sketch:
    """Generate a random sentence."""
    goal = GOALS[int(random.random() * len(GOALS))]
    d = Draft(random, 0.25 + goal / 80)
    mark = "."
    if goal == 0 and d.chance(0.4):
        phrase, mark = d.pick(SMALL)(d)
    else:
        phrase = statement(d, goal)
    if mark == "?" or d.chance(0.9):
        phrase = concat(phrase, d.pair(mark, mark))
    return Sketch(d, phrase, join(choose_articles(phrase.english)))
