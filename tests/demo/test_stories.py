"""Stories: the questions have one answer, the parts are disjoint, and the sentences behind the answers are right."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from regard.demo.stories import COUNTS, DAYS, KINDS, PARTS, PEOPLE, PLACES, demo_questions, demo_stories
from regard.errors import UsageError

STORIES = {part: demo_stories(part, 150, seed=3) for part in PARTS}
EVERY = [story for stories in STORIES.values() for story in stories]
VISIT = re.compile(r"(?:On (\w+), )?(\w+) went to (the \w+)(?: on (\w+))?\.")
PURCHASE = re.compile(r"(She|He) (bought (\w+)|did not buy any) (\w+) there\.")


def facts(sentences: tuple[str, ...]) -> list[dict[str, Any]]:
    """Read a story again, by patterns: each visit with its sentence, and what was bought there or not."""
    visits: list[dict[str, Any]] = []
    for number, sentence in enumerate(sentences):
        if match := VISIT.fullmatch(sentence):
            day, person, place, last_day = match.groups()
            visits.append({"person": person, "place": place, "day": day or last_day, "at": number})
        elif match := PURCHASE.fullmatch(sentence):
            visits[-1] |= {"thing": match[4], "count": match[3], "bought_at": number}
    return visits


def answer_of(question: str, visits: list[dict[str, Any]]) -> set[tuple[str, int]]:
    """Answer a question from the facts, independently of the generator: every answer with its sentence."""
    words = question.removesuffix("?").split()
    place = next((place for place in PLACES if question.endswith(f"{place}?")), None)
    person = next((word for word in words if word in PEOPLE), None)
    theirs = [visit for visit in visits if visit["person"] == person]
    if question.startswith("Who"):
        return {(visit["person"], visit["at"]) for visit in visits if visit["place"] == place}
    if question.startswith("When"):
        return {(f"on {visit['day']}", visit["at"]) for visit in theirs if visit["place"] == place}
    if words[-1] in DAYS:
        return {(visit["place"], visit["at"]) for visit in theirs if visit["day"] == words[-1]}
    if question.startswith("Where"):
        (i,) = (i for i, visit in enumerate(theirs) if visit["place"] == place)
        other = theirs[i - 1 if "before" in words else i + 1]
        return {(other["place"], other["at"])}
    if question.startswith("How many"):
        return {(visit["count"], visit["bought_at"]) for visit in theirs if visit.get("thing") == words[2]}
    if question.startswith("Did"):
        bought = [visit for visit in theirs if visit.get("thing") == words[-1]]
        return {("yes" if visit["count"] else "no", visit["bought_at"]) for visit in bought}
    return {(visit["thing"], visit["bought_at"]) for visit in theirs if "thing" in visit and not visit["count"]}


def test_each_question_has_one_answer_in_the_sentence_it_names() -> None:
    for story in EVERY:
        visits = facts(story.sentences)
        for asked in story.questions:
            assert answer_of(asked.question, visits) == {(asked.answer, asked.support)}, (story.text, asked)


def test_the_summary_tells_what_the_first_person_did() -> None:
    for story in EVERY:
        visits = facts(story.sentences)
        theirs = [visit for visit in visits if visit["person"] == visits[0]["person"]]
        told = [sentence for sentence in story.summary.split(". ") if sentence]
        assert len(told) == len(theirs)
        used = []
        for sentence, visit in zip(told, theirs, strict=True):
            assert visit["place"] in sentence and visit["day"] in sentence
            used.append(visit["at"])
            if visit.get("count"):
                assert f"bought {visit['count']} {visit['thing']}" in sentence
                used.append(visit["bought_at"])
            else:
                assert "bought" not in sentence
        assert story.used == tuple(used)


def test_parts_share_no_story_and_seeds_make_others() -> None:
    texts = {part: {story.text for story in stories} for part, stories in STORIES.items()}
    assert sum(map(len, texts.values())) == 5 * 150 == len(set().union(*texts.values()))
    other = {story.text for story in demo_stories("train", 3000, seed=4)}
    assert not other & (texts["validation"] | texts["test"])
    assert demo_stories("test", 5, seed=3) == STORIES["test"][:5]


def test_unseen_combinations_never_occur_elsewhere() -> None:
    pairs = {
        part: {(visit["person"], visit["place"]) for story in stories for visit in facts(story.sentences)}
        for part, stories in STORIES.items()
    }
    usual = pairs["train"] | pairs["validation"] | pairs["test"]
    assert not usual & pairs["combinations"] and len(pairs["combinations"]) > 80
    lengths = {part: [len(facts(story.sentences)) for story in stories] for part, stories in STORIES.items()}
    assert set(lengths["longer"]) == {7} and set(lengths["train"]) == {2, 3, 4, 5}


def test_all_kinds_of_questions_are_asked() -> None:
    asked = demo_questions("train", 2000, seed=1)
    counts = Counter(question.kind for _, question in asked)
    assert set(counts) == set(KINDS) and min(counts.values()) > 150
    assert {"yes", "no", *COUNTS, *PLACES, *PEOPLE} <= {question.answer for _, question in asked}
    assert all(question in story.questions for story, question in asked)
    assert demo_questions("train", 2000, seed=1) == asked


def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match="part of the stories"):
        demo_stories("trian", 1)
    with pytest.raises(UsageError, match="at least 0"):
        demo_questions("train", -1)
