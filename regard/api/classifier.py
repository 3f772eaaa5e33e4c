"""A text classifier with its tokenizer and labels: it says which class a text belongs to, and what it looked at.

A3, D2.

    N texts   n tokens   C classes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from regard.api.html import describe_model, model_html, model_repr
from regard.api.saving import save_face
from regard.decoding.model_step import evaluating
from regard.errors import DataError, ModelError
from regard.models.folder.weights_file import Storage
from regard.models.protocols import config_of
from regard.text.tokenizers.labels import LabelTokenizer
from regard.text.tokenizers.special_tokens import END, pad_batch
from regard.text.tokenizers.tokenizer import Tokenizer

BATCH_TOKENS = 8192  # of one forward pass, including padding


@dataclass(frozen=True)
class Classification:
    """The class of a text."""

    text: str
    label: str
    probabilities: dict[str, float]  # of all labels, the most probable first
    tokens: list[str]  # of the text, with the end token
    weights: list[float]  # how much each token contributes to the pooled vector; they sum to 1

    @property
    def probability(self) -> float:
        """The probability of the label."""
        return self.probabilities[self.label]


class Classifier:
    """Classifies texts; `regard.load` makes one from a folder."""

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, labels: LabelTokenizer, *, info: Mapping[str, Any] | None = None
    ) -> None:
        self.model: Any = model
        self.tokenizer = tokenizer
        self.label_tokenizer = labels
        self.info = dict(info or {})
        config: Any = config_of(model)
        if tokenizer.size > config.source_vocabulary:
            raise ModelError(f"the tokenizer has {tokenizer.size} tokens, but the model {config.source_vocabulary}")
        if len(labels.labels) != config.classes:
            raise ModelError(f"there are {len(labels.labels)} labels, but the model has {config.classes} classes")

    @property
    def labels(self) -> list[str]:
        """All labels, in the order of the model's classes."""
        return list(self.label_tokenizer.labels)

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        tokenizers = (self.tokenizer, self.label_tokenizer)
        return save_face(self.model, folder, tokenizer=tokenizers, info=self.info, storage=storage)

    def __repr__(self) -> str:
        return model_repr("Classifier", describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return model_html("Classifier", describe_model(self.model, self.info), 'classifier.classify(["…", "…"])')

    @overload
    def classify(self, texts: str) -> Classification: ...

    @overload
    def classify(self, texts: list[str] | tuple[str, ...]) -> list[Classification]: ...

    def classify(self, texts: str | list[str] | tuple[str, ...]) -> Classification | list[Classification]:
        """Return the class of each text, with probabilities and pooling weights; one text gives one result."""
        if isinstance(texts, str):
            return self.classify([texts])[0]
        tokens = [[*ids, END] for ids in self.tokenizer.encode_all(list(texts))]
        limit, longest = config_of(self.model).max_positions, max(map(len, tokens), default=0)
        if limit is not None and longest > limit:
            raise DataError(f"a text has {longest} tokens, but this model has positions for {limit} only: shorten it")
        results: list[Classification | None] = [None] * len(tokens)
        device = next(self.model.parameters()).device
        # Texts of similar length form a batch, to avoid padding.
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        with torch.inference_mode(), evaluating(self.model):
            while order:
                rows = max(1, BATCH_TOKENS // len(tokens[order[-1]]))
                batch, order = order[-rows:], order[:-rows]
                logits, weights = self.model.classify(pad_batch([tokens[i] for i in batch]).to(device))
                for i, p, w in zip(batch, logits.double().softmax(-1).tolist(), weights.tolist(), strict=True):
                    results[i] = self._result(texts[i], tokens[i], p, w)
        return [result for result in results if result is not None]

    def _result(self, text: str, tokens: list[int], p: list[float], weights: list[float]) -> Classification:
        ranked = sorted(zip(self.labels, p, strict=True), key=lambda entry: -entry[1])
        return Classification(text, ranked[0][0], dict(ranked), self.tokenizer.pieces(tokens), weights[: len(tokens)])
