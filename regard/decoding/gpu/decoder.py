"""Decoding with fixed shapes: a step and a search that never ask the host, so that a GPU can repeat them by itself.

E8. The rows of a batch stay where they are until all are done; each has its own place in its text. The step is that of
a Transformer's decoder, by the kernels of step_triton.py and linear_triton.py; many rows are torch's to multiply.

    B inputs   w rows of an input   R = B·w rows   p model width   C capacity   n source tokens   V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import StackedProjection
from regard.decoding.requests import Job
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Hypothesis, close
from regard.kernels.decode_gpu import linear_triton, step_triton
from regard.kernels.decode_gpu.choose_triton import BeamSlots, GreedySlots, go_on, take_best
from regard.kernels.decode_gpu.linear_triton import Norm, add_norm, linear
from regard.layers.block import Block
from regard.layers.feedforward import FeedForward
from regard.layers.normalization import LayerNorm, RMSNorm
from regard.models.decoding_state import TransformerState
from regard.models.language_model import TransformerLM
from regard.models.transformer import Transformer
from regard.positions.absolute import Learned
from regard.positions.rotary import Rotary
from regard.text.tokenizers.special_tokens import END, PAD, START, UNKNOWN

FEW = linear_triton.ROWS  # up to so many rows a norm is part of the product that follows it
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def is_known(model: nn.Module) -> bool:
    """Whether the decoder is of the kind that is written here."""
    return isinstance(model, Transformer | TransformerLM) and all(map(_is_known_block, model.decoder.blocks))


def _is_known_block(block: Block) -> bool:
    attentions = [one for one in (block.self_attention, block.cross_attention) if one is not None]
    norms = [one for one in (block.self_norm, block.cross_norm, block.feed_norm) if one is not None]
    return (
        all(isinstance(norm, LayerNorm | RMSNorm) for norm in norms)
        and isinstance(block.feed_forward, FeedForward)
        and all(
            isinstance(one, MultiHeadAttention)
            and isinstance(one.input, StackedProjection)
            and type(one.input.weight) is nn.Parameter
            and one.input.weight.dtype in DTYPES
            and one.q_norm is None
            and one.window is None
            and one.output is not None
            and one.d_k == one.d_v
            for one in attentions
        )
        and (block.self_attention.position is None or isinstance(block.self_attention.position, Rotary))
    )


class FixedDecoder:
    """A decoder with room for so many rows, places and source tokens."""

    def __init__(self, model: Any, *, inputs: int, sharing: int, capacity: int, source: int) -> None:
        self.model, self.sharing = model, sharing
        self.input = model.target if isinstance(model, Transformer) else model.input
        self.blocks: Sequence[Block] = model.decoder.blocks
        first = self.blocks[0].self_attention
        self.table = self.input.embedding.weight
        self.output, _ = model.output_table
        rows, device = inputs * sharing, self.table.device
        self.heads = first.heads
        self.keys, self.values = (
            self.table.new_zeros(len(self.blocks), rows, first.kv_heads, capacity, first.d_k) for _ in range(2)
        )
        self.turns: tuple[Tensor, bool] | None = None
        if isinstance(first.position, Rotary):
            self.turns = first.position.frequencies(device), first.position.layout == "interleaved"
        self.places = None if self.input.position is None else self.table.new_zeros(capacity, self.table.shape[1])
        if source:
            cross = self.blocks[0].cross_attention
            assert cross is not None
            shape = len(self.blocks), inputs, cross.kv_heads, source, cross.d_k
            self.source_keys, self.source_values = (self.table.new_zeros(shape) for _ in range(2))
            self.keep = torch.zeros(inputs, source, dtype=torch.uint8, device=device)
        self._look_up_places()

    def refresh(self) -> None:
        """Look again at weights that the step does not read itself: those of learned positions."""
        if isinstance(self.input.position, Learned):
            self._look_up_places()

    def _look_up_places(self) -> None:
        if self.places is not None and self.input.position is not None:
            position = self.input.position
            known = (
                len(self.places) if not isinstance(position, Learned) else min(len(self.places), position.max_length)
            )
            at = torch.arange(known, device=self.places.device)  # nobody asks for more
            self.places[:known] = position.embed(torch.zeros_like(self.places[:known])[None], at)[0]

    def remember(self, memories: Sequence[Any], keep: Tensor) -> None:
        """Take the sources (B', n', …) that the model has encoded, as the first of the inputs."""
        inputs, n = keep.shape
        for layer, memory in enumerate(memories):
            self.source_keys[layer, :inputs, :, :n] = memory.k
            self.source_values[layer, :inputs, :, :n] = memory.v
        self.keep.zero_()
        self.keep[:inputs, :n] = keep

    def take(self, state: TransformerState, at: Tensor) -> None:
        """Take what the state has read, for each of the rows of the inputs at these places."""
        rows = (self.sharing * at[:, None] + torch.arange(self.sharing, device=at.device)).flatten()
        for layer, cache in enumerate(state.caches):
            n = cache.length  # a KVCache
            for own, other in ((self.keys, cache.k), (self.values, cache.v)):
                own[layer, rows, :, :n] = other[:, :, :n].repeat_interleave(self.sharing, 0)

    def step(self, tokens: Tensor, lengths: Tensor, table: Tensor | None) -> Tensor:
        """The scores (R, V) of what follows the tokens (R,), each at its place."""
        x = step_triton.embed(tokens, lengths, self.table, self.input.embedding.factor, self.places)
        return (self._few if len(tokens) <= FEW else self._many)(x, lengths, table)

    def _few(self, x: Tensor, lengths: Tensor, table: Tensor | None) -> Tensor:
        """Eight kernels a block: a norm is part of the product after it."""
        norm: Norm | None = None  # that x is still to go through, post-norm
        for layer, block in enumerate(self.blocks):
            pre = block.order == "pre"
            own: Any = block.self_attention
            before = norm_of(block.self_norm) if pre else norm
            qkv = linear(x, own.input.weight, own.input.bias, norm=before)
            mixed = self._look_back(layer, qkv, lengths, table)
            x = linear(mixed, own.output.weight, own.output.bias, residual=x, norm=None if pre else norm)
            norm = norm_of(block.self_norm)
            cross: Any = block.cross_attention
            if cross is not None:
                before = norm_of(block.cross_norm) if pre else norm
                q = linear(x, *query_part(cross), norm=before)
                mixed = self._look_at_source(layer, q, lengths)
                x = linear(mixed, cross.output.weight, cross.output.bias, residual=x, norm=None if pre else norm)
                norm = norm_of(block.cross_norm)
            feed: Any = block.feed_forward
            before = norm_of(block.feed_norm) if pre else norm
            h = linear(x, feed.up.weight, feed.up.bias, norm=before, activation=feed.activation)
            x = linear(h, feed.down.weight, feed.down.bias, residual=x, norm=None if pre else norm)
            norm = norm_of(block.feed_norm)
        last = self.model.decoder.norm
        return linear(x, self.output, None, norm=norm if last is None else norm_of(last))

    def _many(self, x: Tensor, lengths: Tensor, table: Tensor | None) -> Tensor:
        """The same with torch's products; a sum and its norm are one kernel."""
        pre = self.blocks[0].order == "pre"
        norms = [
            norm_of(norm)
            for block in self.blocks
            for norm in (block.self_norm, block.cross_norm, block.feed_norm)
            if norm is not None
        ]
        if pre:  # each is in front of its sublayer, and one more behind the last
            norms.append(norm_of(self.model.decoder.norm))
            x, y = add_norm(x, None, norms.pop(0))
        else:
            y = x
        for layer, block in enumerate(self.blocks):
            own: Any = block.self_attention
            mixed = self._look_back(layer, F.linear(y, own.input.weight, own.input.bias), lengths, table)
            x, y = self._add(x, y, own.output(mixed), norms.pop(0), pre)
            cross: Any = block.cross_attention
            if cross is not None:
                mixed = self._look_at_source(layer, F.linear(y, *query_part(cross)), lengths)
                x, y = self._add(x, y, cross.output(mixed), norms.pop(0), pre)
            x, y = self._add(x, y, block.feed_forward(y), norms.pop(0), pre)
        return F.linear(y, self.output)

    def _add(self, x: Tensor, y: Tensor, more: Tensor, norm: Norm, pre: bool) -> tuple[Tensor, Tensor]:
        return add_norm(x if pre else y, more, norm)

    def _look_back(self, layer: int, qkv: Tensor, lengths: Tensor, table: Tensor | None) -> Tensor:
        return step_triton.attend_own(
            qkv, self.keys[layer], self.values[layer], lengths, table, heads=self.heads, turns=self.turns
        )

    def _look_at_source(self, layer: int, q: Tensor, lengths: Tensor) -> Tensor:
        k, v = self.source_keys[layer], self.source_values[layer]
        return step_triton.attend_source(q, k, v, self.keep, lengths, heads=self.heads)


