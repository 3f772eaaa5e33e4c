"""What a search is: it begins a run on a batch, and the run chooses the next token of each row until all are done.

E8. Also here: what comes out, and the rows that go on alone, which greedy search and sampling share.

    B inputs   R rows (hypotheses in the decoder)   V vocabulary   T longest text   K candidates
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.observer import Observer, StepRecord
from regard.errors import ModelError, UsageError
from regard.text.tokenizers.special_tokens import END


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text that a search found: what follows the prefix, which is not repeated and not scored."""

    tokens: list[int]  # with END when finished
    logps: list[float]  # the model's log-probability of each token
    score: float  # their sum
    ranking: float  # what it was ranked by: the score after rules and length penalty; the score where nothing ranks
    finished: bool  # END was written before max_tokens was reached


class Inputs(NamedTuple):
    """The inputs of one batch as a search sees them."""

    numbers: Tensor  # (B,) the place of each in the caller's list
    limits: Tensor  # (B,) the most tokens of each
    longest: int  # the largest of the limits
    alternatives: int  # hypotheses wanted of each
    dtype: torch.dtype  # of log-probabilities
    constraints: Sequence[Sequence[Sequence[int]]] = ()  # phrases that the texts of each must hold; (): none anywhere


class Choice(NamedTuple):
    """What the model is fed next. No rows: everything is done."""

    rows: Tensor | None  # (R',) the rows of the state that go on, repeated and reordered as need be; None: all, as is
    tokens: Tensor  # (R',)
    inputs: Tensor | None = None  # (B',) the inputs that go on, by their place in the run; None: all


class Run(Protocol):
    """A search at work on one batch."""

    together: bool  # whether the rows of an input go on and leave together

    @property
    def numbers(self) -> Tensor:
        """Those of the inputs that are not done, once or for each of their rows."""

    def choose(self, logps: Tensor, own: Tensor, observer: Observer | None) -> Choice:
        """Choose by the log-probabilities (R, V) of the next token of each row, as rules left them; -inf bars a token.

        `own` (R, V) are the model's, which are written down.
        """

    def written(self) -> Tensor:
        """What each row has written so far, (R, T)."""

    def results(self) -> dict[int, list[Hypothesis]]:
        """What was found for each input that is done, by its number."""


class Search(Protocol):
    """The settings of a search: Greedy, Sample, Beam, MinimumRisk, Speculative."""

    streams: ClassVar[bool]  # whether a token is final when it is chosen

    @property
    def rules(self) -> Sequence[Rule]:
        """What it may write."""

    def rows(self, alternatives: int) -> int:
        """How many rows an input takes; a UsageError where the search cannot give so many alternatives."""

    def begin(self, inputs: Inputs) -> Run:
        """A run on these inputs, whose rows stand side by side: the first input's, then the second's, …"""


class Picked(NamedTuple):
    """The next token of each row, and how chance had it."""

    tokens: Tensor  # (R,)
    draws: Tensor | None = None  # (R,)
    probabilities: Tensor | None = None  # (R, V)


