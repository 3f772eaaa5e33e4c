"""Whole batches written by a GPU without Python between the kernels: steps as CUDA graphs.

E8. One turn of the loop, the decoder's step and the choice (fixed.py), is recorded once for each shape and then
repeated; so is the encoder. Shapes are rounded up, so there are few of them. The host looks now and then whether all
is done, and not at anything else. For a text that is written alone, by a search that chooses on the host or for someone
who reads each token as it comes, the step alone is recorded.

    B inputs   n source tokens   V vocabulary
"""

from __future__ import annotations

import os
import subprocess
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from regard.attention.cache import KVCache
from regard.decoding.beam import Beam
from regard.decoding.greedy import Greedy
from regard.decoding.jobs import Job
from regard.decoding.search import Hypothesis, Search
from regard.models.state import TransformerState
from regard.text.special import END, pad_batch

KEPT = 8  # shapes of a model whose graphs are kept
LOOK = 4  # turns between two looks at what is done
DEVICES = ("cuda",)  # that record
WIDEST = 32  # beam whose candidates one program can hold
ROUND = {"source": 16, "capacity": 64}


class Shape(NamedTuple):
    """What a recorded turn is made for."""

    search: Search
    alternatives: int
    inputs: int
    capacity: int
    source: int


def round_up(number: int, step: int) -> int:
    return -(-number // step) * step


class Recorded:
    """A piece of work on the device, repeated by one command; where nothing can be recorded, done anew."""

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        self.work, self.graph = work, None
        if device.type != "cuda":
            return
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # kernels are compiled and chosen at their first use
                work()
        torch.cuda.current_stream(device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            work()

    def __call__(self) -> None:
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()


class FixedWriter:
    """Writes batches of one shape."""

    def __init__(self, model: Any, shape: Shape) -> None:
        from regard.decoding.fixed import FixedBeam, FixedDecoder, FixedGreedy

        search, alternatives, inputs, capacity, source = shape
        self.model, self.shape = model, shape
        table, _ = model.output_table
        self.device = table.device
        kind: Any = FixedBeam if isinstance(search, Beam) else FixedGreedy
        self.search = kind(search, inputs, capacity, capacity, alternatives, self.device)
        self.decoder = FixedDecoder(model, inputs=inputs, sharing=self.search.rows, capacity=capacity, source=source)
        self.barred = torch.zeros(len(table), device=self.device)
        self.finished = torch.zeros((), dtype=torch.int32, device=self.device)
        self.encoding: Recorded | None = None
        if source:
            self.source = torch.full((inputs, source), model.config.pad_id, device=self.device)
            self.source[:, 0] = END
            self.encoding = Recorded(self.encode, self.device)
        nothing = Job(0, None, [END], 1)
        self.search.begin([nothing] * inputs)
        self.turning = Recorded(self.turn, self.device)
        if self.device.type == "cuda":
            self.looks = torch.zeros(2, dtype=torch.int32).pin_memory()
            self.events = [torch.cuda.Event() for _ in range(2)]

    def encode(self) -> None:
        encoded = self.model.encode(self.source)
        self.decoder.remember(self.model.decoder.remember(encoded.states), encoded.keep)

    def turn(self) -> None:
        slots = self.search.slots
        self.search.choose(self.decoder.step(slots.tokens, slots.lengths, self.search.moved), self.barred)
        torch.sum(slots.done, 0, dtype=torch.int32, out=self.finished)

    def write(self, jobs: Sequence[Job], barred: Tensor) -> dict[int, list[Hypothesis]]:
        self.barred.copy_(barred)
        self.decoder.refresh()
        if self.encoding is not None:
            sources = pad_batch([job.source or () for job in jobs], pad_id=self.model.config.pad_id)
            self.source.fill_(self.model.config.pad_id)
            self.source[:, 0] = END  # spare inputs: attention to nothing would be no number
            self.source[: len(jobs), : sources.shape[1]] = sources.to(self.device, non_blocking=True)
            self.encoding()
        self.search.begin(jobs)
        if len(jobs[0].prefix) > 1:
            self.prefill(jobs)
        for turn in range(max(job.limit for job in jobs)):
            self.turning()
            if turn % LOOK == LOOK - 1 and self.all_done(turn // LOOK):
                break
        return self.search.results(jobs)

    def prefill(self, jobs: Sequence[Job]) -> None:
        """Read all but the last token of the prefixes at once."""
        prefix = torch.tensor([job.prefix[:-1] for job in jobs], device=self.device)
        if self.encoding is None:
            state = self.model.start(len(jobs), prefix.shape[1])
        else:
            state = self.model.start(self.model.encode(self.source[: len(jobs)]), prefix.shape[1])
        self.model.decode(prefix, state=state)
        self.decoder.take(state)

    def all_done(self, look: int) -> bool:
        """Whether all was done at the look before this one: the device goes on while the host waits for that."""
        if self.device.type != "cuda":
            return int(self.finished) == self.shape.inputs
        self.looks[look % 2].copy_(self.finished, non_blocking=True)
        self.events[look % 2].record()
        if look == 0:
            return False
        self.events[(look + 1) % 2].synchronize()
        return int(self.looks[(look + 1) % 2]) == self.shape.inputs


class FixedRow:
    """Takes the steps of one text. Its state lives in the buffers here until another one's does."""

    def __init__(self, model: Any, capacity: int, source: int) -> None:
        from regard.decoding.fixed import FixedDecoder

        self.decoder = FixedDecoder(model, inputs=1, sharing=1, capacity=capacity, source=source)
        device = self.decoder.keys.device
        self.token, self.length = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
        self.scores: Tensor | None = None
        self.owner: Callable[[], TransformerState | None] = lambda: None
        self.turning = Recorded(self.turn, device)

    def turn(self) -> None:
        self.scores = self.decoder.step(self.token, self.length, None)

    def step(self, state: TransformerState, tokens: Tensor) -> Tensor:
        """The scores (1, V) after the token (1, 1); the state moves on."""
        if self.owner() is not state:
            self.take(state)
        self.token.copy_(tokens[0])
        self.length.fill_(state.caches[0].length)  # type: ignore[union-attr]  # KVCaches, all of them
        self.turning()
        for cache in state.caches:
            cache.length += 1  # type: ignore[union-attr]
        assert self.scores is not None
        return self.scores

    def take(self, state: TransformerState) -> None:
        """Let this state live here; the one before gets buffers of its own."""
        if (before := self.owner()) is not None:
            for cache in before.caches:
                cache.k, cache.v = cache.k.clone(), cache.v.clone()
        self.decoder.refresh()
        self.decoder.take(state)
        for layer, cache in enumerate(state.caches):
            cache.k, cache.v = self.decoder.keys[layer], self.decoder.values[layer]
        if state.memory is not None:
            keep = state.memory_mask
            n = state.memory[0].k.shape[2]
            everything = torch.ones(1, n, dtype=torch.bool, device=self.token.device)
            self.decoder.remember(state.memory, everything if keep is None else keep[:, 0, 0])
        self.owner = ref(state)


class Writers:
    """The recorded shapes of a model."""

    def __init__(self, model: nn.Module) -> None:
        self.pointers = pointers(model)
        self.fails = False  # said once, then the modules do it
        self.writers: OrderedDict[Any, Any] = OrderedDict()
        self.lock = threading.RLock()  # a shape has one set of buffers

    def get(self, shape: tuple, make: Callable[[], Any]) -> Any:
        """What was recorded for this shape, or is now; None where that cannot be done."""
        from triton import TritonError

        if shape not in self.writers and not self.fails:
            while len(self.writers) >= KEPT:
                self.writers.popitem(last=False)
            try:
                self.writers[shape] = make()
            except torch.cuda.OutOfMemoryError:  # a smaller batch may fit
                self.writers.clear()
                return None
            except (RuntimeError, OSError, subprocess.SubprocessError, TritonError) as error:
                self.fails = True
                why = str(error).splitlines()[0] if str(error) else type(error).__name__
                warnings.warn(f"decoding cannot be recorded here and is slower ({why})", RuntimeWarning, stacklevel=2)
        if self.fails:
            return None
        self.writers.move_to_end(shape)
        return self.writers[shape]


_writers: WeakKeyDictionary[nn.Module, Writers] = WeakKeyDictionary()


def writers_of(model: nn.Module) -> Writers:
    own = _writers.get(model)
    if own is None or own.pointers != pointers(model):  # the first time, or its weights are others
        own = _writers[model] = Writers(model)
    return own


@torch.inference_mode()
def write_captured(
    model: Any, jobs: Sequence[Job], *, search: Search, alternatives: int, allow_unknown: bool
) -> dict[int, list[Hypothesis]] | None:
    """What the modules would write for these jobs; None where they must do it."""
    from regard.decoding.fixed import bars

    shape = Shape(
        search,
        alternatives,
        inputs=1 << (len(jobs) - 1).bit_length(),
        # One place more than is needed: rows that are done stand there while others go on.
        capacity=round_up(len(jobs[0].prefix) + max(job.limit for job in jobs), ROUND["capacity"]),
        source=round_up(max(len(job.source or ()) for job in jobs), ROUND["source"]),
    )
    table, _ = model.output_table
    own = writers_of(model)
    with own.lock:
        writer = own.get(shape, lambda: FixedWriter(model, shape))
        return None if writer is None else writer.write(jobs, bars(len(table), allow_unknown, table.device))


@torch.inference_mode()
def step_captured(model: Any, state: Any, tokens: Tensor) -> Tensor | None:
    """The scores (1, V) after a token (1, 1), the only row of its state; None where the modules must take the step."""
    if tokens.shape != (1, 1) or not isinstance(state, TransformerState) or type(state.caches[0]) is not KVCache:
        return None
    if state.caches[0].origins is not None or not can_record(model):
        return None
    capacity = round_up(state.caches[0].capacity, ROUND["capacity"])
    source = 0 if state.memory is None else round_up(state.memory[0].k.shape[2], ROUND["source"])
    own = writers_of(model)
    with own.lock:
        row = own.get((capacity, source), lambda: FixedRow(model, capacity, source))
        return None if row is None else row.step(state, tokens).clone()  # the next step writes over it


def can_capture(model: Any, search: Search) -> bool:
    """Whether `write_captured` can write this search by this model."""
    plain = not search.rules and type(search) in (Greedy, Beam)
    return plain and (not isinstance(search, Beam) or search.width <= WIDEST) and can_record(model)


def can_record(model: Any) -> bool:
    """Whether a step of this model can be recorded: a known decoder on a GPU, which nobody watches."""
    device = next(model.parameters()).device.type
    if device not in DEVICES or os.environ.get("REGARD_GRAPHS") == "0" or torch.is_autocast_enabled(device):
        return False
    try:
        from regard.decoding.fixed import is_known
    except ImportError:  # torch has brought no Triton along
        return False
    return is_known(model) and not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def pointers(model: nn.Module) -> list[int]:
    """Where the weights lie: a recorded turn reads them there."""
    return [weight.data_ptr() for weight in model.parameters()]
