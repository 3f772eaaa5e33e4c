"""The output of a model as a function of its token vectors: what attribution methods differentiate and evaluate.

H4. The token vectors of a text enter the model in place of those that its embedding would look up. The outputs are the
log-probabilities of the tokens that the model wrote, or of the class of a text.

    B variants of the vectors   n input tokens   m outputs   d width of a token vector   V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.decoding.ensemble import Ensemble
from regard.decoding.model_step import log_probabilities
from regard.decoding.searches.search import Search
from regard.errors import UsageError, unknown_name
from regard.layers.embedding import Embedding
from regard.look.trace.model_run import Face, make_reading, write_text
from regard.look.trace.trace import Axis, Token
from regard.look.trace.tracing import make_axis
from regard.models.protocols import Decoder
from regard.text.tokenizers.special_tokens import special_tokens_of

Enter = Callable[[Tensor], Any]  # the part of a model that looks its tokens (B, n) up
Finish = Callable[[Any, int], Tensor]  # the rest of the model: what `Enter` returned, for B rows -> (B, m)


@dataclass(frozen=True)
class ScoredText:
    """A text as token vectors, and the outputs of a model as a function of them."""

    inputs: Axis  # n tokens
    outputs: Axis  # m tokens, or the class
    output: str  # the text, or the class
    ids: tuple[int, ...]  # the output tokens after a prompt; () for a class
    model: Any
    tokens: Tensor  # (n,)
    enter: Enter
    finish: Finish

    def vectors(self) -> Tensor:
        """Return the token vectors (n, d) as the embedding looks them up."""
        looked_up: list[Tensor] = []
        with torch.no_grad(), _each_look_up(self.model, looked_up.append):
            self.enter(self.tokens[None])
        if len(looked_up) != 1:
            raise UsageError(f"this model looks its tokens up {len(looked_up)} times; attribution needs one embedding")
        return looked_up[0][0]

    def mean_vector(self) -> Tensor:
        """Return the mean (d,) of the vectors of all tokens of the vocabulary, as the embedding looks them up."""
        used: list[Embedding] = []
        with torch.no_grad(), _each_look_up(self.model, lambda _: None, used):
            self.enter(self.tokens[None])
        (embedding,) = used
        return embedding.weight.detach().mean(0) * embedding.factor

    def score(self, vectors: Tensor) -> Tensor:
        """Return the log-probabilities (B, m) of the outputs, with these vectors (B, n, d) as the input."""
        rows = len(vectors)
        with _each_look_up(self.model, lambda _: vectors):
            entered = self.enter(self.tokens.expand(rows, -1))
        return self.finish(entered, rows)


@contextmanager
def _each_look_up(
    model: Any, take: Callable[[Tensor], Tensor | None], used: list[Embedding] | None = None
) -> Iterator[None]:
    """Pass what the embeddings of a model look up to `take`; a tensor that it returns replaces it.

    `used` gets the embeddings that were used.
    """

    def hook(embedding: Any, args: Any, vectors: Tensor) -> Tensor | None:
        if used is not None:
            used.append(embedding)
        return take(vectors)

    hooks = [module.register_forward_hook(hook) for module in model.modules() if isinstance(module, Embedding)]
    try:
        yield
    finally:
        for handle in hooks:
            handle.remove()


def score_text(
    face: Face,
    text: str,
    *,
    target: str | Sequence[int] | None = None,
    search: Search | None = None,
    label: str | None = None,
    max_tokens: int | None = None,
) -> ScoredText:
    """Prepare a text for attribution.

    Of a translator, the outputs are the tokens of its translation or of `target`, and the inputs those of the source.
    Of a language model, the inputs are the tokens before each output. Of a classifier, the output is its class, or
    `label`.
    """
    model: Any = face.model
    if isinstance(face.model, Ensemble) or hasattr(model, "pad_sources"):
        raise UsageError(
            "attribution needs a single translator, language model or classifier, not an ensemble or a copier"
        )
    if hasattr(face, "classify"):
        return _score_class(face, text, label)
    if not isinstance(face.model, Decoder):
        raise UsageError("a sentence encoder writes no token to attribute: use a translator, writer or classifier")
    if label is not None:
        raise UsageError("label is for classifiers; for a model that writes text, give target")
    reading = make_reading(face, text, (), max_tokens)
    _, ids, _ = write_text(reading, search, target, max_tokens)
    special, device = special_tokens_of(model), next(model.parameters()).device
    read = torch.tensor([[reading.start, *ids[:-1]]], device=device)  # (1, m)
    chosen = torch.tensor([ids], device=device)

    def probabilities(hidden: Tensor, rows: int) -> Tensor:
        return log_probabilities(model.project(hidden)).gather(2, chosen.expand(rows, -1)[..., None])[..., 0]

    def translate(encoded: Any, rows: int) -> Tensor:
        return probabilities(model.decode(read.expand(rows, -1), encoded), rows)

    outputs = make_axis(reading.tokenizer, ids, special=special)
    written = tuple(ids[len(reading.prefix) :])
    output = reading.tokenizer.decode([token for token in ids if token not in special.ends])
    if reading.source is None:
        inputs = make_axis(reading.tokenizer, read[0].tolist(), special=special)
        return ScoredText(inputs, outputs, output, written, model, read[0], model.decode, probabilities)
    source = torch.tensor(list(reading.source), device=device)
    inputs = make_axis(face.source_tokenizer, reading.source, reading.words, special)
    return ScoredText(inputs, outputs, output, written, model, source, model.encode, translate)


def _score_class(face: Any, text: str, label: str | None) -> ScoredText:
    chosen = face.classify(text).label if label is None else label
    if chosen not in face.labels:
        raise UsageError(unknown_name("label", chosen, tuple(face.labels)))
    special = special_tokens_of(face.model)
    ids, number = [*face.tokenizer.encode(text), special.end], face.labels.index(chosen)

    def probability(logits: Tensor, rows: int) -> Tensor:
        return log_probabilities(logits)[:, [number]]  # (B, 1)

    inputs = make_axis(face.tokenizer, ids, special=special)
    tokens = torch.tensor(ids, device=next(face.model.parameters()).device)
    return ScoredText(inputs, Axis((Token(chosen),)), chosen, (), face.model, tokens, face.model, probability)