class Lines:
    """A run of rows that go on alone and leave one by one, each an input of its own. `pick` is the search.

    It gets the log-probabilities (R, V), the number of each row's input, which alternative it is, and the step.
    """

    together = False

    def __init__(self, inputs: Inputs, pick: Callable[[Tensor, Tensor, Tensor, int], Picked]) -> None:
        if any(inputs.constraints):
            raise UsageError("only a beam keeps constraints: search with Beam")
        batch, each = len(inputs.numbers), inputs.alternatives
        device = inputs.numbers.device
        self.pick, self.length = pick, 0
        self.numbers = inputs.numbers.repeat_interleave(each)  # (R,)
        self.alternatives = torch.arange(each, device=device).repeat(batch)  # (R,)
        self.limits = inputs.limits.repeat_interleave(each)  # (R,)
        self.tokens = torch.empty(batch * each, inputs.longest, dtype=torch.long, device=device)  # (R, T)
        self.logps = torch.empty(batch * each, inputs.longest, dtype=inputs.dtype, device=device)  # (R, T)
        self.closed: dict[tuple[int, int], Hypothesis] = {}

    def choose(self, logps: Tensor, own: Tensor, observer: Observer | None) -> Choice:
        picked = self.pick(logps, self.numbers, self.alternatives, self.length)
        self.tokens[:, self.length] = picked.tokens
        self.logps[:, self.length] = own.gather(1, picked.tokens[:, None])[:, 0]
        self.length += 1
        ended = picked.tokens == END
        done = ended | (self.limits == self.length)
        if observer is not None:
            observer.step(self._record(logps, own, picked, ended, done, observer.candidates))
        if not bool(done.any()):  # the one wait for the device
            return Choice(None, picked.tokens)
        self._close(done, ended)
        stay = (~done).nonzero()[:, 0]
        self.numbers, self.alternatives, self.limits = self.numbers[stay], self.alternatives[stay], self.limits[stay]
        self.tokens, self.logps = self.tokens[stay], self.logps[stay]
        return Choice(stay, picked.tokens[stay], stay)

    def written(self) -> Tensor:
        return self.tokens[:, : self.length]

    def results(self) -> dict[int, list[Hypothesis]]:
        found: dict[int, list[Hypothesis]] = {}
        for number, alternative in sorted(self.closed):
            found.setdefault(number, []).append(self.closed[number, alternative])
        return found

    def _close(self, done: Tensor, ended: Tensor) -> None:
        length = self.length
        columns = (self.numbers, self.alternatives, ended, self.tokens[:, :length], self.logps[:, :length])
        for number, alternative, finished, tokens, logps in zip(*(c[done].tolist() for c in columns), strict=True):
            self.closed[number, alternative] = close(tokens, logps, finished)

    def _record(
        self, logps: Tensor, own: Tensor, picked: Picked, ended: Tensor, done: Tensor, candidates: int
    ) -> StepRecord:
        chosen = picked.tokens[:, None]
        before = self.logps[:, : self.length - 1].sum(1, keepdim=True)  # (R, 1)
        order = logps if picked.probabilities is None else picked.probabilities
        tokens = best(order, min(candidates, logps.shape[1]))[1]  # (R, K)
        # Where chance took a token that is not among the best K, it stands last: all others are more likely.
        missed = (tokens != chosen).all(1)
        tokens[:, -1] = torch.where(missed, picked.tokens, tokens[:, -1])
        hit = tokens == chosen
        gained = own.gather(1, tokens).masked_fill(logps.gather(1, tokens) == -math.inf, -math.inf)
        used = None if picked.probabilities is None else picked.probabilities.gather(1, tokens).cpu()
        return StepRecord(
            step=self.length - 1,
            inputs=self.numbers.cpu(),
            alternatives=self.alternatives.cpu(),
            tokens=tokens.cpu(),
            logps=gained.cpu(),
            scores=(before + gained).cpu(),
            parents=torch.zeros_like(tokens, device="cpu"),
            kept=torch.where(ended, -1, hit.byte().argmax(1))[:, None].cpu(),
            ended=(hit & ended[:, None]).cpu(),
            done=done.cpu(),
            draws=None if picked.draws is None else picked.draws.cpu(),
            probabilities=used,
        )


def close(tokens: list[int], logps: list[float], finished: bool, ranking: float | None = None) -> Hypothesis:
    """The hypothesis of these tokens; its ranking is the score where none is given."""
    score = math.fsum(logps)
    if not math.isfinite(score):
        raise ModelError(
            "the model gave NaN or infinity in place of a probability: its weights are damaged, its training diverged, "
            "or its numbers outgrew the dtype (float16 ends at 65504; try bfloat16 or float32)"
        )
    return Hypothesis(tokens, logps, score, score if ranking is None else ranking, finished)


def cut_off(text: Hypothesis, length: int | None) -> Hypothesis:
    """Its first `length` tokens, ranked as the whole was; None: the whole."""
    if length is None:
        return text
    logps = text.logps[:length]
    return Hypothesis(text.tokens[:length], logps, math.fsum(logps), text.ranking, finished=False)


def best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest of each row (…, N) and their places, best first; of equals the earlier place comes first.

    torch.topk is quick and leaves the order of equals open, so the order is made afterwards; only rows where equals
    stand on both sides of the border are sorted whole.
    """
    if k >= scores.shape[-1]:
        values, places = scores.sort(dim=-1, descending=True, stable=True)
        return values[..., :k], places[..., :k]
    values, places = scores.topk(k + 1)
    border = values[..., k - 1]
    tied = (border == values[..., k]) & (border > -math.inf)
    places, order = places[..., :k].sort(dim=-1)
    values, order = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    places = places.gather(-1, order)
    if bool(tied.any()):
        sorted_values, sorted_places = scores[tied].sort(dim=-1, descending=True, stable=True)
        values[tied], places[tied] = sorted_values[..., :k], sorted_places[..., :k]
    return values, places
