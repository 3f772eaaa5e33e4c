"""The decoding engine: inputs sorted into batches, and each batch written token by token.

E8, E10, C2. The phases are free functions: `encode` the sources, `prefill` what stands before the text, then choose
and `step` until everything is done. Finished rows leave the batch. What comes out does not depend on the batches.

    B inputs   R rows (hypotheses in the decoder)   n source tokens   m prefix tokens   V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding.captured import can_capture, write_captured
from regard.decoding.constraints import needed_phrases
from regard.decoding.ensemble import Ensemble
from regard.decoding.greedy import Greedy
from regard.decoding.jobs import Job, TextModel, Tokens, make_batches, make_jobs
from regard.decoding.loops import bar_nonsense
from regard.decoding.observer import Observer, StepRecord
from regard.decoding.rules import apply_rules
from regard.decoding.search import Hypothesis, Inputs, Run, Search
from regard.errors import UsageError
from regard.models.state import Encoded
from regard.text.special import PAD, START, UNKNOWN, pad_batch

GREEDY = Greedy()


def generate_tokens(
    model: TextModel,
    source: Sequence[Tokens] | None,
    *,
    search: Search = GREEDY,
    prefixes: Sequence[Tokens] | None = None,
    constraints: Sequence[Sequence[Tokens]] | None = None,
    max_tokens: int | Sequence[int],
    alternatives: int = 1,
    allow_unknown: bool = True,
    allow_nonsense: bool = True,
    batch_tokens: int = 8192,
    cached: bool = True,
    observer: Observer | None = None,
    numbers: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The texts that a search finds for each input, in the order of the inputs.

        source         token lists to translate; None for a language model
        prefixes       what each text begins with: a translation's first tokens, a language model's prompt
        constraints    phrases, lists of tokens, that the texts of each input must hold; a beam's only (constraints.py)
        max_tokens     the most tokens to write, END among them; one number or one for each input
        alternatives   how many texts for each input: a beam's best ones, best first (fewer where there are fewer), or
                       independent samples in the order of their numbers
        allow_unknown  False bars the unknown token; padding and start are always barred. END is allowed from the
                       first step on, so a text may be empty
        allow_nonsense False bars empty texts, and a third copy of the same tokens right after the second (loops.py)
        batch_tokens   rows x (source + prefix + max_tokens) that run together; a memory limit, no influence on results
        cached         False computes the whole text anew for each token: slow, and the oracle of the caches
        numbers        what the draws of each input depend on beside seed, alternative and step: all different, and its
                       place in the list if not given

    The model is put into eval mode meanwhile.
    """
    if alternatives < 1:
        raise UsageError(f"alternatives must be at least 1, got {alternatives}")
    rows = search.rows(alternatives)
    jobs = make_jobs(model, source, prefixes, max_tokens, numbers)
    check_room(model, jobs)
    if constraints is not None:
        jobs = constrained(jobs, constraints)
    found: dict[int, list[Hypothesis]] = {}
    plain = allow_nonsense and cached and constraints is None and observer is None
    captured = plain and can_capture(model, search)
    with evaluating(model):
        for batch in make_batches(jobs, rows=rows, batch_tokens=batch_tokens):
            if captured:
                options: dict[str, Any] = {"alternatives": alternatives, "allow_unknown": allow_unknown}
                if (texts := write_captured(model, batch, search=search, **options)) is not None:
                    found.update(texts)
                    continue
            *_, run = write(
                model,
                batch,
                search=search,
                alternatives=alternatives,
                allow_unknown=allow_unknown,
                allow_nonsense=allow_nonsense,
                cached=cached,
                observer=observer,
            )
            found.update(run.results())
    return [found[job.number] for job in jobs]


def stream_tokens(
    model: TextModel,
    prefix: Tokens,
    *,
    source: Tokens | None = None,
    search: Search = GREEDY,
    max_tokens: int,
    allow_unknown: bool = True,
) -> Iterator[int]:
    """The tokens that generate_tokens would give for this one input, each as soon as it is chosen."""
    if not search.streams:
        name = type(search).__name__
        raise UsageError(f"{name} does not know its first token before its last: stream with Greedy or Sample")
    (job,) = make_jobs(model, None if source is None else [source], [prefix], max_tokens)
    check_room(model, [job])
    return _stream(model, job, search, allow_unknown)


def _stream(model: TextModel, job: Job, search: Search, allow_unknown: bool) -> Iterator[int]:
    last = _LastToken()
    steps = write(model, [job], search=search, allow_unknown=allow_unknown, observer=last)
    while True:
        with evaluating(model):  # and not while the caller has the token
            if next(steps, None) is None:
                return
        yield last.token


class _LastToken:
    """An observer that remembers the token chosen last."""

    candidates = 1
    token: int

    def step(self, record: StepRecord) -> None:
        self.token = int(record.tokens[0, 0])


