"""How fast a model writes on this machine: tokens a second, latencies, memory, and how near it comes to the floor.

One token at a time, a decoder does little but read its weights. So no step at batch 1 is faster than reading them once,
also for all rows of a beam:

    floor = bytes of weights that a step reads / bytes a second that this machine reads
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from typing import Any

import torch
from torch import nn

from regard.attention.projections import StackedProjection
from regard.decoding.engine import generate_tokens
from regard.decoding.requests import Tokens, translates
from regard.decoding.searches.observer import Observer, StepRecord
from regard.decoding.searches.search import Search
from regard.errors import UsageError
from regard.layers.block import Block
from regard.machine import peak_allocated, peak_resident, synchronize
from regard.models.protocols import TextModel, TokenPredictor
from regard.text.tokenizers.special_tokens import END, SPECIAL_TOKENS

Clock = Callable[[], float]
Watch = Callable[[Sequence[int]], Iterable[int]]

READS = 30  # how often the weights' bytes are read to find the speed
ONCE = {"bridge", "key"}  # of a recurrent decoder: what is computed once for a text


@dataclass(frozen=True)
class Measured:
    """What was measured; times in seconds, sizes in bytes."""

    batch: int
    tokens: list[int]  # that each run wrote, END among them
    seconds: list[float]  # of each run
    alone_tokens: list[int]  # the same for inputs that were alone
    alone_seconds: list[float]
    alone_steps: list[int]  # of the decoder; a beam may look for longer than its best text is
    step_bytes: int  # of weights that a step reads
    read_speed: float  # bytes a second
    resident: int | None  # the most memory that the process had; None where the system does not tell
    allocated: int | None  # the most that tensors had on a GPU

    @property
    def tokens_per_second(self) -> float:
        """The median over the runs."""
        return median(tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True))

    @property
    def texts_per_second(self) -> float:
        return self.batch / median(self.seconds)

    @property
    def latency(self) -> dict[str, float]:
        """How long an input takes that is alone: half, 90% and 99% of them take no longer."""
        return {f"p{share}": percentile(self.alone_seconds, share) for share in (50, 90, 99)}

    @property
    def step(self) -> float:
        """Seconds a step of the decoder at batch 1, what is done once for a text shared out among its steps."""
        return median(s / n for n, s in zip(self.alone_steps, self.alone_seconds, strict=True))

    @property
    def floor(self) -> float:
        """Seconds to read a step's weights once."""
        return self.step_bytes / self.read_speed

    @property
    def share(self) -> float:
        """How much of a step at batch 1 is the floor; 1 is as fast as can be."""
        return self.floor / self.step

    def to_dict(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "tokens_per_second": self.tokens_per_second,
            "texts_per_second": self.texts_per_second,
            "latency": self.latency,
            "step": self.step,
            "floor": self.floor,
            "share_of_floor": self.share,
            **vars(self),
        }


def measure_decoding(
    model: TextModel,
    inputs: Sequence[Tokens],
    *,
    search: Search,
    max_tokens: int | Sequence[int],
    batch: int,
    runs: int,
    clock: Clock = time.perf_counter,
    watch: Watch = iter,
) -> Measured:
    """Write texts for `runs` batches of inputs, and for as many inputs alone, one after the other.

    The inputs are sources, or prompts of a language model; where there are too few, they come again. One batch and one
    input before the clock runs warm everything up, and those whose steps must be counted run once more. `watch` sees
    the runs go by.
    """
    if not inputs or min(batch, runs) < 1:
        raise UsageError(f"nothing to measure: {len(inputs)} inputs, batch {batch}, {runs} runs")
    device = next(model.parameters()).device
    limits = [max_tokens] * len(inputs) if isinstance(max_tokens, int) else list(max_tokens)
    jobs = list(islice(cycle(zip(inputs, limits, strict=True)), batch * runs))

    def timed(first: int, last: int) -> tuple[int, float]:
        start = now(device, clock)
        tokens = write_texts(model, jobs[first:last], search)
        return tokens, now(device, clock) - start

    write_texts(model, jobs[:batch], search)
    write_texts(model, jobs[:1], search)
    together, alone = [], []
    for run in watch(range(runs)):
        alone.append(timed(run, run + 1))
        together.append(timed(run * batch, (run + 1) * batch) if batch > 1 else alone[-1])
    resident, allocated = peak_resident(), peak_allocated(device)  # before the buffer of read_speed
    size = step_bytes(model)
    alone_tokens = [tokens for tokens, _ in alone]
    steps = alone_tokens if search.streams else [count_steps(model, job, search) for job in jobs[:runs]]
    return Measured(
        batch=batch,
        tokens=[tokens for tokens, _ in together],
        seconds=[seconds for _, seconds in together],
        alone_tokens=alone_tokens,
        alone_seconds=[seconds for _, seconds in alone],
        alone_steps=steps,
        step_bytes=size,
        read_speed=read_speed(size, device, clock=clock),
        resident=resident,
        allocated=allocated,
    )


