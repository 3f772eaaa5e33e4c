"""A batch in which texts of different ages are decoded together: inputs enter while others run, and leave when done.

E8. Inputs that enter together are a cohort. Each cohort has its own run of the search; all cohorts share the model's
step. A row computes the same beside any neighbours, so the results do not depend on who entered when.

    B inputs   R rows   m prefix tokens   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.decoding.model_step import bar_special_tokens, encode, prefill, step
from regard.decoding.requests import Request
from regard.decoding.searches.logit_rules import Rule, adapt_rule, apply_rules
from regard.decoding.searches.observer import Observer
from regard.decoding.searches.repetition import bar_degenerate_output
from regard.decoding.searches.search import Hypothesis, Inputs, NextInputs, Run, Search
from regard.models.protocols import TextModel
from regard.text.tokenizers.special_tokens import special_tokens_of


class Cohort:
    """Inputs that entered together."""

    def __init__(self, run: Run, rules: Sequence[Rule], inputs: int, prefix: Tensor, logps: Tensor) -> None:
        self.run, self.rules = run, rules
        self.inputs, self.prefix, self.logps = inputs, prefix, logps  # (R, m), (R, V)
        self.returned: set[int] = set()  # the numbers of the inputs whose results were returned
        self.tokens = prefix[:, -1]  # (R,) fed next


class RunningBatch:
    """A batch that inputs enter and leave.

    `add` inputs, then call `step` until the results of those that are done come back. The caller decides how many
    inputs enter: `rows` is the number of rows at the moment, and `computed` counts the rows of all steps so far. A step
    has two halves, `choose` and `feed`, for callers that want a token before the next one is computed.
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
        self.special = special_tokens_of(model)
        self.more_rules: tuple[Rule, ...] = () if allow_nonsense else (bar_degenerate_output,)
        self.cohorts: list[Cohort] = []
        self.state: Any = None
        self.fed = True  # whether the chosen tokens were fed, so that the log-probabilities are those of the next ones
        self.computed = 0

    @property
    def rows(self) -> int:
        """The number of rows that are being decoded."""
        return sum(len(cohort.tokens) for cohort in self.cohorts)

    @property
    def open(self) -> bool:
        """Whether inputs may enter: the batch is empty, or the model's states can be joined."""
        return not self.cohorts or hasattr(self.state, "join")

    @torch.inference_mode()
    def add(self, requests: Sequence[Request], search: Search | None = None) -> Cohort:
        """Let requests enter; their prefixes have the same length. They may have a search of their own."""
        self.feed()
        search = search or self.search
        device = next(self.model.parameters()).device
        longest = max(request.limit for request in requests)
        prefix = torch.tensor([request.prefix for request in requests], device=device)  # (B, m)
        encoded = None
        if requests[0].source is not None:
            encoded = encode(self.model, [request.source for request in requests if request.source is not None])
        capacity = prefix.shape[1] + longest - 1  # the last token is not read
        logps, state = prefill(self.model, prefix, encoded, capacity=capacity, cached=self.cached)
        numbers = torch.tensor([request.number for request in requests], device=device)
        limits = torch.tensor([request.limit for request in requests], device=device)
        constraints = [request.constraints for request in requests]
        run = search.begin(Inputs(numbers, limits, longest, self.alternatives, logps.dtype, constraints, self.special))
        rows = search.rows(self.alternatives)
        inputs = len(requests) if run.together else len(requests) * rows  # as the state counts them
        if rows > 1:
            repeated = torch.arange(len(requests), device=device).repeat_interleave(rows)  # (R,)
            state = state.repeat(rows) if run.together else state.select(repeated)
            logps, prefix = logps[repeated], prefix[repeated]
        self.state = type(state).join([self.state, state]) if self.cohorts else state
        rules = [adapt_rule(rule, self.special) for rule in (*search.rules, *self.more_rules)]
        self.cohorts.append(Cohort(run, rules, inputs, prefix, logps))
        return self.cohorts[-1]

    def step(self) -> dict[int, list[Hypothesis]]:
        """Choose the next token of every row and feed it; return the hypotheses of the inputs that are done."""
        finished = self.choose()
        self.feed()
        return finished

    def choose(self) -> dict[int, list[Hypothesis]]:
        """Choose the next token of every row; inputs that are done leave, and their hypotheses are returned."""
        return {number: texts for _, done in self.choose_by_cohort() for number, texts in done.items()}

    @torch.inference_mode()
    def choose_by_cohort(self) -> list[tuple[Cohort, dict[int, list[Hypothesis]]]]:
        """As `choose`, and return the finished hypotheses of each cohort.

        A run says which rows of the state continue, in which order: `NextInputs.rows`. A beam repeats and reorders its
        hypotheses in this way. `self.state.keep` then reorders the key-value caches accordingly, see
        models/decoding_state.py.
        """
        finished: list[tuple[Cohort, dict[int, list[Hypothesis]]]] = []
        rows, inputs = [], []
        any_moved = any_left = False
        first_row = first_input = 0
        for cohort in self.cohorts:
            row_count, input_count = len(cohort.logps), cohort.inputs
            choice = self._choose(cohort)
            device = cohort.logps.device
            kept_rows = torch.arange(row_count, device=device) if choice.rows is None else choice.rows
            kept_inputs = torch.arange(input_count, device=device) if choice.inputs is None else choice.inputs
            rows.append(first_row + kept_rows)
            inputs.append(first_input + kept_inputs)
            any_moved = any_moved or choice.rows is not None
            first_row, first_input = first_row + row_count, first_input + input_count
            if choice.inputs is not None:
                any_left = True
                cohort.inputs = len(kept_inputs)
            finished.append((cohort, {} if choice.inputs is None else self._finished(cohort)))
        self.cohorts = [cohort for cohort in self.cohorts if len(cohort.tokens)]
        self.fed = not self.cohorts
        if not self.cohorts:
            self.state = None
        elif any_moved:
            self.state = self.state.keep(torch.cat(rows), torch.cat(inputs) if any_left else None)
        return finished

    @torch.inference_mode()
    def drop(self, dropped: Sequence[Cohort]) -> None:
        """Let cohorts leave, whether they are done or not."""
        self.feed()
        row = first_input = 0
        rows: list[int] = []
        inputs: list[int] = []
        for cohort in self.cohorts:
            if cohort not in dropped:
                rows += range(row, row + len(cohort.tokens))
                inputs += range(first_input, first_input + cohort.inputs)
            row, first_input = row + len(cohort.tokens), first_input + cohort.inputs
        device = next(self.model.parameters()).device
        self.cohorts = [cohort for cohort in self.cohorts if cohort not in dropped]
        if not self.cohorts:
            self.state = None
        elif len(rows) < row:
            self.state = self.state.keep(torch.tensor(rows, device=device), torch.tensor(inputs, device=device))

    def _choose(self, cohort: Cohort) -> NextInputs:
        model_logps = logps = bar_special_tokens(cohort.logps, self.special, self.allow_unknown)
        if cohort.rules:
            logps = apply_rules(cohort.rules, model_logps, cohort.prefix, cohort.run.written(), self.special)
        choice = cohort.run.choose(logps, model_logps, self.observer)
        cohort.tokens = choice.tokens
        if choice.rows is not None:
            cohort.prefix = cohort.prefix[choice.rows]
        return choice

    def _finished(self, cohort: Cohort) -> dict[int, list[Hypothesis]]:
        """Return the hypotheses of the cohort's inputs that are done and were not returned before."""
        skipped = {*cohort.run.numbers.tolist()} | cohort.returned
        finished = {number: texts for number, texts in cohort.run.results().items() if number not in skipped}
        cohort.returned |= finished.keys()
        return finished

    @torch.inference_mode()
    def feed(self) -> None:
        """Feed the chosen tokens to the model, unless that was done."""
        if self.fed:
            return
        logps = step(self.model, self.state, torch.cat([cohort.tokens for cohort in self.cohorts]))
        self.computed += len(logps)
        sizes = [len(cohort.tokens) for cohort in self.cohorts]
        for cohort, cohort_logps in zip(self.cohorts, logps.split(sizes), strict=True):
            cohort.logps = cohort_logps
        self.fed = True
