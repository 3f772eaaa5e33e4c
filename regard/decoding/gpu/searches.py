"""Greedy and beam search with fixed shapes on a GPU: kernels choose, and the host reads the texts when they are done.

E8. A lane is the place of an input in the batch. It has one row in greedy search; in beam search it has a row for each
slot of the beam.

    B lanes   w beam width   T longest text   N hypotheses of all inputs
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.decoding.requests import Request
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Hypothesis, make_hypothesis
from regard.kernels.decode_gpu.beam_triton import BeamBuffers, choose_beam
from regard.kernels.decode_gpu.greedy_triton import GreedyBuffers, choose_greedy
from regard.text.tokenizers.special_tokens import END, PAD, START, UNKNOWN


class GpuGreedy:
    """Greedy search over rows that stay in place."""

    rows_per_input = 1
    origins = None  # no row ever takes over the text of another

    def __init__(self, search: Greedy, inputs: int, capacity: int, alternatives: int, device: Any) -> None:
        tokens, lengths, written, limits, done = (
            torch.zeros(inputs, dtype=torch.int32, device=device) for _ in range(5)
        )
        texts = torch.zeros(capacity, inputs, dtype=torch.int32, device=device)
        logps = torch.zeros_like(texts, dtype=torch.float32)
        self.buffers = GreedyBuffers(tokens, lengths, written, limits, done, texts, logps)

    def begin(self, requests: Sequence[Request], lanes: Tensor) -> None:
        begin_texts(self.buffers, requests, lanes, 1)

    def choose(self, scores: Tensor, barred: Tensor) -> None:
        choose_greedy(scores, barred, self.buffers)

    def results(self, requests: Sequence[Request], lanes: Tensor) -> dict[int, list[Hypothesis]]:
        counts = self.buffers.written[lanes].tolist()
        texts, logps = (x[: max(counts), lanes].T.tolist() for x in (self.buffers.texts, self.buffers.logps))
        return {
            request.number: [make_hypothesis(tokens[:count], token_logps[:count], tokens[count - 1] == END)]
            for request, count, tokens, token_logps in zip(requests, counts, texts, logps, strict=True)
        }


class GpuBeam:
    """Beam search over rows whose keys and values stay in place.

    When a hypothesis continues in another row, only `origins` changes: it says which row of the cache holds each of
    its tokens (see beam_triton.py). The texts are stored as chains of parents, which `results` follows back.
    """

    def __init__(self, search: Beam, inputs: int, capacity: int, alternatives: int, device: Any) -> None:
        self.rows_per_input, self.length_penalty = search.width, search.length_penalty
        self.max_finished = search.max_finished(alternatives) or search.width * capacity  # more than there can be
        integers: dict[str, Any] = {"dtype": torch.int32, "device": device}
        floats: dict[str, Any] = {"dtype": torch.float32, "device": device}
        rows = inputs * search.width
        # All that the results are made of is stored side by side, so that it is copied to the host at once.
        self.chains = torch.zeros(3, capacity, inputs, search.width, **integers)
        self.chain_scores = torch.zeros(3, capacity, inputs, search.width, **floats)
        parents, texts, end_parents = self.chains
        logps, end_scores, end_logps = self.chain_scores
        self.buffers = BeamBuffers(
            tokens=torch.zeros(rows, **integers),
            lengths=torch.zeros(rows, **integers),
            origins=torch.arange(rows, **integers)[:, None].repeat(1, capacity),  # an input's rows have the same prefix
            written=torch.zeros(inputs, **integers),
            limits=torch.zeros(inputs, **integers),
            done=torch.zeros(inputs, **integers),
            finished=torch.zeros(inputs, **integers),
            scores=torch.zeros(inputs, search.width, **floats),
            rankings=torch.zeros(inputs, alternatives, **floats),
            parents=parents,
            texts=texts,
            logps=logps,
            end_parents=end_parents,
            end_scores=end_scores,
            end_logps=end_logps,
        )
        self.first_scores = torch.full((search.width,), -math.inf, device=device)
        self.first_scores[0] = 0.0  # the hypothesis without a token

    @property
    def origins(self) -> Tensor:
        return self.buffers.origins

    def begin(self, requests: Sequence[Request], lanes: Tensor) -> None:
        begin_texts(self.buffers, requests, lanes, self.rows_per_input)
        self.buffers.scores[lanes] = self.first_scores
        self.buffers.rankings[lanes] = -math.inf
        self.buffers.finished[lanes] = 0

    def choose(self, scores: Tensor, barred: Tensor) -> None:
        choose_beam(scores, barred, self.buffers, self.length_penalty, self.max_finished)

    def results(self, requests: Sequence[Request], lanes: Tensor) -> dict[int, list[Hypothesis]]:
        """Return the hypotheses of each input: finished ones, best first, then live ones if there are too few."""
        wanted = self.buffers.rankings.shape[1]
        written, scores = self.buffers.written[lanes].tolist(), self.buffers.scores[lanes].tolist()
        parents, texts, end_parents = self.chains[:, : max(written), lanes].cpu()  # (T, B, w)
        logps, end_scores, end_logps = self.chain_scores[:, : max(written), lanes].cpu()
        chains: list[list[Chain]] = [[] for _ in requests]
        ended = end_scores > -math.inf
        columns = (x[ended].tolist() for x in (end_scores, end_parents, end_logps))
        for (t, b, _), score, slot, end_logp in zip(ended.nonzero().tolist(), *columns, strict=True):
            if t < written[b]:  # otherwise it is left over from an earlier input
                chains[b].append(Chain(score / (t + 1) ** self.length_penalty, b, t, slot, end_logp))
        for b, (finished, count) in enumerate(zip(chains, written, strict=True)):
            finished.sort(key=lambda chain: -chain.ranking)
            del finished[wanted:]
            live = [(slot, score) for slot, score in enumerate(scores[b]) if score != -math.inf]
            finished += [
                Chain(score / count**self.length_penalty, b, count, slot)
                for slot, score in live[: wanted - len(finished)]
            ]
        every = [chain for several in chains for chain in several]
        # Only the parents become a list: to convert all tensors would take as long as some of the steps.
        parent_list = parents.flatten().tolist()
        indices = torch.tensor(
            [chain.trace(parent_list, *parents.shape) for chain in every], dtype=torch.long
        )  # (N, T)
        tokens, token_logps = (x.flatten()[indices].tolist() for x in (texts, logps))
        hypotheses: dict[int, list[Hypothesis]] = {request.number: [] for request in requests}
        for chain, chain_tokens, chain_logps in zip(every, tokens, token_logps, strict=True):
            hypotheses[requests[chain.input].number].append(chain.hypothesis(chain_tokens, chain_logps))
        return hypotheses


class Chain(NamedTuple):
    """A hypothesis as the buffers store it: follow the parents back from its last slot."""

    ranking: float
    input: int
    steps: int  # before its END
    slot: int  # after these steps
    end_logp: float | None = None  # the log-probability of its END, if it is finished

    def trace(self, parents: list[int], longest: int, inputs: int, width: int) -> list[int]:
        """Return the indices of its tokens among those of all steps, inputs and slots, then 0 up to the longest."""
        indices, slot = [0] * longest, self.slot
        for t in range(self.steps - 1, -1, -1):
            indices[t] = (t * inputs + self.input) * width + slot
            slot = parents[indices[t]]
        return indices

    def hypothesis(self, tokens: list[int], logps: list[float]) -> Hypothesis:
        tokens, logps = tokens[: self.steps], logps[: self.steps]
        if self.end_logp is None:
            return make_hypothesis(tokens, logps, False, self.ranking)
        return make_hypothesis([*tokens, END], [*logps, self.end_logp], True, self.ranking)


def begin_texts(buffers: GreedyBuffers | BeamBuffers, requests: Sequence[Request], lanes: Tensor, width: int) -> None:
    """Begin new texts in these lanes: nothing is written, and the next token to read is the last of each prefix."""
    rows = (width * lanes[:, None] + torch.arange(width, device=lanes.device)).flatten()
    limits, last_tokens = [request.limit for request in requests], [request.prefix[-1] for request in requests]
    values = torch.tensor([limits, last_tokens], dtype=torch.int32).to(lanes.device, non_blocking=True)
    buffers.limits[lanes] = values[0]
    buffers.tokens[rows] = values[1].repeat_interleave(width)
    buffers.lengths[rows] = len(requests[0].prefix) - 1
    buffers.written[lanes] = 0
    buffers.done[lanes] = 0


def bar_tokens(vocabulary: int, allow_unknown: bool, device: Any) -> Tensor:
    """Return what is added to the scores, (V,): -inf for tokens that must not be chosen, 0 for all others."""
    barred = torch.zeros(vocabulary)
    barred[[PAD, START] if allow_unknown else [PAD, START, UNKNOWN]] = -math.inf
    return barred.to(device, non_blocking=True)
