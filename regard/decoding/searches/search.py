"""The protocol of searches: a Search begins a Run on a batch, and the run chooses the next token of each row.

E8. Also here: the results of a search, and the run in which rows are independent, for greedy search and sampling.

    B inputs   R rows (hypotheses in the decoder)   V vocabulary   T longest text   K candidates
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.observer import Observer, StepRecord
from regard.errors import ModelError, UsageError
from regard.machine.lazy_torch import torch
from regard.text.tokenizers.special_tokens import DEFAULT, SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text that a search found: the tokens after the prefix, which is neither repeated nor scored."""

    tokens: list[int]  # with END if finished
    logps: list[float]  # the model's log-probability of each token
    score: float  # their sum
    ranking: float  # the score after rules and length penalty, by which a beam ranks; otherwise the score
    finished: bool  # END was written before max_tokens was reached


class Inputs(NamedTuple):
    """The inputs of one batch, as a search sees them."""

    numbers: Tensor  # (B,) the number of each input
    limits: Tensor  # (B,) the most tokens to write
    longest: int  # the largest of the limits
    alternatives: int  # hypotheses wanted for each input
    dtype: torch.dtype  # of log-probabilities
    constraints: Sequence[Sequence[Sequence[int]]] = ()  # phrases that the texts of each input must contain
    special: SpecialTokens = DEFAULT  # of the model


class NextInputs(NamedTuple):
    """What the model is fed next. Without any rows, everything is done."""

    rows: Tensor | None  # (R',) the rows of the state that continue, repeated and reordered; None: all, unchanged
    tokens: Tensor  # (R',)
    inputs: Tensor | None = None  # (B',) the inputs that continue, by their index in the run; None: all


class Run(Protocol):
    """A search at work on one batch."""

    together: bool  # whether the rows of an input continue and leave together

    @property
    def numbers(self) -> Tensor:
        """The numbers of the inputs that are not done, one for each input or for each row."""

    def choose(self, logps: Tensor, model_logps: Tensor, observer: Observer | None) -> NextInputs:
        """Choose the next token of each row by the log-probabilities (R, V), which the rules have changed.

        -inf bars a token. `model_logps` (R, V) are the model's own, which the hypotheses report.
        """

    def written(self) -> Tensor:
        """The tokens that each row has written so far, (R, T)."""

    def results(self) -> dict[int, list[Hypothesis]]:
        """The hypotheses of each input that is done, by its number."""


