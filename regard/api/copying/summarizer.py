"""A summarizer: it writes the summary of a text, and says which sentences it is taken from.

G3; See et al. 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

from regard.api.copying.copying_model import CopyingModel


@dataclass(frozen=True)
class Summary:
    """The summary of a text."""

    source: str
    text: str
    score: float  # log-probability of the summary
    sentences: list[str]  # of the source
    shares: list[float]  # of the pointer's attention, for each sentence; they sum to 1
    tokens: list[str]  # that were written
    weights: list[list[float]]  # for each of them, the pointer's attention to each sentence


class Summarizer(CopyingModel):
    """Summarizes texts; `regard.load` makes one from a folder."""

    example = 'summarizer.summarize("…").text'

    @overload
    def summarize(self, texts: str, *, beam: int = 1, max_tokens: int | None = None) -> Summary: ...

    @overload
    def summarize(
        self, texts: list[str] | tuple[str, ...], *, beam: int = 1, max_tokens: int | None = None
    ) -> list[Summary]: ...

    def summarize(
        self, texts: str | list[str] | tuple[str, ...], *, beam: int = 1, max_tokens: int | None = None
    ) -> Summary | list[Summary]:
        """Return the summary of each text; one text gives one result.

        `beam` is the width of the search, 1 is greedy. `max_tokens` limits the length, by default to that of the text.
        """
        if isinstance(texts, str):
            return self.summarize([texts], beam=beam, max_tokens=max_tokens)[0]
        sources = [self.read(text) for text in texts]
        written = self.write(sources, beam=beam, max_tokens=max_tokens)
        return [
            Summary(
                text, summary.text, summary.score, source.sentences, summary.shares, summary.tokens, summary.weights
            )
            for text, source, summary in zip(texts, sources, written, strict=True)
        ]
