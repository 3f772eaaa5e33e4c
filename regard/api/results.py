"""Results of a translator and a writer: texts, scores, attention and alignments.

m target tokens   n source tokens   M, N words
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from regard.api.html import alignment_html, translation_html
from regard.evaluation.perplexity import Likelihood
from regard.machine.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

    from regard.api.translation.tokens_and_words import JoinedTokens, SentenceTokens
    from regard.api.translator import Translator
    from regard.look.pictures.drawing.figures import Picture
    from regard.look.pictures.terminal import HeatMap
    from regard.text.tokenizers.tokenizer import Word


@dataclass(frozen=True, eq=False)
class Attention:
    """Attention weights of all layers and heads; H4. Row i is the distribution when output token i was produced.

    `layers` maps names to weights, as `regard.record` does: "decoder.2.cross" is (heads, m, n). Each property stacks
    all layers of one kind, or is None if the model has no such attention.
    """

    layers: Mapping[str, Tensor]

    @property
    def cross(self) -> Tensor | None:
        """(layers, heads, m, n): from target to source."""
        return self._stacked("decoder", "cross")

    @property
    def encoder(self) -> Tensor | None:
        """(layers, heads, n, n): within the source."""
        return self._stacked("encoder", "self")

    @property
    def decoder(self) -> Tensor | None:
        """(layers, heads, m, m): within the target; column 0 is the start token, column j is output token j - 1."""
        return self._stacked("decoder", "self")

    def _stacked(self, side: str, kind: str) -> Tensor | None:
        names = {name: name.split(".") for name in self.layers}  # the side, the block's number, the kind of attention
        maps = [self.layers[name] for name, parts in names.items() if (parts[0], parts[-1]) == (side, kind)]
        return torch.stack(maps) if maps else None


def _joined(parts: Sequence[Attention]) -> Attention:
    """Return the attention of a text from that of its parts; weights between different parts are 0."""
    names = parts[0].layers if parts else ()
    heads = {name: zip(*(part.layers[name] for part in parts), strict=True) for name in names}
    return Attention({name: torch.stack([torch.block_diag(*maps) for maps in each]) for name, each in heads.items()})


@dataclass(frozen=True, eq=False)
class Alignment:
    """A soft alignment: weights (M, N) with the words of its rows and columns; D16, H1.

    The last row and column are the end tokens. `pairs` contains (source word, target word) for each target word but the
    end token, by its weights and those of the other target words (`mutual_alignment`).
    """

    weights: Tensor
    source: list[str]
    target: list[str]
    pairs: list[tuple[int, int]]

    def __rich__(self) -> HeatMap:
        from regard.look.pictures.terminal import HeatMap

        return HeatMap(self.weights, self.source, self.target)

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return alignment_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `regard plot alignment` reads all of them except the pairs."""
        weights = [[round(weight, 4) for weight in row] for row in self.weights.tolist()]
        return {"source": self.source, "target": self.target, "weights": weights, "pairs": self.pairs}


@dataclass(eq=False)
class Translation:
    """A translated sentence.

    `tokens` are the subwords that the model wrote, the end token last; `source_tokens` those that it read. `score` is
    the sum of their log-probabilities. `alternatives` are the requested translations, best first, including this one.
    In a text that was translated in parts, each part ends with an end token, and the score is the sum over the parts.
    `attention` and `alignment()` run the model over the result once, when they are first used.
    """

    source: str
    text: str
    source_ids: list[int]
    ids: list[int]
    score: float
    finished: bool  # False if the text was truncated at max_tokens
    translator: Translator
    pieces: SentenceTokens | JoinedTokens  # tokens and words, which are found on first use
    alternatives: list[Translation] = field(default_factory=list)
    parts: list[Translation] = field(default_factory=list)  # of a long text, translated one by one

    @property
    def source_tokens(self) -> list[str]:
        return self.pieces.source_tokens

    @property
    def tokens(self) -> list[str]:
        return self.pieces.tokens

    @property
    def source_words(self) -> list[Word]:
        return self.pieces.source_words

    @property
    def words(self) -> list[Word]:
        return self.pieces.words

    @cached_property
    def attention(self) -> Attention:
        """The weights of every layer and head, with any search; each part of a long text is a diagonal block."""
        if self.parts:
            return _joined([part.attention for part in self.parts if part.ids])
        return self.translator.attention_of(self.source_ids, self.ids)

    def alignment(self, level: Literal["word", "piece"] = "word") -> Alignment:
        """Return the alignment of words, or of subwords, by the heads that config.json names."""
        return self.translator.alignment_of(self, level)

    @overload
    def plot(self, path: str | Path, *, level: Literal["word", "piece"] = "word") -> Path: ...

    @overload
    def plot(self, path: None = None, *, level: Literal["word", "piece"] = "word") -> Picture: ...

    def plot(self, path: str | Path | None = None, *, level: Literal["word", "piece"] = "word") -> Path | Picture:
        """Save the alignment matrix as PNG, SVG or PDF; without a path, return a picture that a notebook shows."""
        from regard.look.pictures.drawing.figures import save_or_show
        from regard.look.pictures.matrices import alignment_plot

        alignment = self.alignment(level)
        heads = self.translator.alignment_heads
        made = f"{'Mean of the attention' if len(heads) > 1 else 'Attention'} weights of {'; '.join(map(str, heads))}."
        return save_or_show(alignment_plot(alignment.weights, alignment.source, alignment.target, made=made), path)

    def explore(self, path: str | Path | None = None, *, state: str = "", show: bool = True) -> Path:
        """Write the explorer page with this translation as one .html file and open it; no server is needed.

        Without a path it is a temporary file; `state` as in `regard.look.write_page`. A long text has one trace per
        part.
        """
        from regard.look.page.single_file import open_page
        from regard.look.trace.tracing import trace_text

        parts = [part for part in self.parts or [self] if part.ids]
        traces = [trace_text(self.translator, part.source, target=part.ids) for part in parts]
        return open_page(traces, path, state, show)

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return translation_html(self)

    def __repr__(self) -> str:
        return f"Translation({self.text!r}, score={self.score:.2f})"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ScoredText:
    """A text and the log-probability of each of its tokens under the model, in nats."""

    text: str
    tokens: list[str]
    logps: list[float]

    @property
    def score(self) -> float:
        """log p(text)."""
        return math.fsum(self.logps)

    @property
    def likelihood(self) -> Likelihood:
        """Loss, perplexity and bits per character."""
        return Likelihood(-self.score, len(self.logps), len(self.text) or None)

    @property
    def perplexity(self) -> float:
        return self.likelihood.perplexity

    def __repr__(self) -> str:
        return f"ScoredText({self.text!r}, score={self.score:.2f}, perplexity={self.perplexity:.2f})"
