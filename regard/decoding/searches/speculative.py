"""Speculative decoding: a small model drafts tokens, and the large model checks several of them in one pass.

Leviathan et al. 2023, algorithm 1. The result is the large model's: with greedy search the same text, with sampling
texts of the same distribution, whatever the draft model predicts. It takes fewer passes of the large model, the more
often the draft is right. Texts are written one by one, because each has its own number of accepted tokens; for a batch
of many texts the plain search is faster.

    V vocabulary   g drafted tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.attention.cache import KVCache
from regard.decoding.ensemble import Ensemble
from regard.decoding.model_step import bar_special_tokens, encode, evaluating, log_probabilities
from regard.decoding.requests import Request
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import Rule, adapt_rule, apply_rules
from regard.decoding.searches.sample import Sample, invert, uniform
from regard.decoding.searches.search import Hypothesis, Inputs, Run, make_hypothesis
from regard.errors import UsageError
from regard.models.decoding_state import TransformerState
from regard.models.protocols import TextModel
from regard.text.tokenizers.special_tokens import special_tokens_of

GREEDY = Greedy()


@dataclass(frozen=True)
class Speculative:
    """Greedy search or sampling, in which a smaller model drafts up to `ahead` tokens at a time.

    `draft` is a model with the same vocabularies, or the translator or writer of one. Greedy search finds the same text
    as without a draft. A sample follows the same distribution, but another text comes out than without a draft.
    """

    draft: Any = field(repr=False)
    search: Greedy | Sample = GREEDY
    ahead: int = 4

    streams: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.search, Greedy | Sample):
            raise UsageError(f"only Greedy and Sample can use a draft, got {type(self.search).__name__}")
        if isinstance(self.ahead, bool) or not isinstance(self.ahead, int) or self.ahead < 1:
            raise UsageError(f"ahead must be a whole number from 1, got {self.ahead!r}")

    @property
    def rules(self) -> Sequence[Rule]:
        return self.search.rules

    @property
    def draft_model(self) -> TextModel:
        """The model that drafts."""
        return getattr(self.draft, "decoding_model", self.draft)

    def rows(self, alternatives: int) -> int:
        if alternatives != 1:
            raise UsageError(
                f"speculative decoding finds one text, and alternatives={alternatives}: search without a draft for more"
            )
        return 1

    def begin(self, inputs: Inputs) -> Run:
        """Run without a draft, side by side with other texts; `write` uses the draft."""
        return self.search.begin(inputs)

    def write(self, model: TextModel, requests: Sequence[Request], *, allow_unknown: bool) -> list[Hypothesis]:
        """Write the text of each request with the model, one after the other, with the help of the draft."""
        draft = self.draft_model
        if isinstance(model, Ensemble) or isinstance(draft, Ensemble):
            raise UsageError("speculative decoding takes single models, no ensembles")
        for name in ("vocabulary", "source_vocabulary", "target_vocabulary"):
            sizes = [getattr(each.config, name, None) for each in (model, draft)]
            if sizes[0] != sizes[1]:
                raise UsageError(
                    f"model and draft must have the same vocabularies, and {name} is {sizes[0]} and {sizes[1]}"
                )
        if special_tokens_of(model) != special_tokens_of(draft):
            raise UsageError("model and draft must have the same special tokens")
        with torch.inference_mode(), evaluating(model), evaluating(draft):
            runs = (_Speculation(model, draft, request, self.search, allow_unknown) for request in requests)
            return [run.write(self.ahead) for run in runs]


class Reader:
    """A model that reads one text, and continues from the part that it has read before."""

    def __init__(self, model: TextModel, request: Request) -> None:
        self.model, self.device = model, next(model.parameters()).device
        encoded: Any = 1 if request.source is None else encode(model, [request.source])
        self.state = model.start(encoded, len(request.prefix) + request.limit - 1)
        self.text: list[int] = []
        self.marks = {0: _fork(self.state)}  # of states that cannot be cut

    def after(self, text: Sequence[int], count: int = 1) -> Tensor:
        """The log-probabilities (count, V) of what follows the text, and the text without its last 1, 2, … tokens."""
        same = next((i for i, (a, b) in enumerate(zip(self.text, text, strict=False)) if a != b), len(self.text))
        start = self._rewind(min(same, len(text) - count))
        hidden = self.model.decode(torch.tensor([text[start:]], device=self.device), state=self.state)
        self.text = list(text)
        return log_probabilities(self.model.project(hidden[0, -count:]))

    def _rewind(self, length: int) -> int:
        """Go back to where at most so many tokens were read; how many these are."""
        if isinstance(self.state, TransformerState) and all(isinstance(cache, KVCache) for cache in self.state.caches):
            for cache in self.state.caches:
                cache.length = length  # what stands behind is written over
            return length
        self.marks[len(self.text)] = self.state
        self.marks = {tokens: mark for tokens, mark in self.marks.items() if tokens <= length}
        self.state = _fork(self.marks[max(self.marks)])
        return max(self.marks)


def _fork(state: Any) -> Any:
    """A copy of the state: what one of the two reads next does not change the other."""
    if isinstance(state, TransformerState):
        return state.repeat(1)
    return copy(state)  # a recurrent state is replaced when it moves on, not changed


class _Speculation:
    """One text at work."""

    def __init__(
        self, model: TextModel, draft: TextModel, request: Request, search: Greedy | Sample, allow_unknown: bool
    ) -> None:
        self.request, self.search, self.allow_unknown = request, search, allow_unknown
        self.special = special_tokens_of(model)
        self.rules = [adapt_rule(rule, self.special) for rule in search.rules]
        self.reader, self.guesser = Reader(model, request), Reader(draft, request)

    def write(self, ahead: int) -> Hypothesis:
        written: list[int] = []
        logps: list[float] = []
        while len(written) < self.request.limit and not self._has_end(written):
            guesses, chances = self._guess(written, min(ahead, self.request.limit - len(written) - 1))
            rows = self.reader.after([*self.request.prefix, *written, *guesses], len(guesses) + 1)  # (g + 1, V)
            for i, model_logps in enumerate(rows):
                expected = self._probabilities(model_logps, written)
                if i < len(guesses):
                    token, right = self._check(guesses[i], chances[i], expected, len(written))
                else:
                    token, right = self._draw(expected, len(written), 0), False
                written.append(token)
                logps.append(model_logps[token].item())
                if not right or self._has_end([token]):
                    break
        return make_hypothesis(written, logps, self._has_end(written[-1:]))

    def _has_end(self, tokens: Sequence[int]) -> bool:
        return any(token in self.special.ends for token in tokens)

    def _guess(self, written: Sequence[int], count: int) -> tuple[list[int], list[Tensor]]:
        """Return up to `count` tokens that the draft model predicts, and the distribution (V,) of each."""
        guesses: list[int] = []
        chances: list[Tensor] = []
        while len(guesses) < count and not self._has_end(guesses):
            text = [*written, *guesses]
            chances.append(self._probabilities(self.guesser.after([*self.request.prefix, *text])[0], text))
            guesses.append(self._draw(chances[-1], len(text), 0))
        return guesses, chances

    def _check(self, guess: int, chances: Tensor, expected: Tensor, step: int) -> tuple[int, bool]:
        """Return the guess and True, or another token and False; tokens then follow the distribution `expected` (V,).

        A guess with probability q in the draft and p in the model is accepted with probability min(1, p / q). Otherwise
        the token is drawn from max(0, p - q), which makes up for the tokens that the draft predicts too rarely.
        """
        if self._uniform(step, 1) * chances[guess] < expected[guess]:
            return guess, True
        return self._draw((expected - chances).clamp(min=0), step, 2), False

    def _probabilities(self, logps: Tensor, written: Sequence[int]) -> Tensor:
        """Return the distribution (V,) of the next token, without special tokens; greedy search leaves one token."""
        model_logps = logps = bar_special_tokens(logps[None], self.special, self.allow_unknown)
        if self.rules:
            prefix, text = (
                torch.tensor([part], dtype=torch.long, device=model_logps.device)
                for part in (self.request.prefix, written)
            )
            logps = apply_rules(self.rules, model_logps, prefix, text, self.special)
        if isinstance(self.search, Sample):
            return self.search.probabilities(logps)[0]
        return torch.zeros_like(logps[0]).index_fill(0, logps[0].argmax(), 1.0)

    def _draw(self, chances: Tensor, step: int, stream: int) -> int:
        return int(invert(chances[None], self._uniform(step, stream)))

    def _uniform(self, step: int, stream: int) -> Tensor:
        """A number of [0, 1), (1,), for this step of this input; there are three, for guess, check and correction."""
        seed = self.search.seed if isinstance(self.search, Sample) else 0
        number = torch.tensor([self.request.number], device=self.reader.device)
        return uniform(seed, number, torch.zeros_like(number), 3 * step + stream)