def norm_of(norm: Any) -> Norm:
    return Norm(norm.weight, getattr(norm, "bias", None), norm.eps, isinstance(norm, RMSNorm))


def query_part(cross: Any) -> tuple[Tensor, Tensor | None]:
    """The matrix of the queries among those of cross-attention, and what it adds."""
    rows = slice(0, cross.heads * cross.d_k)
    return cross.input.weight[rows], None if cross.input.bias is None else cross.input.bias[rows]


class FixedGreedy:
    """Greedy search over rows that stay."""

    rows = 1

    def __init__(self, search: Greedy, inputs: int, capacity: int, alternatives: int, device: Any) -> None:
        whole: dict[str, Any] = {"dtype": torch.int32, "device": device}
        tokens, lengths, written, limits, done = (torch.zeros(inputs, **whole) for _ in range(5))
        texts = torch.zeros(capacity, inputs, **whole)
        self.slots = GreedySlots(
            tokens, lengths, written, limits, done, texts, torch.zeros_like(texts, dtype=torch.float32)
        )

    def begin(self, jobs: Sequence[Job], at: Tensor) -> None:
        begin(self.slots, jobs, at, 1)

    def choose(self, scores: Tensor, barred: Tensor) -> None:
        take_best(scores, barred, self.slots)

    @property
    def moved(self) -> None:
        """Rows are where they were."""

    def results(self, jobs: Sequence[Job], at: Tensor) -> dict[int, list[Hypothesis]]:
        counts = self.slots.written[at].tolist()
        texts, logps = (one[: max(counts), at].T.tolist() for one in (self.slots.texts, self.slots.logps))
        return {
            job.number: [close(tokens[:count], gains[:count], tokens[count - 1] == END)]
            for job, count, tokens, gains in zip(jobs, counts, texts, logps, strict=True)
        }


