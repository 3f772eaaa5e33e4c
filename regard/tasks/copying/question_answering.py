"""Question answering: from stories with questions and answers to an `Answerer`.

G3. The source is the story, a separator, and the question; the target is the answer. Files are JSON lines with the keys
"story", "question" and "answer", and perhaps "support", the sentence of the story that has the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from regard.api.copying.answerer import Answerer
from regard.errors import UsageError
from regard.evaluation.answers import answer_scores
from regard.models.presets import MODELS
from regard.recipes.tables import RecipeTables
from regard.tasks.copying.copying_task import DEMO_VALIDATION, CopyingTask, CopyingValidator
from regard.tasks.corpora import Corpora, split_pairs
from regard.tasks.loading import one_tokenizer
from regard.tasks.task import Misfit, Tokenizers
from regard.tasks.validation import LOSS, Measure, Validator
from regard.text.batches.pairs import PairData
from regard.text.files.corpus import Corpus, Policy, make_corpus, read_questions
from regard.text.files.rows import Span
from regard.text.tokenizers.special_tokens import SEPARATOR
from regard.text.tokenizers.tokenizer import Tokenizer


class QuestionAnswering(CopyingTask):
    """Answer questions about a story."""

    name = "question answering"
    models: ClassVar = {"answerer": MODELS["answerer"]}
    forms = ("pairs", "demo")
    needs = 'pairs (a .jsonl file with "story", "question" and "answer" in each line)'
    usage = 'regard answer -m FOLDER story.txt "Who …?"'
    face = "answerer"

    def read_corpora(self, recipe: RecipeTables) -> Corpora:
        data, seed = recipe.data, recipe.training.seed
        if data.demo:
            return demo_corpora(data.demo, data.validation or DEMO_VALIDATION, seed)
        faults: Policy = data.faults  # type: ignore[assignment]  # checked
        train = read_questions(data.pairs, separator=SEPARATOR, faults=faults)
        if data.validation_pairs:
            return Corpora(train, read_questions(data.validation_pairs, separator=SEPARATOR, faults=faults))
        return split_pairs(train, data.validation, seed)

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        yield from super().misfits(recipe)
        if recipe.training.pointing and recipe.tokenizer.sampling:
            yield "tokenizer.sampling", "with training.pointing knows the supporting tokens of one segmentation only"
        if recipe.data.columns is not None:
            yield "data.columns", "reads the keys story, question and answer"

    def make_data(
        self, recipe: RecipeTables, corpus: Corpus, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> PairData:
        data = super().make_data(recipe, corpus, tokenizers, training=training, cache=cache)
        if training and recipe.training.pointing:
            data.support = supporting_tokens(recipe, corpus, tokenizers[0])
        return data

    def validator(self, *args: Any, **options: Any) -> Validator:
        return AnswerValidator(*args, **options)

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Answerer:
        return Answerer(model, one_tokenizer(model, source, target), info=info)


class AnswerValidator(CopyingValidator):
    """A validator that counts right answers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.measure = Measure("exact", "exact match") if self.recipe.decoding.sentences else LOSS

    def score(self, outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        return answer_scores(outputs, references)


def supporting_tokens(recipe: RecipeTables, corpus: Corpus, tokenizer: Tokenizer) -> torch.Tensor:
    """Return (N, 2): the first token of each supporting sentence and the first one after it; equal if unknown."""
    if corpus.support is None:
        raise UsageError(
            f"training.pointing: {corpus.shards[0][1]} does not name the sentence that an answer comes from: "
            'add "support" to its lines, or leave training.pointing out'
        )
    spans = list(zip(corpus.source, corpus.support, strict=True))
    before = tokenizer.encode_all([source[:first] for source, (first, _) in spans])
    until = tokenizer.encode_all([source[:end] for source, (_, end) in spans])
    counts = [(len(start), len(whole)) for start, whole in zip(before, until, strict=True)]
    return torch.tensor(counts).view(-1, 2) + bool(recipe.model.get("source_start"))


def demo_corpora(count: int, held_out: int, seed: int) -> Corpora:
    """Return questions about stories of the demo grammar."""
    return Corpora(_demo_corpus("train", count, seed), _demo_corpus("validation", held_out, seed))


def _demo_corpus(part: str, count: int, seed: int) -> Corpus:
    from regard.demo.stories import demo_questions

    pairs = demo_questions(part, count, seed=seed)
    sources = [f"{story.text} {SEPARATOR} {asked.question}" for story, asked in pairs]
    corpus = make_corpus(sources, [asked.answer for _, asked in pairs], name=f"demo questions, {part}")
    return replace(corpus, support=[_span(story.sentences, asked.support) for story, asked in pairs])


def _span(sentences: Sequence[str], number: int) -> Span:
    """Return the first character of a sentence in its story, and that of the next sentence."""
    first = sum(len(sentence) + 1 for sentence in sentences[:number])
    return first, first + len(sentences[number]) + 1


TASK = QuestionAnswering()
