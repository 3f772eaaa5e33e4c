"""Whole batches written by a GPU without Python between the kernels: steps as CUDA graphs.

E8. One turn of the loop, the decoder's step and the choice (fixed.py), is recorded once for each shape and then
repeated; so is the encoder. Shapes are rounded up, so there are few of them. The host looks now and then whether all
is done, and not at anything else. For a text that is written alone, by a search that chooses on the host or for someone
who reads each token as it comes, the step alone is recorded.

    B inputs   n source tokens   V vocabulary
"""

from __future__ import annotations

import subprocess
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from regard.attention.cache import KVCache
from regard.decoding.requests import Job, width
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Hypothesis, Search
from regard.machine import setting
from regard.models.decoding_state import TransformerState
from regard.text.tokenizers.special_tokens import END, pad_batch

KEPT = 8  # shapes of a model whose graphs are kept
LOOK = 4  # turns between two looks at what is done
FREE = 0.25  # the part of the places that must be free before others enter
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
    """Writes texts at so many places; where one is done, another one takes its place."""

    def __init__(self, model: Any, shape: Shape) -> None:
        from regard.decoding.gpu.decoder import FixedBeam, FixedDecoder, FixedGreedy

        search, alternatives, inputs, capacity, source = shape
        self.model, self.shape = model, shape
        table, _ = model.output_table
        self.device = table.device
        kind: Any = FixedBeam if isinstance(search, Beam) else FixedGreedy
        self.search = kind(search, inputs, capacity, alternatives, self.device)
        self.decoder = FixedDecoder(model, inputs=inputs, sharing=self.search.rows, capacity=capacity, source=source)
        self.barred = torch.zeros(len(table), device=self.device)
        self.encoding: Recorded | None = None
        if source:
            self.source = torch.full((inputs, source), model.config.pad_id, device=self.device)
            self.source[:, 0] = END  # places without an input: attention to nothing would be no number
            self.encoding = Recorded(self.encode, self.device)
        self.search.begin([Job(0, None, [END], 1)], torch.zeros(1, dtype=torch.long, device=self.device))
        self.turning = Recorded(self.turn, self.device)
        self.turns = self.fresh = 0  # so far, and at the last entry
        if self.device.type == "cuda":
            self.looks = torch.zeros(2, inputs, dtype=torch.int32).pin_memory()
            self.events = [torch.cuda.Event() for _ in range(2)]

    def encode(self) -> None:
        encoded = self.model.encode(self.source)
        self.decoder.remember(self.model.decoder.project_source(encoded.states), encoded.keep)

    def turn(self) -> None:
        slots = self.search.slots
        self.search.choose(self.decoder.step(slots.tokens, slots.lengths, self.search.moved), self.barred)

    def write(self, jobs: Sequence[Job], barred: Tensor) -> dict[int, list[Hypothesis]]:
        """The texts of all jobs, whose prefixes have one length."""
        self.barred.copy_(barred)
        self.decoder.refresh()
        self.search.slots.done.fill_(1)
        self.turns = 0
        found: dict[int, list[Hypothesis]] = {}
        waiting = [*reversed(jobs)]
        running: dict[int, Job] = {}  # by their places
        last: dict[int, int] = {}  # the turn after which each is done at the latest
        while waiting or running:
            entering = [place for place in range(self.shape.inputs) if place not in running][: len(waiting)]
            running |= {place: waiting.pop() for place in entering}
            last |= {place: self.turns + running[place].limit for place in entering}
            self.enter([running[place] for place in entering], entering)
            enough = max(1, int(FREE * self.shape.inputs)) if waiting else len(running)
            leaving: list[int] = []
            while len(leaving) < enough:
                self.turning()
                self.turns += 1
                if self.turns >= max(last[place] for place in running):
                    leaving = [*running]
                elif self.turns % LOOK == 0:
                    leaving = [place for place in self.look() if place in running]
            found |= self.search.results([running.pop(place) for place in leaving], self.places(leaving))
        return found

    def enter(self, jobs: Sequence[Job], places: Sequence[int]) -> None:
        """Let inputs take these places."""
        at = self.places(places)
        if self.encoding is not None:
            sources = pad_batch([job.source or () for job in jobs], pad_id=self.model.config.pad_id)
            padded = torch.full((len(jobs), self.shape.source), self.model.config.pad_id)
            padded[:, : sources.shape[1]] = sources
            self.source[at] = padded.to(self.device, non_blocking=True)
            self.encoding()  # those that are there, too, which is as quick
        self.search.begin(jobs, at)
        if len(jobs[0].prefix) > 1:
            self.prefill(jobs, at)
        self.fresh = self.turns

    def prefill(self, jobs: Sequence[Job], at: Tensor) -> None:
        """Read all but the last token of the prefixes at once."""
        prefix = torch.tensor([job.prefix[:-1] for job in jobs], device=self.device)
        if self.encoding is None:
            state = self.model.start(len(jobs), prefix.shape[1])
        else:
            state = self.model.start(self.model.encode(self.source[at]), prefix.shape[1])
        self.model.decode(prefix, state=state)
        self.decoder.take(state, at)

    def look(self) -> list[int]:
        """The places that were done at the look before this one: the device goes on while the host waits for that."""
        done = self.search.slots.done
        if self.device.type != "cuda":
            return done.nonzero()[:, 0].tolist()
        now = self.turns // LOOK % 2
        self.looks[now].copy_(done, non_blocking=True)
        self.events[now].record()
        if self.turns - self.fresh <= LOOK:  # the look before was one at others
            return []
        self.events[1 - now].synchronize()
        return self.looks[1 - now].nonzero()[:, 0].tolist()

    def places(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers).to(self.device, non_blocking=True)  # the device may still be at work


