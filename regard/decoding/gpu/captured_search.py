"""Whole batches decoded by a GPU: encode, step and choose are CUDA graphs, which the host replays.

E8. One turn of the decoding loop, a step of the decoder and the choice of tokens, is captured once for each shape. The
host checks only now and then which texts are done.

    B lanes   n source tokens   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.decoding.gpu import support
from regard.decoding.gpu.cuda_graphs import CapturedWork, graphs_of, round_up
from regard.decoding.requests import Request, row_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Hypothesis, Search
from regard.text.tokenizers.special_tokens import DEFAULT, END, pad_batch, special_tokens_of

TURNS_PER_LOOK = 4  # turns of the loop between two looks at which texts are done
FREE_SHARE = 0.25  # of the lanes that must be free before waiting inputs enter
MAX_BEAM_WIDTH = 32  # whose candidates fit into one program


class GraphKey(NamedTuple):
    """What a graph is captured for."""

    search: Search
    alternatives: int
    inputs: int
    capacity: int
    source_length: int


def why_not(model: Any, search: Search) -> str | None:
    """Return the reason why this search by this model cannot run on the GPU alone, or None if it can."""
    if type(search) not in (Greedy, Beam):
        return f"{type(search).__name__} chooses on the host"
    if search.rules:
        return "the search has rules, which run on the host"
    if isinstance(search, Beam) and search.width > MAX_BEAM_WIDTH:
        return f"the beam is wider than {MAX_BEAM_WIDTH}"
    if special_tokens_of(model) != DEFAULT:
        return "the model has special tokens of its own"
    return support.why_not(model)


class CapturedSearch:
    """A search over a fixed number of lanes; when a text is done, a waiting input takes over its lane."""

    def __init__(self, model: Any, shape: GraphKey) -> None:
        from regard.decoding.gpu.decoder import GpuDecoder
        from regard.decoding.gpu.searches import GpuBeam, GpuGreedy

        self.model, self.shape = model, shape
        search, alternatives, inputs, capacity, source_length = shape
        table, _ = model.output_table
        self.device = table.device
        kind: Any = GpuBeam if isinstance(search, Beam) else GpuGreedy
        self.search = kind(search, inputs, capacity, alternatives, self.device)
        self.decoder = GpuDecoder(
            model,
            inputs=inputs,
            rows_per_input=self.search.rows_per_input,
            capacity=capacity,
            source_length=source_length,
        )
        self.barred = torch.zeros(len(table), device=self.device)
        self.captured_encode: CapturedWork | None = None
        if source_length:
            self.source = torch.full((inputs, source_length), model.config.pad_id, device=self.device)
            self.source[:, 0] = END  # also in empty lanes, where attention to no token would give NaN
            self.captured_encode = CapturedWork(self.encode, self.device)
        self.search.begin([Request(0, None, [END], 1)], torch.zeros(1, dtype=torch.long, device=self.device))
        self.captured_turn = CapturedWork(self.turn, self.device)
        self.turns = self.turns_at_entry = 0  # so far, and when inputs last entered
        if self.device.type == "cuda":
            self.looks = torch.zeros(2, inputs, dtype=torch.int32).pin_memory()
            self.events = [torch.cuda.Event() for _ in range(2)]

    def encode(self) -> None:
        encoded = self.model.encode(self.source)
        self.decoder.load_source(self.model.decoder.project_source(encoded.states), encoded.keep)

    def turn(self) -> None:
        buffers = self.search.buffers
        scores = self.decoder.step(buffers.tokens, buffers.lengths, self.search.origins)
        self.search.choose(scores, self.barred)

    def write(self, requests: Sequence[Request], barred: Tensor) -> dict[int, list[Hypothesis]]:
        """Return the hypotheses of all requests, whose prefixes have the same length."""
        self.barred.copy_(barred)
        self.decoder.refresh()
        self.search.buffers.done.fill_(1)
        self.turns = 0
        hypotheses: dict[int, list[Hypothesis]] = {}
        waiting = [*reversed(requests)]
        running: dict[int, Request] = {}  # by lane
        last_turn: dict[int, int] = {}  # the turn after which the text of a lane is done at the latest
        while waiting or running:
            free_lanes = [lane for lane in range(self.shape.inputs) if lane not in running][: len(waiting)]
            running |= {lane: waiting.pop() for lane in free_lanes}
            last_turn |= {lane: self.turns + running[lane].limit for lane in free_lanes}
            self.enter([running[lane] for lane in free_lanes], free_lanes)
            enough = max(1, int(FREE_SHARE * self.shape.inputs)) if waiting else len(running)
            leaving: list[int] = []
            while len(leaving) < enough:
                self.captured_turn()
                self.turns += 1
                if self.turns >= max(last_turn[lane] for lane in running):
                    leaving = [*running]
                elif self.turns % TURNS_PER_LOOK == 0:
                    leaving = [lane for lane in self.look() if lane in running]
            hypotheses |= self.search.results([running.pop(lane) for lane in leaving], self.on_device(leaving))
        return hypotheses

    def enter(self, requests: Sequence[Request], lane_numbers: Sequence[int]) -> None:
        """Let requests enter these lanes."""
        lanes = self.on_device(lane_numbers)
        if self.captured_encode is not None:
            sources = pad_batch([request.source or () for request in requests], pad_id=self.model.config.pad_id)
            padded = torch.full((len(requests), self.shape.source_length), self.model.config.pad_id)
            padded[:, : sources.shape[1]] = sources
            self.source[lanes] = padded.to(self.device, non_blocking=True)
            self.captured_encode()  # of all lanes, which is as fast
        self.search.begin(requests, lanes)
        if len(requests[0].prefix) > 1:
            self.prefill(requests, lanes)
        self.turns_at_entry = self.turns

    def prefill(self, requests: Sequence[Request], lanes: Tensor) -> None:
        """Read the prefixes without their last tokens, in one pass of the modules."""
        prefix = torch.tensor([request.prefix[:-1] for request in requests], device=self.device)
        if self.captured_encode is None:
            state = self.model.start(len(requests), prefix.shape[1])
        else:
            state = self.model.start(self.model.encode(self.source[lanes]), prefix.shape[1])
        self.model.decode(prefix, state=state)
        self.decoder.load_cache(state, lanes)

    def look(self) -> list[int]:
        """Return the lanes that were done at the previous check; the GPU continues during the copy to the host."""
        done = self.search.buffers.done
        if self.device.type != "cuda":
            return done.nonzero()[:, 0].tolist()
        current = self.turns // TURNS_PER_LOOK % 2
        self.looks[current].copy_(done, non_blocking=True)
        self.events[current].record()
        if self.turns - self.turns_at_entry <= TURNS_PER_LOOK:  # the previous look was at other inputs
            return []
        self.events[1 - current].synchronize()
        return self.looks[1 - current].nonzero()[:, 0].tolist()

    def on_device(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers).to(self.device, non_blocking=True)  # does not wait for the GPU


@torch.inference_mode()
def search_captured(
    model: Any,
    requests: Sequence[Request],
    *,
    search: Search,
    alternatives: int,
    allow_unknown: bool,
    batch_tokens: int = 8192,
) -> dict[int, list[Hypothesis]]:
    """Return the hypotheses that the modules would find, by request number.

    Requests whose shape could not be captured are left out; the modules must decode them.
    """
    from regard.decoding.gpu.searches import bar_tokens

    table, _ = model.output_table
    barred = bar_tokens(len(table), allow_unknown, table.device)
    graphs = graphs_of(model)
    hypotheses: dict[int, list[Hypothesis]] = {}
    longest_first = sorted(requests, key=lambda request: (_group(request), row_tokens(request)), reverse=True)
    for _, members in groupby(longest_first, key=_group):
        group = [*members]
        source_length = round_up(max(len(request.source or ()) for request in group), "source")
        # One position more than the texts need: rows that are done write there while others go on.
        capacity = round_up(len(group[0].prefix) + max(request.limit for request in group), "capacity")
        most = max(1, batch_tokens // (search.rows(alternatives) * (capacity + source_length)))
        inputs = min(1 << (len(group) - 1).bit_length(), 1 << (most.bit_length() - 1))
        shape = GraphKey(search, alternatives, inputs, capacity, source_length)
        with graphs.lock:
            captured = graphs.get(shape, partial(CapturedSearch, model, shape))
            hypotheses |= {} if captured is None else captured.write(group, barred)
    return hypotheses


def _group(request: Request) -> tuple[int, int, int]:
    """Requests of one group are decoded together: prefixes of one length, sources and limits of similar lengths."""
    return len(request.prefix), len(request.source or ()).bit_length(), request.limit.bit_length()
