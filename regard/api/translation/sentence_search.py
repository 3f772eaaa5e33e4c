"""Search for the translations of sentences: length limits, placeholders, and a second search for degenerate texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from regard.api.translation.default_search import required_tokens
from regard.api.translation.degenerate_output import is_degenerate, repetition_end
from regard.api.translation.placeholder_reader import carry_rule
from regard.api.translation.source_text import Source
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.logit_rules import EachOnce
from regard.decoding.searches.search import Hypothesis, Search, cut_off, with_rule
from regard.text.tokenizers.special_tokens import DEFAULT, UNKNOWN, SpecialTokens
from regard.text.tokenizers.tokenizer import Tokenizer

# The default limit of a translation: no language needs twice the tokens of another, and short sentences get some extra.
LENGTH_FACTOR, EXTRA_TOKENS = 2, 20


class SentenceRequest(NamedTuple):
    """A sentence to translate, the first tokens of its translation, and phrases that it must contain."""

    source: Source
    start: list[int]
    phrases: list[list[int]]
    number: int  # determines the random numbers of this sentence
    has_prefix: bool = False  # whether its first tokens are words


def carrying_rule(source: Source, tokenizer: Tokenizer) -> EachOnce | None:
    """Return the rule by which a translation contains each carried span of this source once; None if there are none."""
    return carry_rule(tokenizer, source.carried, unknown=UNKNOWN in source.ids) if source.carried else None


def carrying_search(source: Source, search: Search, tokenizer: Tokenizer) -> Search:
    """Return the search for a translation that contains each carried span of this source once."""
    rule = carrying_rule(source, tokenizer)
    return search if rule is None else with_rule(search, rule)


@dataclass(frozen=True)
class SentenceSearch:
    """A search with one model; calling it returns the hypotheses of each sentence, without their first tokens."""

    model: Any
    tokenizer: Tokenizer  # of the target
    search: Search
    alternatives: int
    max_tokens: int | None
    max_positions: int | None  # of a model with learned positions
    guard: bool  # whether degenerate texts are searched again
    special: SpecialTokens = DEFAULT

    def __call__(self, requests: Sequence[SentenceRequest]) -> list[list[Hypothesis]]:
        """Search for all sentences; each contains its placeholders once."""
        results = self._generate(requests, allow_nonsense=True)
        if not self.guard:
            return results
        degenerate = [
            i
            for i, request in enumerate(requests)
            if is_degenerate(results[i][0], request.source, self.tokenizer, self.special, request.has_prefix)
        ]
        retried = self._generate([requests[i] for i in degenerate], allow_nonsense=False) if degenerate else []
        for i, hypotheses in zip(degenerate, retried, strict=True):
            # If the same words are repeated with other tokens, the text ends after their first copy, unless it must
            # contain phrases or have a minimum length.
            keep = bool(requests[i].phrases or required_tokens(self.search))
            ends = [None if keep else repetition_end(x, requests[i].source, self.tokenizer) for x in hypotheses]
            results[i] = [cut_off(hypothesis, end) for hypothesis, end in zip(hypotheses, ends, strict=True)]
        return results

    def _generate(self, requests: Sequence[SentenceRequest], *, allow_nonsense: bool) -> list[list[Hypothesis]]:
        has_start = any(request.start for request in requests)
        has_phrases = any(request.phrases for request in requests)
        return generate_tokens(
            self.model,
            [request.source.ids for request in requests],
            search=self.search,
            prefixes=[request.start for request in requests] if has_start else None,
            constraints=[request.phrases for request in requests] if has_phrases else None,
            max_tokens=[self._limit(request) for request in requests],
            alternatives=self.alternatives,
            allow_nonsense=allow_nonsense,
            numbers=[request.number for request in requests],
            rules=[carrying_rule(request.source, self.tokenizer) for request in requests],
        )

    def _limit(self, request: SentenceRequest) -> int:
        """Return how many tokens may follow the first ones."""
        needed = max(required_tokens(self.search), sum(map(len, request.phrases))) + 1  # with END
        limit = self.max_tokens
        if limit is None:
            limit = max(LENGTH_FACTOR * len(request.source.ids) + EXTRA_TOKENS, needed)
        return limit if self.max_positions is None else min(limit, self.max_positions - len(request.start))