@torch.inference_mode()
def write(
    model: TextModel,
    jobs: Sequence[Job],
    *,
    search: Search,
    alternatives: int = 1,
    allow_unknown: bool = True,
    allow_nonsense: bool = True,
    cached: bool = True,
    observer: Observer | None = None,
) -> Iterator[Run]:
    """Write one batch, whose prefixes have one length; gives the run after each step."""
    device = next(model.parameters()).device
    longest = max(job.limit for job in jobs)
    prefix = torch.tensor([job.prefix for job in jobs], device=device)  # (B, m)
    encoded = None if jobs[0].source is None else encode(model, [job.source or () for job in jobs])
    capacity = prefix.shape[1] + longest - 1  # the last token is not read
    logps, state = prefill(model, prefix, encoded, capacity=capacity, cached=cached)
    numbers = torch.tensor([job.number for job in jobs], device=device)
    limits = torch.tensor([job.limit for job in jobs], device=device)
    run = search.begin(Inputs(numbers, limits, longest, alternatives, logps.dtype, [job.constraints for job in jobs]))
    rows = search.rows(alternatives)
    if rows > 1:
        repeated = torch.arange(len(jobs), device=device).repeat_interleave(rows)  # (R,)
        state = state.repeat(rows) if run.together else state.select(repeated)
        logps, prefix = logps[repeated], prefix[repeated]
    rules = search.rules if allow_nonsense else (*search.rules, bar_nonsense)
    while True:
        own = logps = barred(logps, allow_unknown)
        if rules:
            logps = apply_rules(rules, own, prefix, run.written())
        choice = run.choose(logps, own, observer)
        yield run
        if not len(choice.tokens):
            return
        if choice.rows is not None:
            state = state.keep(choice.rows, choice.inputs)
            prefix = prefix[choice.rows] if rules else prefix
        logps = step(model, state, choice.tokens)


def encode(model: TextModel, sources: Sequence[Tokens]) -> Encoded:
    """The sources, padded to one length, as the decoder sees them."""
    device = next(model.parameters()).device
    return model.encode(pad_batch(sources, pad_id=model.config.pad_id).to(device))


def prefill(
    model: TextModel, prefix: Tensor, encoded: Encoded | None, *, capacity: int, cached: bool = True
) -> tuple[Tensor, Any]:
    """Read the prefixes (B, m) at once: the log-probabilities of the next token (B, V), and the state for what follows.

    Here the source's keys and values are made, once for all steps.
    """
    if not cached:
        state: Any = Recomputed(prefix[:, :0], encoded)
    else:
        state = model.start(len(prefix) if encoded is None else encoded, capacity)
    return _advance(model, state, prefix), state


def step(model: TextModel, state: Any, tokens: Tensor) -> Tensor:
    """Feed each row its next token (R,): the log-probabilities of the one after it (R, V). The state moves on."""
    return _advance(model, state, tokens[:, None])


def _advance(model: TextModel, state: Any, tokens: Tensor) -> Tensor:
    native = getattr(model, "native", None)  # of models with packed weights
    if native is not None and native.fits(state, tokens):
        return log_probabilities(native.step(state, tokens))
    hidden = state.decode(model, tokens) if isinstance(state, Recomputed) else model.decode(tokens, state=state)
    return log_probabilities(model.project(hidden[:, -1]))


class Recomputed:
    """A state without a cache, the oracle for those with one: it keeps the tokens and computes all of them anew."""

    def __init__(self, tokens: Tensor, encoded: Encoded | None) -> None:
        self.tokens, self.encoded = tokens, encoded

    def decode(self, model: TextModel, tokens: Tensor) -> Tensor:
        self.tokens = torch.cat([self.tokens, tokens], dim=1)
        return model.decode(self.tokens) if self.encoded is None else model.decode(self.tokens, self.encoded)

    def select(self, rows: Tensor) -> Recomputed:
        return Recomputed(self.tokens[rows], None if self.encoded is None else self.encoded.select(rows))

    def repeat(self, times: int) -> Recomputed:
        return self.select(torch.arange(len(self.tokens), device=self.tokens.device).repeat_interleave(times))

    def keep(self, rows: Tensor, inputs: Tensor | None) -> Recomputed:
        return self.select(rows)


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the whole vocabulary, in float32 at least; E6."""
    return torch.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def barred(logps: Tensor, allow_unknown: bool) -> Tensor:
    """The log-probabilities with -inf for what must not be chosen; the others stay as the model gave them."""
    for token in (PAD, START) if allow_unknown else (PAD, START, UNKNOWN):
        logps[:, token] = float("-inf")
    return logps


def longest_text(model: TextModel) -> int | None:
    """How many tokens the decoder has places for, START and the prefix among them; None: any number."""
    models: Sequence[TextModel] = list(model.models) if isinstance(model, Ensemble) else [model]
    learned = [one.config.max_length for one in models if getattr(one.config, "position", None) == "learned"]
    return min(learned, default=None)


def check_room(model: TextModel, jobs: Sequence[Job]) -> None:
    """Refuse to write nothing, or more than learned positions are there for."""
    places = longest_text(model)
    for job in jobs:
        if job.limit < 1:
            raise UsageError(f"max_tokens must be at least 1, got {job.limit} for input {job.number}")
        room = math.inf if places is None else places + 1 - len(job.prefix)  # the last token is not read
        if job.limit > room:
            raise UsageError(
                f"max_tokens={job.limit} for input {job.number} is too much: the model has learned {places} positions "
                f"and {len(job.prefix)} are taken by what stands before the text, so {max(room, 0)} tokens can follow"
            )


def constrained(jobs: Sequence[Job], constraints: Sequence[Sequence[Tokens]]) -> list[Job]:
    """The jobs with their constraints."""
    if len(constraints) != len(jobs):
        raise UsageError(f"constraints has {len(constraints)} entries for {len(jobs)} inputs: give one for each")
    return [
        job._replace(constraints=needed_phrases(phrases, job.limit))
        for job, phrases in zip(jobs, constraints, strict=True)
    ]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside the block, for every part that was in training mode, and training mode again after it."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
