"""Little stories in English, for language models: the same words, one or two people, some talk."""

from __future__ import annotations

from random import Random

from regard.demo.grammar.actions import DEEDS, Builder, Scene
from regard.demo.grammar.clauses import clause, concat
from regard.demo.grammar.draft import Draft
from regard.demo.grammar.noun_phrases import Nominal, name_phrase, pronoun
from regard.demo.grammar.states import feeling, mood, profession
from regard.demo.grammar.subordinate_clauses import (
    because,
    circumstance,
    contrast,
    hindered,
    meanwhile,
    next_deed,
    wishing,
)
from regard.demo.grammar.surface import Phrase, choose_articles, join
from regard.demo.grammar.time_and_place import Time
from regard.demo.grammar.verb_groups import finite
from regard.demo.grammar.words.french_verbs import FUTURE, IMPERFECT, PERFECT, PRESENT
from regard.demo.grammar.words.nouns import CITIES, PEOPLE, Name

OPENINGS = (
    "One day,", "One morning,", "One evening,", "Last summer,", "It was a cold day in January.", "It was raining.",
    "It was Sunday.", "It was late.", "It was a beautiful day in May.", "Nobody was in the street.",
)  # fmt: skip
LINKS = ("Then", "Soon", "Later,", "After that,", "In the evening,", "The next day,", "An hour later,", "Suddenly")
GREETINGS = ("Good morning", "Good evening", "Hello", "Listen", "Look", "Wait", "Come here")
REPLIES = ("Yes, of course", "No, thank you", "I do not know", "That is a good question", "Perhaps tomorrow",
           "Why not", "You are right", "I am sorry")  # fmt: skip
ENDINGS = (
    "That was the end of the day.", "Everybody was happy.", "Nobody knew why.", "And that was all.",
    "It was a day to remember.", "They laughed for a long time.", "Then it was night.",
)  # fmt: skip


def tell_story(random: Random) -> str:
    """A story of two people: paragraphs of sentences, with dialogue."""
    d = Draft(random, 0.15)
    first, second = d.pick_new(PEOPLE), d.pick_new(PEOPLE)
    opening = d.pick(OPENINGS)
    start = deed(Draft(random, 0.15), first, named=True)
    lines = [f"{opening} {start}" if opening[-1] == "." else f"{opening} {lowered(start, first)}"]
    lines.append(background(Draft(random, 0.15), first, (mood, wishing, profession)))
    paragraphs = [" ".join(lines)]
    for _ in range(d.pick((1, 2, 2, 3))):
        hero, other = (first, second) if d.chance(0.6) else (second, first)
        paragraphs.append(dialogue(random, hero, other) if d.chance(0.5) else passage(random, hero))
    paragraphs.append(f"{deed(Draft(random, 0.15), first, named=True)} {d.pick(ENDINGS)}")
    return "\n\n".join(paragraphs)


def lowered(sentence: str, name: Name) -> str:
    """The sentence inside another one: it keeps its capital only if it begins with the name."""
    return sentence if sentence.startswith(name.english) else sentence[0].lower() + sentence[1:]


def passage(random: Random, hero: Name) -> str:
    """Three to five sentences about somebody: the name first, then he or she."""
    d = Draft(random, 0.15)
    lines = [deed(Draft(random, 0.15), hero, named=True)]
    for _ in range(d.pick((2, 3, 4))):
        roll = d.pick(range(4))
        if roll == 0:
            lines.append(background(Draft(random, 0.15), hero))
        else:
            line = deed(Draft(random, 0.15), hero, named=False)
            lines.append(f"{d.pick(LINKS)} {lowered(line, hero)}" if roll == 1 else line)
    return " ".join(lines)


def deed(d: Draft, hero: Name, *, named: bool) -> str:
    """What somebody did, and perhaps why."""
    who = hero_phrase(d, hero, named)
    main = clause(d, who, Time(PERFECT), builders=DEEDS, negation="", adverbs=False)
    words = main.words
    for extension in (next_deed, circumstance, d.pick((because, contrast, meanwhile))):
        more = extension(d, main) if d.chance(0.3) else None
        if more is not None:
            words = concat(words, more)
    return written(d, words)


def background(d: Draft, hero: Name, builders: tuple[Builder, ...] = (mood, feeling, wishing)) -> str:
    """How somebody was or what he wanted."""
    who = hero_phrase(d, hero, named=False)
    time = Time(IMPERFECT)
    builder = d.pick(builders)
    return written(d, finite(d, who, builder(d, Scene(who, time)), time))


def dialogue(random: Random, hero: Name, other: Name) -> str:
    """A few lines of talk."""
    d = Draft(random, 0.15)
    answers = d.pick(("said", "answered"))
    lines = [
        f'"{d.pick(GREETINGS)}, {other.english}!" said {hero.english}. "{about_me(Draft(random, 0.15))}"',
        f'"{d.pick_new(REPLIES)}," {answers} {other.english}. "{about_me(Draft(random, 0.15))}"',
    ]
    if d.chance(0.5):
        lines.append(f'"Do you want to go to {d.pick(CITIES).english} with me?" asked {hero.english}.')
        lines.append(f'"{d.pick_new(REPLIES)}," said {other.english}.')
    return "\n".join(lines)


def about_me(d: Draft) -> str:
    """A sentence that somebody says of himself: how he feels, what he wants, what he will do."""
    who = pronoun(d, 0, d.pick("mf"))
    builder = d.pick((mood, feeling, wishing, hindered, *DEEDS[::3]))
    time = Time(FUTURE if builder in DEEDS else PRESENT)
    negation = "pas" if builder in (mood, feeling) and d.chance(0.3) else ""
    return written(d, finite(d, who, builder(d, Scene(who, time, bool(negation))), time, negation=negation))


def hero_phrase(d: Draft, hero: Name, named: bool) -> Nominal:
    return name_phrase(d, hero) if named else pronoun(d, 2, hero.gender)


def written(d: Draft, words: Phrase) -> str:
    return join(choose_articles([*words.english, (".", ())]))
