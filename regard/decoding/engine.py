"""The decoding engine: inputs sorted by length, written side by side token by token, and given back in their order.

E8, E10, C2. Finished texts leave the batch, and others enter it (continuous.py); on a GPU whole batches are written as
CUDA graphs (captured.py). What comes out does not depend on who was in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from regard.decoding.ensemble import Ensemble
from regard.decoding.gpu.cuda_graphs import can_capture, write_captured
from regard.decoding.model_step import evaluating
from regard.decoding.requests import FREE, Job, Queue, TextModel, Tokens, make_jobs
from regard.decoding.running_batch import Continuous
from regard.decoding.searches.constraints import needed_phrases
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.observer import Observer, StepRecord
from regard.decoding.searches.search import Hypothesis, Search
from regard.decoding.searches.speculative import Speculative
from regard.errors import UsageError

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
    plain = allow_nonsense and cached and constraints is None and observer is None
    if plain and isinstance(search, Speculative):
        check_room(search.draft_model, jobs)
        return [[text] for text in search.write(model, jobs, allow_unknown=allow_unknown)]
    found: dict[int, list[Hypothesis]] = {}
    options: dict[str, Any] = {"search": search, "alternatives": alternatives, "allow_unknown": allow_unknown}
    with evaluating(model):
        if plain and can_capture(model, search):
            found |= write_captured(model, jobs, **options, batch_tokens=batch_tokens)
        batch = Continuous(model, **options, allow_nonsense=allow_nonsense, observer=observer, cached=cached)
        free = FREE.get(next(model.parameters()).device.type, FREE["elsewhere"])
        left = [job for job in jobs if job.number not in found]
        waiting = Queue(left, rows=rows, batch_tokens=batch_tokens, free=free)
        while waiting.jobs or batch.rows:
            if batch.open and (entering := waiting.take(batch.rows)):
                batch.add(entering)
            found |= batch.step()
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
    batch = Continuous(model, search=search, allow_unknown=allow_unknown, observer=last)
    with evaluating(model):
        batch.add([job])
    while batch.rows:
        with evaluating(model):  # and not while the caller has the token
            batch.feed()
            batch.choose()
        yield last.token


class _LastToken:
    """An observer that remembers the token chosen last."""

    candidates = 1
    token: int

    def step(self, record: StepRecord) -> None:
        self.token = int(record.tokens[0, 0])


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