class FixedRow:
    """Takes the steps of one text. Its state lives in the buffers here until another one's does."""

    def __init__(self, model: Any, capacity: int, source: int) -> None:
        from regard.decoding.gpu.decoder import FixedDecoder

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
        self.length.fill_(state.caches[0].length)  # KVCaches, all of them
        self.turning()
        for cache in state.caches:
            cache.length += 1
        assert self.scores is not None
        return self.scores

    def take(self, state: TransformerState) -> None:
        """Let this state live here; the one before gets buffers of its own."""
        if (before := self.owner()) is not None:
            for cache in before.caches:
                cache.k, cache.v = cache.k.clone(), cache.v.clone()
        self.decoder.refresh()
        self.decoder.take(state, torch.zeros(1, dtype=torch.long, device=self.token.device))
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
    model: Any,
    jobs: Sequence[Job],
    *,
    search: Search,
    alternatives: int,
    allow_unknown: bool,
    batch_tokens: int = 8192,
) -> dict[int, list[Hypothesis]]:
    """What the modules would write for these jobs, or for some of them: the others they must write."""
    from regard.decoding.gpu.decoder import bars

    table, _ = model.output_table
    barred = bars(len(table), allow_unknown, table.device)
    own = writers_of(model)
    found: dict[int, list[Hypothesis]] = {}
    longest_first = sorted(jobs, key=lambda job: (_group(job), width(job)), reverse=True)
    for _, group in groupby(longest_first, key=_group):
        some = [*group]
        prefix, source = len(some[0].prefix), round_up(max(len(job.source or ()) for job in some), ROUND["source"])
        # One place more than is needed: rows that are done stand there while others go on.
        capacity = round_up(prefix + max(job.limit for job in some), ROUND["capacity"])
        room = max(1, batch_tokens // (search.rows(alternatives) * (capacity + source)))
        inputs = min(1 << (len(some) - 1).bit_length(), 1 << (room.bit_length() - 1))
        shape = Shape(search, alternatives, inputs, capacity, source)
        with own.lock:
            writer = own.get(shape, partial(FixedWriter, model, shape))
            found |= {} if writer is None else writer.write(some, barred)
    return found


def _group(job: Job) -> tuple[int, int, int]:
    """Inputs of one group are written together: prefixes of one length, sources and limits of about one."""
    return len(job.prefix), len(job.source or ()).bit_length(), job.limit.bit_length()


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
        row = own.get((capacity, source), partial(FixedRow, model, capacity, source))
        return None if row is None else row.step(state, tokens).clone()  # the next step writes over it


def can_capture(model: Any, search: Search) -> bool:
    """Whether `write_captured` can write this search by this model."""
    plain = not search.rules and type(search) in (Greedy, Beam)
    return plain and (not isinstance(search, Beam) or search.width <= WIDEST) and can_record(model)


def can_record(model: Any) -> bool:
    """Whether a step of this model can be recorded: a known decoder on a GPU, which nobody watches.

    To look for a fault, REGARD_GRAPHS=0 in the environment leaves all steps to the modules.
    """
    device = next(model.parameters()).device.type
    if device not in DEVICES or setting("REGARD_GRAPHS") == "0" or torch.is_autocast_enabled(device):
        return False
    try:
        from regard.decoding.gpu.decoder import is_known
    except ImportError:  # torch has brought no Triton along
        return False
    return is_known(model) and not any(one._forward_hooks or one._forward_pre_hooks for one in modules(model))


def pointers(model: nn.Module) -> list[int]:
    """Where the weights lie: a recorded turn reads them there."""
    every = (weight for module in modules(model) for weight in module._parameters.values())
    return [weight.data_ptr() for weight in every if weight is not None]


def modules(model: nn.Module) -> list[nn.Module]:
    """All modules, in a tenth of the time that torch takes to name them: this is asked at each call."""
    found = [model]
    for module in found:  # the list grows meanwhile
        found += [one for one in module._modules.values() if one is not None]
    return found
