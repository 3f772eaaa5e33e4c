"""An answerer: it answers questions about a text, and points at the sentence that the answer is taken from.

G3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

from regard.api.copying.copying_model import CopyingModel, SourceSentences, into_sentences
from regard.errors import DataError
from regard.text.tokenizers.special_tokens import SEPARATOR


@dataclass(frozen=True)
class Answer:
    """The answer to a question about a text."""

    question: str
    text: str
    score: float  # log-probability of the answer
    sentences: list[str]  # of the text that was asked about
    shares: list[float]  # of the pointer's attention, for each sentence; they sum to 1
    tokens: list[str]  # that were written
    weights: list[list[float]]  # for each of them, the pointer's attention to each sentence

    @property
    def support(self) -> int:
        """The number of the sentence with the largest share, from 0: the answer is taken from it."""
        return max(range(len(self.shares)), key=self.shares.__getitem__)


class Answerer(CopyingModel):
    """Answers questions; `regard.load` makes one from a folder."""

    example = 'answerer.answer("It was cold. Emma went to the park.", "Where did Emma go?").text'

    def read_whole(self, text: str) -> SourceSentences:
        *story, question = into_sentences(text) or [None]
        if not story:
            raise DataError(
                "there is no story before the question: give a story, and the question as its last sentence"
            )
        content = "".join(part.text + part.blanks for part in story).rstrip()
        return self.read(content, then=f"{SEPARATOR} {question.text}")

    @overload
    def answer(self, stories: str, questions: str, *, beam: int = 1, max_tokens: int | None = None) -> Answer: ...

    @overload
    def answer(
        self, stories: str | list[str], questions: list[str], *, beam: int = 1, max_tokens: int | None = None
    ) -> list[Answer]: ...

    def answer(
        self, stories: str | list[str], questions: str | list[str], *, beam: int = 1, max_tokens: int | None = None
    ) -> Answer | list[Answer]:
        """Return the answer to a question about a story, or those to several questions.

        A list of questions is about one story, or about a list with a story for each. `beam` is the width of the
        search, 1 is greedy. `max_tokens` limits the length of an answer, by default to that of the story.
        """
        if isinstance(questions, str):
            if not isinstance(stories, str):
                raise TypeError("one question is about one story: give a text, or a list of questions")
            return self.answer(stories, [questions], beam=beam, max_tokens=max_tokens)[0]
        texts = [stories] * len(questions) if isinstance(stories, str) else stories
        if len(texts) != len(questions):
            raise DataError(f"there are {len(texts)} stories and {len(questions)} questions: give one story for each")
        if any(not question.strip() for question in questions):
            raise DataError("a question is empty: there is nothing to answer")
        pairs = list(zip(texts, questions, strict=True))
        sources = [self.read(story, then=f"{SEPARATOR} {question}") for story, question in pairs]
        written = self.write(sources, beam=beam, max_tokens=max_tokens)
        return [
            Answer(question, answer.text, answer.score, source.sentences, answer.shares, answer.tokens, answer.weights)
            for question, source, answer in zip(questions, sources, written, strict=True)
        ]
