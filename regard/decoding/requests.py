"""The inputs of a search: checked, numbered, and sorted into batches.

E8. What comes out of a search does not depend on the batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import START

# A Transformer, RecurrentTranslator, TransformerLM or RecurrentLM, or whatever has their decode, project and start,
# and encode if it translates.
TextModel = Any
Tokens = Sequence[int]
# The part of a batch that must be free before others enter it. On a CPU all of it: there a step takes as long as its
# rows, so thin batches lose nothing, and texts of different ages do (30 to 80% more time for 600 sentences).
FREE = {"cpu": 1.0, "elsewhere": 0.5}


class Job(NamedTuple):
    """One input."""

    number: int  # its place in the caller's list, if the caller gave no other
    source: Tokens | None
    prefix: list[int]  # what the decoder reads before it writes, at least one token
    limit: int  # the most tokens that it may write
    constraints: Sequence[Tokens] = ()  # phrases that its texts must hold


def make_jobs(
    model: TextModel,
    source: Sequence[Tokens] | None,
    prefixes: Sequence[Tokens] | None,
    max_tokens: int | Sequence[int],
    numbers: Sequence[int] | None = None,
) -> list[Job]:
    """The inputs, checked and numbered."""
    if not all(hasattr(model, name) for name in ("decode", "project", "start")):
        raise UsageError(f"a {type(model).__name__} does not write text")
    translates = hasattr(model, "encode")
    if translates != (source is not None):
        what = "translates: give it a source" if translates else "is a language model: its source is None"
        raise UsageError(f"a {type(model).__name__} {what}")
    if source is None and prefixes is None:
        raise UsageError("a language model needs prefixes, one for each text to write; an empty one begins a new text")
    count = len(prefixes or ()) if source is None else len(source)
    prefixes = [()] * count if prefixes is None else prefixes
    limits = [max_tokens] * count if isinstance(max_tokens, int) else list(max_tokens)
    numbers = range(count) if numbers is None else numbers
    for name, given in (("prefixes", prefixes), ("max_tokens", limits), ("numbers", numbers)):
        if len(given) != count:
            raise UsageError(f"{name} has {len(given)} entries for {count} inputs: give one for each")
    if len({*numbers}) < count:
        raise UsageError("numbers must all be different")
    jobs = []
    for i, (number, prefix, limit) in enumerate(zip(numbers, prefixes, limits, strict=True)):
        tokens = None if source is None else source[i]
        if tokens is not None and not len(tokens):
            raise UsageError(f"source {i} holds no token: an empty sentence is at least its END")
        jobs.append(Job(number, tokens, opening(prefix, translates=translates), limit))
    return jobs


def opening(prefix: Tokens, *, translates: bool) -> list[int]:
    """What the decoder reads before the first token that it writes.

    A translator's target begins with START. A language model reads its prompt as it is, since a text that goes on need
    not have begun there; without a prompt it reads START.
    """
    return [START, *prefix] if translates or not prefix else list(prefix)


def width(job: Job) -> tuple[int, int, int]:
    """What an input takes of a row: tokens of its prefix, of its source, and of its text at most."""
    return len(job.prefix), len(job.source or ()), job.limit


def make_batches(jobs: Sequence[Job], *, rows: int, batch_tokens: int) -> Iterator[list[Job]]:
    """Batches of similar inputs, the longest first, so that what does not fit into memory fails early.

    The rows of a batch stand at the same place, so they have prefixes of one length. An input that is too large for
    `batch_tokens` has a batch of its own.
    """
    queue = Queue(jobs, rows=rows, batch_tokens=batch_tokens)
    while batch := queue.take(0):
        yield batch


class Queue:
    """Inputs that wait, the longest first, so that what does not fit into memory fails early."""

    def __init__(self, jobs: Sequence[Job], *, rows: int, batch_tokens: int, free: float = 0.5) -> None:
        if batch_tokens < 1:
            raise UsageError(f"batch_tokens must be at least 1, got {batch_tokens}")
        self.rows, self.batch_tokens = rows, batch_tokens  # rows of an input, tokens of all rows that run together
        self.free = free
        self.jobs = sorted(jobs, key=width)  # the next one is the last
        self.widest = 0  # tokens of the widest row that runs

    def take(self, running: int) -> list[Job]:
        """Those that may enter where so many rows run: as many as fit, with prefixes of one length.

        While rows run nobody enters before the part `free` of the room is: a few at a time would make each step choose
        for many small groups. An input that is too large for all rows together runs alone.
        """
        if running and running * self.widest > self.batch_tokens * (1 - self.free):
            return []
        taken: list[Job] = []
        widest = self.widest if running else 0
        while self.jobs:
            job = self.jobs[-1]
            wider = max(widest, sum(width(job)))
            full = (running + self.rows * (len(taken) + 1)) * wider > self.batch_tokens
            if (full and (running or taken)) or (taken and len(job.prefix) != len(taken[0].prefix)):
                break
            taken.append(self.jobs.pop())
            widest = wider
        self.widest = widest
        return taken
