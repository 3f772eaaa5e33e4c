"""Beam search: keep the w best hypotheses side by side until enough are finished.

Sutskever et al. 2014, section 3.2; E8.

Where the beam is kept. A hypothesis has two parts, which are reordered together at each step:

    its text     in BeamRun, below: slot s of input b, in `live` and `scores`
    its past     keys and values in the model's state: row b·w + s of the caches

`BeamRun.choose` reorders the texts with `Texts.select`, and returns in `NextInputs.rows` which old row each new row
continues. `RunningBatch.choose` (running_batch.py) passes these rows to `TransformerState.keep`
(models/decoding_state.py), which calls `KVCache.keep` for each layer (attention/cache.py): that copies the keys and
values of the rows that moved. The C decoder and the GPU kernels copy nothing. They keep a table, `origins`, of the row
that holds each token, and reorder the table.

    B inputs   w width   K = (1 + e)w candidates, e end tokens   V vocabulary   n hypotheses wanted   T longest text
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from regard.decoding.searches.constraints import Candidates, PhraseProgress
from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.observer import Observer, StepRecord
from regard.decoding.searches.search import Hypothesis, Inputs, NextInputs, Run, make_hypothesis, stable_topk
from regard.errors import UsageError
from regard.machine.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

MAX_LENGTH_PENALTY = 10  # length^10 fits into a float32 for texts of up to 7,000 tokens; usual values are 0 to 2


@dataclass(frozen=True)
class Beam:
    """Keep the `width` best hypotheses at each step.

    Sutskever et al. 2014, section 3.2; E8. The best `width` continuations of all live hypotheses are the beam: those
    that end with END are finished, and the best `width` that do not end stay alive. Among equals the one with the
    earlier parent comes first, then the one with the lower token.

    Finished hypotheses are ranked by score / length^length_penalty, END counted: 0 ranks by probability and favours
    short texts, 1 ranks by the mean log-probability of a token. (Wu et al. 2016, equation 14, divide by
    ((5 + length) / 6)^alpha instead.)

    The search stops when patience · width hypotheses are finished (Kasai et al. 2022, "A call for clarity in beam
    search", section 3; with 1.0 as in fairseq and CTranslate2), or earlier when no live hypothesis can overtake the
    last of the wanted ones: its score can only fall, and its length is at most max_tokens. With patience None only the
    second rule stops it, and the result is that of a search which always runs to max_tokens. So it is with several
    alternatives, whose order an early end would change.

    With rules (logit_rules.py), the scores after the rules rank; with constraints, constraints.py says which candidates
    the beam takes.
    """

    width: int = 5
    length_penalty: float = 1.0
    rules: tuple[Rule, ...] = ()
    patience: float | None = 1.0

    streams: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.width, bool) or not isinstance(self.width, int) or self.width < 1:
            raise UsageError(f"width must be a whole number from 1, got {self.width!r}")
        if not 0 <= self.length_penalty <= MAX_LENGTH_PENALTY:
            raise UsageError(
                f"length_penalty must be a number from 0 to {MAX_LENGTH_PENALTY}, got {self.length_penalty!r}"
            )

        if self.patience is not None and not 0 < self.patience < math.inf:
            raise UsageError(f"patience must be a number above 0, or None, got {self.patience!r}")

    def max_finished(self, alternatives: int) -> int | None:
        """Return with how many finished hypotheses the search stops; None: their number does not stop it."""
        if self.patience is None or alternatives > 1:
            return None
        return max(1, round(self.patience * self.width))

    def rows(self, alternatives: int) -> int:
        if alternatives > self.width:
            raise UsageError(f"a beam of width {self.width} cannot find alternatives={alternatives}: make it wider")
        return self.width

    def begin(self, inputs: Inputs) -> Run:
        return BeamRun(self, inputs)


class Texts(NamedTuple):
    """The texts of S hypotheses of each input, aligned left."""

    tokens: Tensor  # (B, S, T)
    logps: Tensor  # (B, S, T)

    def select(self, slots: Tensor) -> Texts:
        """Return the hypotheses in these slots (B, K) of each input."""
        slots = slots[..., None].expand(-1, -1, self.tokens.shape[2])  # (B, K, T)
        return Texts(self.tokens.gather(1, slots), self.logps.gather(1, slots))

    def select_inputs(self, inputs: Tensor) -> Texts:
        """Return all hypotheses of these inputs."""
        return Texts(self.tokens[inputs], self.logps[inputs])


class BeamRun:
    """Beam search at work on one batch: the live hypotheses in slots, best first, and the best finished ones."""

    together = True

    def __init__(self, search: Beam, inputs: Inputs) -> None:
        self.width, self.length_penalty, self.length = search.width, search.length_penalty, 0
        self.numbers, self.limits = inputs.numbers, inputs.limits  # (B,)
        self.live, self.scores = _empty_slots(inputs, search.width)  # (B, w)
        self.scores[:, 0] = 0.0  # the hypothesis without a token
        self.finished, self.rankings = _empty_slots(inputs, inputs.alternatives)  # (B, n)
        self.lengths = torch.zeros_like(self.rankings, dtype=torch.long)  # (B, n) of the finished hypotheses
        self.max_finished, self.special = search.max_finished(inputs.alternatives), inputs.special
        self.finished_counts = torch.zeros_like(inputs.numbers)  # (B,)
        self.progress: PhraseProgress | None = None
        if any(inputs.constraints):
            self.progress = PhraseProgress(inputs.constraints, search.width, inputs.numbers.device, inputs.special)
        self.done: dict[int, list[Hypothesis]] = {}  # by the number of the input

    def choose(self, logps: Tensor, model_logps: Tensor, observer: Observer | None) -> NextInputs:
        batch, w, vocabulary = len(self.numbers), self.width, logps.shape[1]
        totals, parents, tokens = self._candidates(logps, model_logps)  # (B, K)
        token_logps = model_logps.view(batch, w * vocabulary).gather(1, parents * vocabulary + tokens)
        texts = self.live.select(parents)  # (B, K, T)
        texts.tokens[:, :, self.length], texts.logps[:, :, self.length] = tokens, token_logps
        self.length += 1
        ends = self.special.are_ends(tokens) & (totals > -math.inf)  # (B, K)
        self._add_finished(totals[:, :w], ends[:, :w], texts)
        alive = ends.byte().argsort(dim=1, stable=True)[:, :w]  # the first w candidates that do not end
        self.scores, self.live = totals.gather(1, alive), texts.select(alive)

        best_to_come = self.scores.amax(1) / self.limits.to(totals.dtype) ** self.length_penalty
        done = (self.limits == self.length) | (best_to_come <= self.rankings[:, -1])
        if self.max_finished is not None:
            done |= self.finished_counts >= self.max_finished
        if observer is not None:
            observer.step(self._record(tokens, token_logps, totals, parents, alive, ends, done))
        parents, tokens = parents.gather(1, alive), tokens.gather(1, alive)  # (B, w)
        if self.progress is not None:
            self.progress.advance(parents, tokens)
        rows = parents + w * torch.arange(batch, device=alive.device)[:, None]  # (B, w) of the model's state
        if bool(done.any()):  # waits for the device, as the check for equals in stable_topk does
            self._finish(done)
            remaining = (~done).nonzero()[:, 0]
            return NextInputs(rows[remaining].flatten(), tokens[remaining].flatten(), remaining)
        return NextInputs(rows.flatten(), tokens.flatten())

    def written(self) -> Tensor:
        return self.live.tokens[:, :, : self.length].flatten(0, 1)  # (B·w, T)

    def results(self) -> dict[int, list[Hypothesis]]:
        return self.done

    def _candidates(self, logps: Tensor, model_logps: Tensor) -> Candidates:
        """Return the best (1 + e)w continuations of each input, where e is the number of end tokens.

        Each of the w live hypotheses can end in only e ways, so at least w of these continuations do not end.
        """
        batch, w, vocabulary = len(self.numbers), self.width, logps.shape[1]
        logps, model_logps = (x.view(batch, w, vocabulary) for x in (logps, model_logps))
        if self.progress is not None:
            return self.progress.candidates(self.scores, logps, model_logps, self.limits - self.length - 1)
        totals = self.scores[:, :, None] + logps
        candidates = (1 + len(self.special.ends)) * w
        totals, indices = stable_topk(totals.view(batch, w * vocabulary), candidates)
        return Candidates(totals, indices // vocabulary, indices % vocabulary)

    def _add_finished(self, totals: Tensor, ends: Tensor, texts: Texts) -> None:
        """Add the candidates that end among the best w (B, w) to the finished hypotheses, and keep the n best."""
        n, w = self.rankings.shape[1], self.width
        self.finished_counts += ends.sum(1)
        rankings = (totals / self.length**self.length_penalty).masked_fill(~ends, -math.inf)
        rankings = torch.cat([self.rankings, rankings], dim=1)  # (B, n + w)
        rankings, order = rankings.sort(dim=1, descending=True, stable=True)
        self.rankings, order = rankings[:, :n], order[:, :n]
        lengths = torch.cat([self.lengths, torch.full_like(ends, self.length, dtype=torch.long)], dim=1)
        self.lengths = lengths.gather(1, order)
        both = (torch.cat([old, new[:, :w]], dim=1) for old, new in zip(self.finished, texts, strict=True))
        self.finished = Texts(*both).select(order)

    def _finish(self, done: Tensor) -> None:
        """Store the hypotheses of the inputs that are done, and remove these inputs from the run."""
        numbers = self.numbers[done].tolist()
        finished = [x[done].tolist() for x in (self.rankings, self.lengths, *self.finished)]
        live = [x[done].tolist() for x in (self.scores, *self.live)]
        for number, ended, cut in zip(numbers, zip(*finished, strict=True), zip(*live, strict=True), strict=True):
            texts = [
                (tokens[:length], logps[:length], True, ranking)
                for ranking, length, tokens, logps in zip(*ended, strict=True)
                if ranking != -math.inf
            ]
            texts += [
                (tokens[: self.length], logps[: self.length], False, score / self.length**self.length_penalty)
                for score, tokens, logps in zip(*cut, strict=True)
                if score != -math.inf
            ]
            self.done[number] = [make_hypothesis(*text) for text in texts[: self.rankings.shape[1]]]
        self.numbers, self.limits, self.scores = self.numbers[~done], self.limits[~done], self.scores[~done]
        self.rankings, self.lengths = self.rankings[~done], self.lengths[~done]
        self.finished_counts = self.finished_counts[~done]
        self.live, self.finished = self.live.select_inputs(~done), self.finished.select_inputs(~done)
        if self.progress is not None:
            self.progress.select_inputs(~done)

    def _record(
        self, tokens: Tensor, logps: Tensor, scores: Tensor, parents: Tensor, alive: Tensor, ends: Tensor, done: Tensor
    ) -> StepRecord:
        return StepRecord(
            step=self.length - 1,
            inputs=self.numbers.cpu(),
            alternatives=torch.zeros_like(self.numbers, device="cpu"),
            tokens=tokens.cpu(),
            logps=logps.cpu(),
            scores=scores.cpu(),
            parents=parents.cpu(),
            kept=torch.where(self.scores > -math.inf, alive, -1).cpu(),
            ended=(ends & (torch.arange(ends.shape[1], device=ends.device) < self.width)).cpu(),
            done=done.cpu(),
        )


def _empty_slots(inputs: Inputs, slots: int) -> tuple[Texts, Tensor]:
    """Return room for hypotheses of each input; a score or ranking (B, slots) of -inf marks an empty slot."""
    shape, device = (len(inputs.numbers), slots, inputs.longest), inputs.numbers.device
    tokens = torch.zeros(shape, dtype=torch.long, device=device)
    logps = torch.zeros(shape, dtype=inputs.dtype, device=device)
    return Texts(tokens, logps), torch.full(shape[:2], -math.inf, dtype=inputs.dtype, device=device)