class Steps:
    """An observer that counts."""

    candidates = 1

    def __init__(self) -> None:
        self.count = 0

    def step(self, record: StepRecord) -> None:
        self.count += 1


def count_steps(model: TextModel, job: tuple[Tokens, int], search: Search) -> int:
    """How often the decoder runs for an input that is alone; its rows go through it together."""
    steps = Steps()
    write_texts(model, [job], search, steps)
    return steps.count


def write_texts(
    model: TextModel, jobs: Sequence[tuple[Tokens, int]], search: Search, observer: Observer | None = None
) -> int:
    """Write a text for each input, up to its limit, all at once; how many tokens that were."""
    inputs = [tokens for tokens, _ in jobs]
    has_source = translates(model)
    results = generate_tokens(
        model,
        inputs if has_source else None,
        prefixes=None if has_source else inputs,
        search=search,
        max_tokens=[limit for _, limit in jobs],
        batch_tokens=sys.maxsize,
        observer=observer,
    )
    return sum(len(best.tokens) for best, *_ in results)


def random_inputs(model: TextModel, count: int, length: int, *, seed: int = 0) -> list[list[int]]:
    """Inputs of so many tokens, drawn from the vocabulary; a source ends with END, which is one of them."""
    has_source = translates(model)
    vocabulary = model.config.source_vocabulary if has_source else model.config.vocabulary
    if length < 1 or vocabulary <= len(SPECIAL_TOKENS):
        raise UsageError(f"no inputs of {length} tokens can be made of {vocabulary}")
    draw = random.Random(seed)
    tokens = range(len(SPECIAL_TOKENS), vocabulary)
    end = [END] if has_source else []
    return [draw.choices(tokens, k=length - len(end)) + end for _ in range(count)]


def step_bytes(model: TextModel) -> int:
    """Bytes of weights that a step of the decoder must read: all of them, and the table of the output.

    Not the matrices that make the source's keys and values, which are used once for a text, and not embeddings, of
    which a step reads a row.
    """
    assert isinstance(model, TokenPredictor)
    decoder: nn.Module = getattr(model, "decoder", None) or model.get_submodule("rnn")
    read = {id(weight): weight for weight in model.output_table if weight is not None}
    for name, weight in decoder.named_parameters():
        if not {"embedding", *ONCE} & set(name.split(".")):
            read[id(weight)] = weight
    size = sum(map(stored_bytes, read.values()))
    for block in decoder.modules():
        if isinstance(block, Block) and (cross := block.cross_attention) is not None:
            for part in cross.modules():
                if isinstance(part, StackedProjection):  # of W_Q, and W_K with W_V
                    size -= sum(map(stored_bytes, part.parameters())) * sum(part.rows[1:]) // sum(part.rows)
    return size


def stored_bytes(weight: Any) -> int:
    """The size of a weight, also of one in a form of its own (quantize.py), with its scales."""
    scales = getattr(weight, "scales", None)
    return int(getattr(weight, "numbers", weight).nbytes + (0 if scales is None else scales.nbytes))


def read_speed(size: int, device: torch.device, *, clock: Clock = time.perf_counter) -> float:
    """Bytes a second at which `size` bytes are read again and again: the best of several sums, by as many threads.

    As many bytes as a step's weights, for what of those stays in a cache from step to step stays there here, too.
    """
    numbers = torch.ones(max(size // 4, 1), device=device)
    times = []
    for _ in range(READS):
        start = now(device, clock)
        numbers.sum()
        times.append(now(device, clock) - start)
    return numbers.nbytes / min(times)


def now(device: torch.device, clock: Clock) -> float:
    """The time when all work on the device is done."""
    synchronize(device)
    return clock()


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that `share` percent of them do not exceed."""
    return sorted(values)[max(math.ceil(share / 100 * len(values)), 1) - 1]
