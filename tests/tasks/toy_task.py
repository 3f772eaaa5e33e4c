"""A task of its own, as a user would write one: which class does a line of text belong to?

docs/develop/extend.md shows a shorter form of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models.config import SIZE, Config, vocabulary_of
from regard.recipes.tables import TrainingRecipe
from regard.settings import number
from regard.tasks.losses import Loss, Objective, Together
from regard.tasks.translation import TranslationTask
from regard.tasks.validation import Measure, Validator
from regard.text.batches.batch import Batch
from regard.text.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class LineClassifierConfig(Config):
    source_vocabulary: int = vocabulary_of("source")
    target_vocabulary: int = vocabulary_of("target")
    dim: int = number(32, rule=SIZE)

    @property
    def kind(self) -> str:
        return "line-classifier"

    @property
    def width(self) -> int:
        return self.dim


class LineClassifier(nn.Module):
    """The mean of a line's token vectors, and a linear layer."""

    def __init__(self, config: LineClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.EmbeddingBag(config.source_vocabulary, config.dim, padding_idx=config.pad_id)
        self.output = nn.Linear(config.dim, config.target_vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, n) -> scores of the classes (B, V)."""
        return self.output(self.embedding(tokens))


def classification_loss(model: LineClassifier, batch: Batch, *, smoothing: float) -> Loss:
    """Cross-entropy of the class, which is the first token of the target."""
    assert batch.source is not None
    scores, labels = model(batch.source), batch.labels[:, 0]
    total = F.cross_entropy(scores, labels, label_smoothing=smoothing, reduction="sum")
    nll = F.cross_entropy(scores.detach(), labels, reduction="sum")
    return Loss(total, nll, len(labels), (scores.argmax(1) == labels).sum())


class ClassifyLines(TranslationTask):
    """Lines of text and their classes, given as pairs: read and batched as for translation."""

    name = "line classification"
    models: ClassVar = {"line-classifier": (LineClassifierConfig, LineClassifier)}
    usage = "python classify.py FOLDER"
    face = "classifier"
    loss_unit = "samples"
    predicts_tokens = False
    label_smoothing = (0.0, "few classes")

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return partial(classification_loss, smoothing=training.label_smoothing or 0.0)

    def validator(self, *args: Any, **options: Any) -> Validator:
        return AccuracyValidator(*args, **options)

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Classifier:
        return Classifier(model, source, target)


class AccuracyValidator(Validator):
    measure = Measure("accuracy", "accuracy")

    def quality(self, loss: float, accuracy: float) -> dict[str, float]:
        return {"accuracy": accuracy}

    def summary(self) -> str:
        return f"accuracy {self.scores['accuracy']:.1%}"


class Classifier:
    """What `regard.load` returns."""

    def __init__(self, model: Any, source: Tokenizer, target: Tokenizer) -> None:
        self.model, self.source, self.target = model, source, target

    def classify(self, line: str) -> str:
        tokens = torch.tensor([self.source.encode(line)])
        with torch.inference_mode():
            return self.target.decode([int(self.model(tokens).argmax())])