class FixedBeam:
    """Beam search over rows that stay; keys stay too, and a table says where a hypothesis finds its own."""

    def __init__(self, search: Beam, inputs: int, capacity: int, alternatives: int, device: Any) -> None:
        self.rows, self.penalty = search.width, search.length_penalty
        whole: dict[str, Any] = {"dtype": torch.int32, "device": device}
        real: dict[str, Any] = {"dtype": torch.float32, "device": device}
        rows = inputs * search.width
        # What results are made of lies side by side, so that it comes to the host at once.
        self.numbers = torch.zeros(3, capacity, inputs, search.width, **whole)
        self.sums = torch.zeros(3, capacity, inputs, search.width, **real)
        parents, texts, endings = self.numbers
        logps, totals, last = self.sums
        self.slots = BeamSlots(
            tokens=torch.zeros(rows, **whole),
            lengths=torch.zeros(rows, **whole),
            table=torch.arange(rows, **whole)[:, None].repeat(1, capacity),  # an input's rows have the same prefix
            written=torch.zeros(inputs, **whole),
            limits=torch.zeros(inputs, **whole),
            done=torch.zeros(inputs, **whole),
            scores=torch.zeros(inputs, search.width, **real),
            rankings=torch.zeros(inputs, alternatives, **real),
            parents=parents,
            texts=texts,
            logps=logps,
            endings=endings,
            totals=totals,
            last=last,
        )
        self.first = torch.full((search.width,), -math.inf, device=device)
        self.first[0] = 0.0  # the hypothesis without a token

    def begin(self, jobs: Sequence[Job], at: Tensor) -> None:
        begin(self.slots, jobs, at, self.rows)
        self.slots.scores[at] = self.first
        self.slots.rankings[at] = -math.inf

    def choose(self, scores: Tensor, barred: Tensor) -> None:
        go_on(scores, barred, self.slots, self.penalty)

    @property
    def moved(self) -> Tensor:
        return self.slots.table

    def results(self, jobs: Sequence[Job], at: Tensor) -> dict[int, list[Hypothesis]]:
        """The hypotheses of each input: those that ended, best first, and live ones where that is not enough."""
        s, wanted = self.slots, self.slots.rankings.shape[1]
        written, scores = s.written[at].tolist(), s.scores[at].tolist()
        parents, texts, endings = self.numbers[:, : max(written), at].cpu()  # (T, B, w)
        logps, totals, last = self.sums[:, : max(written), at].cpu()
        chains: list[list[Chain]] = [[] for _ in jobs]
        ended = totals > -math.inf
        ends = zip(ended.nonzero().tolist(), *(one[ended].tolist() for one in (totals, endings, last)), strict=True)
        for (t, b, _), total, slot, gain in ends:
            if t < written[b]:  # not what another input has left there
                chains[b].append(Chain(total / (t + 1) ** self.penalty, b, t, slot, gain))
        for b, (own, count) in enumerate(zip(chains, written, strict=True)):
            own.sort(key=lambda chain: -chain.ranking)
            del own[wanted:]
            live = [(slot, score) for slot, score in enumerate(scores[b]) if score != -math.inf]
            own += [Chain(score / count**self.penalty, b, count, slot) for slot, score in live[: wanted - len(own)]]
        every = [chain for own in chains for chain in own]
        before = parents.flatten().tolist()  # and no others: as lists all of it would take as long as some of the steps
        places = torch.tensor([chain.trace(before, *parents.shape) for chain in every], dtype=torch.long)  # (N, T)
        tokens, gains = (one.flatten()[places].tolist() for one in (texts, logps))
        found: dict[int, list[Hypothesis]] = {job.number: [] for job in jobs}
        for chain, text, gain in zip(every, tokens, gains, strict=True):
            found[jobs[chain.input].number].append(chain.close(text, gain))
        return found


