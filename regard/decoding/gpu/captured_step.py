"""Single decoding steps of one text, captured as CUDA graphs.

E8. For a search that chooses on the host, such as sampling, and for callers that read each token as it comes.

    V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from regard.attention.cache import KVCache
from regard.decoding.gpu import support
from regard.decoding.gpu.cuda_graphs import CapturedWork, graphs_of, round_up
from regard.models.decoding_state import TransformerState


class CapturedDecoderStep:
    """The step of one row. The caches of one state live in its buffers until another state takes them over."""

    def __init__(self, model: Any, capacity: int, source_length: int) -> None:
        from regard.decoding.gpu.decoder import GpuDecoder

        self.decoder = GpuDecoder(model, inputs=1, rows_per_input=1, capacity=capacity, source_length=source_length)
        device = self.decoder.keys.device
        self.token, self.length = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
        self.scores: Tensor | None = None
        self.owner: Callable[[], TransformerState | None] = lambda: None
        self.captured = CapturedWork(self.run, device)

    def run(self) -> None:
        self.scores = self.decoder.step(self.token, self.length, None)

    def step(self, state: TransformerState, tokens: Tensor) -> Tensor:
        """Return the scores (1, V) after the token (1, 1), and advance the state."""
        if self.owner() is not state:
            self.load(state)
        self.token.copy_(tokens[0])
        self.length.fill_(state.caches[0].length)
        self.captured()
        for cache in state.caches:
            cache.length += 1
        assert self.scores is not None
        return self.scores

    def load(self, state: TransformerState) -> None:
        """Move the caches of a state into the buffers; the previous owner gets copies of its own."""
        if (previous := self.owner()) is not None:
            for cache in previous.caches:
                cache.k, cache.v = cache.k.clone(), cache.v.clone()
        self.decoder.refresh()
        self.decoder.load_cache(state, torch.zeros(1, dtype=torch.long, device=self.token.device))
        for layer, cache in enumerate(state.caches):
            cache.k, cache.v = self.decoder.keys[layer], self.decoder.values[layer]
        if state.memory is not None:
            n = state.memory[0].k.shape[2]
            keep = torch.ones(1, n, dtype=torch.bool, device=self.token.device)
            if state.memory_mask is not None:
                keep = state.memory_mask[:, 0, 0]
            self.decoder.load_source(state.memory, keep)
        self.owner = ref(state)


def why_not(model: Any, state: Any, tokens: Tensor) -> str | None:
    """Return the reason why this step must be taken by the modules, or None if `step_captured` can take it."""
    return _why_not_state(state, tokens) or support.why_not(model)


def _why_not_state(state: Any, tokens: Tensor) -> str | None:
    if tokens.shape != (1, 1):
        return "several rows or tokens"
    if not isinstance(state, TransformerState) or type(state.caches[0]) is not KVCache:
        return "the state has no key-value cache whose rows are of one length"
    return None if state.caches[0].origins is None else "the rows of the cache were reordered"


@torch.inference_mode()
def step_captured(model: Any, state: Any, tokens: Tensor) -> Tensor | None:
    """Return the scores (1, V) after a token (1, 1), or None where the modules must take the step.

    Whether the kernels support the model is asked once for each state. Only what may change is asked at every step.
    """
    if (_why_not_state(state, tokens) or support.why_not_now(model)) is not None:
        return None
    graphs = graphs_of(model)
    if state not in graphs.accepted_states:
        if support.why_not(model) is not None:
            return None
        graphs.accepted_states.add(state)
    capacity = round_up(state.caches[0].capacity, "capacity")
    source_length = 0 if state.memory is None else round_up(state.memory[0].k.shape[2], "source")
    with graphs.lock:
        captured = graphs.get((capacity, source_length), partial(CapturedDecoderStep, model, capacity, source_length))
        return None if captured is None else captured.step(state, tokens).clone()  # the next step overwrites it