class Search(Protocol):
    """The settings of a search: Greedy, Sample, Beam, MinimumRisk, Speculative."""

    streams: ClassVar[bool]  # whether a token is final when it is chosen

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules that limit what it writes."""

    def rows(self, alternatives: int) -> int:
        """Return how many rows an input takes; UsageError if the search cannot return so many alternatives."""

    def begin(self, inputs: Inputs) -> Run:
        """Begin a run on these inputs. Rows are ordered by input: first all rows of the first input, and so on."""


def with_rule(search: Search, rule: Rule) -> Search:
    """Return the search with one more rule; a search without rules of its own is returned as it is."""
    if (inner := getattr(search, "search", None)) is not None:
        return dataclasses.replace(search, search=with_rule(inner, rule))  # type: ignore[type-var]
    if not dataclasses.is_dataclass(search) or "rules" not in {field.name for field in dataclasses.fields(search)}:
        return search
    return dataclasses.replace(search, rules=(*search.rules, rule))


class Pick(NamedTuple):
    """The next token of each row, and how it was drawn."""

    tokens: Tensor  # (R,)
    draws: Tensor | None = None  # (R,)
    probabilities: Tensor | None = None  # (R, V)


class IndependentRows:
    """A run whose rows continue and leave independently. `pick` is the search.

    It gets the log-probabilities (R, V), and for each row the number of its input and of its alternative, and the step.
    """

    together = False

    def __init__(self, inputs: Inputs, pick: Callable[[Tensor, Tensor, Tensor, int], Pick]) -> None:
        if any(inputs.constraints):
            raise UsageError("constraints need beam search: pass search=Beam(...)")
        batch, rows_per_input = len(inputs.numbers), inputs.alternatives
        rows, device = batch * rows_per_input, inputs.numbers.device
        self.pick, self.length, self.special = pick, 0, inputs.special
        self.numbers = inputs.numbers.repeat_interleave(rows_per_input)  # (R,)
        self.alternatives = torch.arange(rows_per_input, device=device).repeat(batch)  # (R,)
        self.limits = inputs.limits.repeat_interleave(rows_per_input)  # (R,)
        self.tokens = torch.empty(rows, inputs.longest, dtype=torch.long, device=device)  # (R, T)
        self.logps = torch.empty(rows, inputs.longest, dtype=inputs.dtype, device=device)  # (R, T)
        self.done: dict[tuple[int, int], Hypothesis] = {}  # by number and alternative

    def choose(self, logps: Tensor, model_logps: Tensor, observer: Observer | None) -> NextInputs:
        pick = self.pick(logps, self.numbers, self.alternatives, self.length)
        self.tokens[:, self.length] = pick.tokens
        self.logps[:, self.length] = model_logps.gather(1, pick.tokens[:, None])[:, 0]
        self.length += 1
        ended = self.special.are_ends(pick.tokens)
        done = ended | (self.limits == self.length)
        if observer is not None:
            observer.step(self._record(logps, model_logps, pick, ended, done, observer.candidates))
        if not bool(done.any()):  # the only wait for the device
            return NextInputs(None, pick.tokens)
        self._finish(done, ended)
        remaining = (~done).nonzero()[:, 0]
        self.numbers, self.alternatives = self.numbers[remaining], self.alternatives[remaining]
        self.limits, self.tokens, self.logps = self.limits[remaining], self.tokens[remaining], self.logps[remaining]
        return NextInputs(remaining, pick.tokens[remaining], remaining)

    def written(self) -> Tensor:
        return self.tokens[:, : self.length]

    def results(self) -> dict[int, list[Hypothesis]]:
        hypotheses: dict[int, list[Hypothesis]] = {}
        for number, alternative in sorted(self.done):
            hypotheses.setdefault(number, []).append(self.done[number, alternative])
        return hypotheses

    def _finish(self, done: Tensor, ended: Tensor) -> None:
        length = self.length
        columns = (self.numbers, self.alternatives, ended, self.tokens[:, :length], self.logps[:, :length])
        for number, alternative, finished, tokens, logps in zip(*(c[done].tolist() for c in columns), strict=True):
            self.done[number, alternative] = make_hypothesis(tokens, logps, finished)

    def _record(
        self, logps: Tensor, model_logps: Tensor, pick: Pick, ended: Tensor, done: Tensor, candidates: int
    ) -> StepRecord:
        chosen = pick.tokens[:, None]
        scores = self.logps[:, : self.length - 1].sum(1, keepdim=True)  # (R, 1) before this step
        order = logps if pick.probabilities is None else pick.probabilities
        tokens = stable_topk(order, min(candidates, logps.shape[1]))[1]  # (R, K)
        # A drawn token that is not among the best K takes the last place: all others are more probable.
        missing = (tokens != chosen).all(1)
        tokens[:, -1] = torch.where(missing, pick.tokens, tokens[:, -1])
        is_chosen = tokens == chosen
        token_logps = model_logps.gather(1, tokens).masked_fill(logps.gather(1, tokens) == -math.inf, -math.inf)
        return StepRecord(
            step=self.length - 1,
            inputs=self.numbers.cpu(),
            alternatives=self.alternatives.cpu(),
            tokens=tokens.cpu(),
            logps=token_logps.cpu(),
            scores=(scores + token_logps).cpu(),
            parents=torch.zeros_like(tokens, device="cpu"),
            kept=torch.where(ended, -1, is_chosen.byte().argmax(1))[:, None].cpu(),
            ended=(is_chosen & ended[:, None]).cpu(),
            done=done.cpu(),
            draws=None if pick.draws is None else pick.draws.cpu(),
            probabilities=None if pick.probabilities is None else pick.probabilities.gather(1, tokens).cpu(),
        )


def make_hypothesis(tokens: list[int], logps: list[float], finished: bool, ranking: float | None = None) -> Hypothesis:
    """Return the hypothesis with these tokens; its ranking is by default its score."""
    score = math.fsum(logps)
    if not math.isfinite(score):
        raise ModelError(
            "the model gave NaN or infinity in place of a probability: its weights are damaged, its training diverged, "
            "or its numbers outgrew the dtype (float16 ends at 65504; try bfloat16 or float32)"
        )
    return Hypothesis(tokens, logps, score, score if ranking is None else ranking, finished)


def cut_off(text: Hypothesis, length: int | None) -> Hypothesis:
    """Return the first `length` tokens, with the ranking of the whole text; None returns the whole text."""
    if length is None:
        return text
    logps = text.logps[:length]
    return Hypothesis(text.tokens[:length], logps, math.fsum(logps), text.ranking, finished=False)


def stable_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k highest scores of each row (…, N) and their indices, best first; among equals the lower index first.

    torch.topk is fast and leaves the order of equals open, so they are ordered afterwards. Only rows with equal scores
    on both sides of the cut are sorted completely.
    """
    if k >= scores.shape[-1]:
        values, indices = scores.sort(dim=-1, descending=True, stable=True)
        return values[..., :k], indices[..., :k]
    values, indices = scores.topk(k + 1)
    last = values[..., k - 1]
    tied = (last == values[..., k]) & (last > -math.inf)
    indices, order = indices[..., :k].sort(dim=-1)
    values, order = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    indices = indices.gather(-1, order)
    if bool(tied.any()):
        sorted_values, sorted_indices = scores[tied].sort(dim=-1, descending=True, stable=True)
        values[tied], indices[tied] = sorted_values[..., :k], sorted_indices[..., :k]
    return values, indices
