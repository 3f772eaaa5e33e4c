"""Summarization: from texts with summaries to a `Summarizer`.

G3; See et al. 2017. The files are those of translation: texts on one side, one in a line, summaries on the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from torch import nn

from regard.api.copying.summarizer import Summarizer
from regard.evaluation.rouge import corpus_rouge
from regard.models.presets import MODELS
from regard.recipes.tables import RecipeTables
from regard.tasks.copying.copying_task import DEMO_VALIDATION, CopyingTask, CopyingValidator
from regard.tasks.corpora import Corpora, read_pair_corpora
from regard.tasks.loading import one_tokenizer
from regard.tasks.task import Misfit
from regard.tasks.validation import LOSS, Measure, Validator
from regard.text.files.corpus import make_corpus
from regard.text.tokenizers.tokenizer import Tokenizer


class Summarization(CopyingTask):
    """Summarize texts."""

    name = "summarization"
    models: ClassVar = {"summarizer": MODELS["summarizer"]}
    forms = ("source", "pairs", "demo")
    needs = "pairs (a text and its summary), or source (texts) and target (summaries)"
    usage = "regard summarize -m FOLDER texts.txt"
    face = "summarizer"

    def read_corpora(self, recipe: RecipeTables) -> Corpora:
        data = recipe.data
        if data.demo:
            return demo_corpora(data.demo, data.validation or DEMO_VALIDATION, recipe.training.seed)
        return read_pair_corpora(recipe)

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        yield from super().misfits(recipe)
        if recipe.training.pointing:
            yield "training.pointing", "takes from several sentences, which the data does not name"

    def validator(self, *args: Any, **options: Any) -> Validator:
        return SummaryValidator(*args, **options)

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Summarizer:
        return Summarizer(model, one_tokenizer(model, source, target), info=info)


class SummaryValidator(CopyingValidator):
    """A validator that computes ROUGE of some summaries."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.measure = Measure("rougeL", "ROUGE-L") if self.recipe.decoding.sentences else LOSS

    def score(self, outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        return corpus_rouge(outputs, references)


def demo_corpora(count: int, held_out: int, seed: int) -> Corpora:
    """Return stories of the demo grammar with their summaries."""
    from regard.demo.stories import demo_stories

    train, validation = demo_stories("train", count, seed=seed), demo_stories("validation", held_out, seed=seed)
    sides = [([story.text for story in part], [story.summary for story in part]) for part in (train, validation)]
    return Corpora(make_corpus(*sides[0], name="demo stories"), make_corpus(*sides[1], name="demo stories, validation"))


TASK = Summarization()
