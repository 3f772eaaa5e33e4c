"""What a summarizer and an answerer share: write a text from a source, and measure what each sentence contributed.

m target tokens   n source tokens
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.api.html import describe_model, model_html, model_repr
from regard.api.saving import save_face
from regard.api.translation.split_long_text import SENTENCES, split_text
from regard.decoding.engine import generate_tokens
from regard.decoding.forced import forced_attention
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Hypothesis
from regard.errors import DataError, ModelError, UsageError
from regard.models.folder.weights_file import Storage
from regard.models.protocols import config_of
from regard.text.tokenizers.special_tokens import END, wrap
from regard.text.tokenizers.tokenizer import Tokenizer

POINTER = "pointer"  # the attention layer that copies


class SourceSentences(NamedTuple):
    """A source as a model reads it: the sentences of its text, and their tokens with all that follows."""

    sentences: list[str]
    lengths: list[int]  # tokens of each sentence
    ids: list[int]  # START if the model reads it, the sentences, what follows, and END
    first: int  # the place of the first sentence


class CopiedText(NamedTuple):
    """A text that a model wrote."""

    text: str
    score: float  # log-probability
    tokens: list[str]  # without END
    weights: list[list[float]]  # for each token, the pointer's attention to each sentence of the source

    @property
    def shares(self) -> list[float]:
        """How the attention is divided among the sentences, over all tokens; the shares sum to 1.

        What the pointer attends to after the sentences, such as a question, does not count.
        """
        mass = [sum(column) for column in zip(*self.weights, strict=True)]
        return [share / max(sum(mass), 1e-9) for share in mass]


class CopyingModel:
    """A pointer-generator with its tokenizer; the base of Summarizer and Answerer."""

    example = ""  # how to use it, for a notebook

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, *, info: Mapping[str, Any] | None = None) -> None:
        self.model: Any = model
        self.tokenizer = tokenizer
        self.info = dict(info or {})
        vocabulary = config_of(model).vocabularies[0]
        if tokenizer.size != vocabulary:
            raise ModelError(f"the tokenizer has {tokenizer.size} tokens, but the model {vocabulary}")

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        return save_face(self.model, folder, tokenizer=self.tokenizer, info=self.info, storage=storage)

    def __repr__(self) -> str:
        return model_repr(type(self).__name__, describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return model_html(type(self).__name__, describe_model(self.model, self.info), self.example)

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer of the text that is read: the same as that of the text that is written."""
        return self.tokenizer

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the text that is written."""
        return self.tokenizer

    def read_whole(self, text: str) -> SourceSentences:
        """Return all that the model reads as tokens; of an answerer, the last sentence of the text is the question."""
        return self.read(text)

    def read(self, text: str, *, then: str = "") -> SourceSentences:
        """Return a text as the model reads it, sentence by sentence; `then` follows the text."""
        parts = into_sentences(text)
        sentences = [part.text for part in parts]
        if not sentences:
            raise DataError("the text is empty: there is nothing to read")
        blanks = " " if then else ""
        tokens = self.tokenizer.encode_all([part.text + (part.blanks or blanks) for part in parts])
        start = config_of(self.model).source_start  # type: ignore[attr-defined]  # of a PointerGeneratorConfig
        content = [token for sentence in tokens for token in sentence] + (self.tokenizer.encode(then) if then else [])
        ids = wrap(content, start=start)
        self._check_length(len(ids))
        return SourceSentences(sentences, [len(sentence) for sentence in tokens], ids, int(start))

    def write(
        self, sources: Sequence[SourceSentences], *, beam: int = 1, max_tokens: int | None = None
    ) -> list[CopiedText]:
        """Return the text that the model writes for each source; `beam` 1 is greedy search."""
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
        hypotheses = generate_tokens(
            self.model,
            [source.ids for source in sources],
            search=Greedy() if beam == 1 else Beam(beam),
            max_tokens=[max_tokens or len(source.ids) for source in sources],
            allow_unknown=False,
        )
        return [self._copied(source, best) for source, (best, *_) in zip(sources, hypotheses, strict=True)]

    def _copied(self, source: SourceSentences, best: Hypothesis) -> CopiedText:
        """Return a hypothesis as text, with the attention of the pointer to each sentence."""
        written = [token for token in best.tokens if token != END] or [END]
        weights: Tensor = forced_attention(self.model, source.ids, written)[POINTER][0]  # (m, n)
        sentences = weights[:, source.first : source.first + sum(source.lengths)].split(source.lengths, dim=1)
        masses = torch.stack([sentence.sum(1) for sentence in sentences], dim=1)  # (m, sentences)
        return CopiedText(
            self.tokenizer.decode(best.tokens), best.score, self.tokenizer.pieces(written), masses.tolist()
        )

    def _check_length(self, tokens: int) -> None:
        """Raise DataError for a text without positions; warn about one that is longer than those of training."""
        limit, trained = config_of(self.model).max_positions, self.info.get("longest_source")
        if limit is not None and tokens > limit:
            raise DataError(f"a text has {tokens} tokens, but this model has positions for {limit} only: shorten it")
        if trained is not None and tokens > trained:
            warnings.warn(
                f"a text has {tokens} tokens, but the longest of training had {trained}: the result may be wrong",
                stacklevel=4,
            )


def into_sentences(text: str) -> list[Any]:
    """Return the sentences of a text, each with the blanks after it."""
    return [part for part in split_text(text, lambda part: SENTENCES.search(part) is None) if part.text.strip()]