class Chain(NamedTuple):
    """A hypothesis as the slots know it."""

    ranking: float
    input: int
    steps: int  # before its END
    slot: int  # after them
    end: float | None = None  # the log-probability of its END

    def trace(self, parents: list[int], longest: int, inputs: int, width: int) -> list[int]:
        """Where its tokens stand among those of all steps, inputs and slots; any place after the last of them."""
        places, slot = [0] * longest, self.slot
        for t in range(self.steps - 1, -1, -1):
            places[t] = (t * inputs + self.input) * width + slot
            slot = parents[places[t]]
        return places

    def close(self, tokens: list[int], gains: list[float]) -> Hypothesis:
        tokens, gains = tokens[: self.steps], gains[: self.steps]
        if self.end is None:
            return close(tokens, gains, False, self.ranking)
        return close([*tokens, END], [*gains, self.end], True, self.ranking)


def begin(slots: GreedySlots | BeamSlots, jobs: Sequence[Job], at: Tensor, width: int) -> None:
    """At these places nothing is written, and the last token of each prefix is to be read next."""
    rows = (width * at[:, None] + torch.arange(width, device=at.device)).flatten()
    limits, last = ([job.limit for job in jobs], [job.prefix[-1] for job in jobs])
    given = torch.tensor([limits, last], dtype=torch.int32).to(at.device, non_blocking=True)
    slots.limits[at] = given[0]
    slots.tokens[rows] = given[1].repeat_interleave(width)
    slots.lengths[rows] = len(jobs[0].prefix) - 1
    slots.written[at] = 0
    slots.done[at] = 0


def bars(vocabulary: int, allow_unknown: bool, device: Any) -> Tensor:
    """What is added to the scores (V,): -inf for what must not be chosen."""
    barred = torch.zeros(vocabulary)
    barred[[PAD, START] if allow_unknown else [PAD, START, UNKNOWN]] = -math.inf
    return barred.to(device, non_blocking=True)
