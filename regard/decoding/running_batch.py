"""Texts of different ages in one batch: inputs enter while others are being written, and leave when they are done.

E8. Inputs that enter together are a cohort, and a cohort has a run of the search of its own; all cohorts share the
model's step. A row computes the same beside any neighbours, so what comes out does not depend on who entered when.

    B inputs   R rows   m prefix tokens   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.decoding.model_step import barred, encode, prefill, step
from regard.decoding.requests import Job, TextModel
from regard.decoding.searches.logit_rules import apply_rules
from regard.decoding.searches.observer import Observer
from regard.decoding.searches.repetition import bar_nonsense
from regard.decoding.searches.search import Choice, Hypothesis, Inputs, Run, Search


class Cohort:
    """Inputs that entered together."""

    def __init__(self, run: Run, inputs: int, prefix: Tensor, logps: Tensor) -> None:
        self.run, self.inputs, self.prefix, self.logps = run, inputs, prefix, logps  # (R, m), (R, V)
        self.told: set[int] = set()  # the numbers of inputs whose texts were given back
        self.tokens = prefix[:, -1]  # (R,) what is fed next


class Continuous:
    """A batch that inputs enter and leave.

    `add` some, then `step` until the texts that are done come back. How many rows are in it, is the caller's matter;
    `rows` are at the moment, and `computed` counts those of all steps so far. A step has two halves, `choose` and
    `feed`, for those who want a token before the next one is computed.
    """

    def __init__(
        self,
        model: TextModel,
        *,
        search: Search,
        alternatives: int = 1,
        allow_unknown: bool = True,
        allow_nonsense: bool = True,
        cached: bool = True,
        observer: Observer | None = None,
    ) -> None:
        self.model, self.search, self.alternatives = model, search, alternatives
        self.allow_unknown, self.cached, self.observer = allow_unknown, cached, observer
        self.rules = tuple(search.rules) if allow_nonsense else (*search.rules, bar_nonsense)
        self.cohorts: list[Cohort] = []
        self.state: Any = None
        self.fed = True  # whether the log-probabilities are those of what comes next
        self.computed = 0

    @property
    def rows(self) -> int:
        """How many rows go on."""
        return sum(len(cohort.tokens) for cohort in self.cohorts)

    @property
    def open(self) -> bool:
        """Whether inputs may enter: nobody is there, or the model's states can be joined."""
        return not self.cohorts or hasattr(self.state, "join")

    @torch.inference_mode()
    def add(self, jobs: Sequence[Job]) -> None:
        """Let inputs enter, whose prefixes have one length."""
        self.feed()
        device = next(self.model.parameters()).device
        longest = max(job.limit for job in jobs)
        prefix = torch.tensor([job.prefix for job in jobs], device=device)  # (B, m)
        encoded = None if jobs[0].source is None else encode(self.model, [job.source or () for job in jobs])
        capacity = prefix.shape[1] + longest - 1  # the last token is not read
        logps, state = prefill(self.model, prefix, encoded, capacity=capacity, cached=self.cached)
        numbers = torch.tensor([job.number for job in jobs], device=device)
        limits = torch.tensor([job.limit for job in jobs], device=device)
        constraints = [job.constraints for job in jobs]
        run = self.search.begin(Inputs(numbers, limits, longest, self.alternatives, logps.dtype, constraints))
        rows = self.search.rows(self.alternatives)
        inputs = len(jobs) if run.together else len(jobs) * rows  # as the state has them
        if rows > 1:
            repeated = torch.arange(len(jobs), device=device).repeat_interleave(rows)  # (R,)
            state = state.repeat(rows) if run.together else state.select(repeated)
            logps, prefix = logps[repeated], prefix[repeated]
        self.state = type(state).join([self.state, state]) if self.cohorts else state
        self.cohorts.append(Cohort(run, inputs, prefix, logps))

    def step(self) -> dict[int, list[Hypothesis]]:
        """Choose the next token of every row and feed it; gives the texts of the inputs that are done by that."""
        finished = self.choose()
        self.feed()
        return finished

    @torch.inference_mode()
    def choose(self) -> dict[int, list[Hypothesis]]:
        """Choose the next token of every row. Rows that are done leave, and what they have written comes back."""
        finished: dict[int, list[Hypothesis]] = {}
        rows, inputs = [], []
        moved = left = False
        first_row = first_input = 0
        for cohort in self.cohorts:
            choice, size = self._choose(cohort), (len(cohort.logps), cohort.inputs)
            everything = (torch.arange(n, device=cohort.logps.device) for n in size)
            kept, going = (every if one is None else one for every, one in zip(everything, choice[::2], strict=True))
            rows.append(first_row + kept)
            inputs.append(first_input + going)
            moved, left = moved or choice.rows is not None, left or choice.inputs is not None
            first_row, first_input = first_row + size[0], first_input + size[1]
            if choice.inputs is not None:
                cohort.inputs = len(going)
                finished |= self._finished(cohort)
        self.cohorts = [cohort for cohort in self.cohorts if len(cohort.tokens)]
        self.fed = not self.cohorts
        if not self.cohorts:
            self.state = None
        elif moved:
            self.state = self.state.keep(torch.cat(rows), torch.cat(inputs) if left else None)
        return finished

    def _choose(self, cohort: Cohort) -> Choice:
        own = logps = barred(cohort.logps, self.allow_unknown)
        if self.rules:
            logps = apply_rules(self.rules, own, cohort.prefix, cohort.run.written())
        choice = cohort.run.choose(logps, own, self.observer)
        cohort.tokens = choice.tokens
        if choice.rows is not None:
            cohort.prefix = cohort.prefix[choice.rows]
        return choice

    def _finished(self, cohort: Cohort) -> dict[int, list[Hypothesis]]:
        """What of its inputs is done and was not given back before."""
        waiting = {*cohort.run.numbers.tolist()} | cohort.told
        finished = {number: texts for number, texts in cohort.run.results().items() if number not in waiting}
        cohort.told |= finished.keys()
        return finished

    @torch.inference_mode()
    def feed(self) -> None:
        """Feed the tokens that were chosen, if that was not done."""
        if self.fed:
            return
        logps = step(self.model, self.state, torch.cat([cohort.tokens for cohort in self.cohorts]))
        self.computed += len(logps)
        sizes = [len(cohort.tokens) for cohort in self.cohorts]
        for cohort, part in zip(self.cohorts, logps.split(sizes), strict=True):
            cohort.logps = part
        self.fed = True
