"""Trainings of recurrent translators side by side on one GPU, each for the same time.

The time of a recurrent step is that of launching kernels, one after the other. So each word launches few of them: what
does not depend on the previous word is computed for all words at once, the encoder reads with cuDNN without packing,
and the step of each shape of batches is captured as a CUDA graph. Graphs of several trainings run at the same time,
each in a stream of its own.

    B batch   n source tokens   m target tokens   H hidden   A hidden width of the additive score
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.scores import AdditiveScore
from regard.layers.time_loop import layer_weights
from regard.models.recurrent.translator import RecurrentTranslator
from regard.text.tokenizers.special_tokens import END, PAD, START

LENGTHS = (8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112)  # tokens of a batch's rows, source and target alike
SMOOTHING = 0.1
EMA = 0.999
CLIP = 1.0

Tokens = Sequence[int]


# --- the loss ---------------------------------------------------------------------------------------------------------


def translation_loss(model: RecurrentTranslator, source: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    """source (B, n), target (B, m + 1) with its start -> mean loss of a token; equal to that of `model`."""
    labels = target[:, 1:].flatten()
    logits = model.project(readouts(model, source, target[:, :-1])).flatten(0, 1)  # (B·m, V)
    return F.cross_entropy(logits, labels, ignore_index=PAD, label_smoothing=smoothing)


def readouts(model: RecurrentTranslator, source: Tensor, target: Tensor) -> Tensor:
    """source (B, n), target (B, m) -> (B, m, H), as `model.decode(target, model.encode(source))`."""
    decoder = model.decoder
    states, last = read_source(model, source)
    hidden = last if decoder.bridge is None else torch.tanh(decoder.bridge(last))  # (B, H)
    y = decoder.dropout(decoder.embedding(target))  # (B, m, E)
    if decoder.cross_attention is None:
        return decoder.dropout(run_gru(decoder.rnn, y, hidden))
    assert decoder.readout is not None
    s, c = attend_word_by_word(model, y, hidden, states, source != PAD)
    return decoder.dropout(torch.tanh(decoder.readout(torch.cat([s, c, y], dim=-1))))


def read_source(model: RecurrentTranslator, source: Tensor) -> tuple[Tensor, Tensor]:
    """(B, n) -> states (B, n, width) and the last state of each direction (B, width).

    The backward direction reads each source turned around, so that both directions meet the padding last.
    """
    encoder = model.encoder
    keep = source != PAD
    lengths = keep.sum(1, keepdim=True)  # (B, 1)
    places = torch.arange(source.shape[1], device=source.device).expand_as(source)
    turned = torch.where(keep, lengths - 1 - places, places)  # its own inverse
    x = encoder.dropout(encoder.embedding(source))
    states = [run_gru(encoder.rnn, x)]
    lasts = [rows_at(states[0], lengths - 1)[:, 0]]
    if encoder.directions == 2:
        backward = run_gru(encoder.rnn, rows_at(x, turned), suffix="_reverse")
        lasts.append(rows_at(backward, lengths - 1)[:, 0])
        states.append(rows_at(backward, turned))
    both = torch.where(keep[..., None], torch.cat(states, dim=-1), 0)
    return encoder.dropout(both), torch.cat(lasts, dim=-1)


def rows_at(x: Tensor, places: Tensor) -> Tensor:
    """x (B, n, ·), places (B, k) -> (B, k, ·)."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


def run_gru(layer: nn.RNNBase, x: Tensor, start: Tensor | None = None, suffix: str = "") -> Tensor:
    """x (B, T, ·) -> the states (B, T, H) of one direction, by torch's implementation."""
    h = x.new_zeros(len(x), layer.hidden_size) if start is None else start
    weights = list(layer_weights(layer, f"l0{suffix}")[:4])
    return torch._VF.gru(x, h[None].contiguous(), weights, True, 1, 0.0, layer.training, False, True)[0]  # type: ignore[attr-defined]


def attend_word_by_word(
    model: RecurrentTranslator, y: Tensor, s: Tensor, values: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor]:
    """Bahdanau's loop: y (B, m, E), s_0 (B, H), h_j (B, n, ·) -> states s_i (B, m, H) and contexts c_i (B, m, ·)."""
    attention = model.decoder.cross_attention
    assert attention is not None
    assert isinstance(attention.score, AdditiveScore)
    score, weights = attention.score, layer_weights(model.decoder.rnn, "l0")
    keys = score.keys(values)  # (B, n, A)
    padding = torch.zeros_like(keep, dtype=y.dtype).masked_fill(~keep, -torch.inf)
    of_word, of_context = weights.W_ih.split([y.shape[-1], values.shape[-1]], dim=1)
    from_words = F.linear(y, of_word, weights.b_ih).transpose(0, 1).contiguous()  # (m, B, 3H)
    states, contexts = [], []
    for from_word in from_words:
        pairs = torch.tanh(keys + F.linear(s, score.query.weight)[:, None])  # (B, n, A)
        alpha = torch.softmax(pairs @ score.weight + padding, dim=-1)
        c = torch.bmm(alpha[:, None], values)[:, 0]
        s = gru_cell(torch.addmm(from_word, c, of_context.T), s, weights.W_hh, weights.b_hh)
        states.append(s)
        contexts.append(c)
    return torch.stack(states, dim=1), torch.stack(contexts, dim=1)


def gru_cell(inputs: Tensor, h: Tensor, W_hh: Tensor, b_hh: Tensor | None) -> Tensor:
    """A step from W_ih x + b_ih (B, 3H) and h (B, H): one kernel on a GPU, as gru_step on the CPU."""
    assert b_hh is not None
    gates = F.linear(h, W_hh)
    if inputs.is_cuda:
        h, bias = h.to(inputs.dtype), b_hh.to(inputs.dtype)
        return torch.ops.aten._thnn_fused_gru_cell(inputs, gates, h, torch.zeros_like(bias), bias)[0]
    x_r, x_z, x_n = inputs.chunk(3, dim=-1)
    h_r, h_z, h_n = (gates + b_hh).chunk(3, dim=-1)
    z = torch.sigmoid(x_z + h_z)
    return (1 - z) * torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n) + z * h


# --- batches ----------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Texts of up to `length` tokens, padded to it."""

    length: int
    source: Tensor  # (N, length), ends with END
    target: Tensor  # (N, length + 1), from START to END

    def batch(self, index: Tensor | slice) -> tuple[Tensor, Tensor]:
        return self.source[index], self.target[index]


def padded_rows(sources: Sequence[Tokens], targets: Sequence[Tokens], device: str) -> list[Rows]:
    """Sort texts by length into rows; texts longer than the last of LENGTHS are left out."""
    needed = np.array([max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)])
    places = np.searchsorted(LENGTHS, needed)
    rows = []
    for i, length in enumerate(LENGTHS):
        chosen = np.flatnonzero(places == i)
        if len(chosen):
            source = np.full((len(chosen), length), PAD, np.int64)
            target = np.full((len(chosen), length + 1), PAD, np.int64)
            for row, k in enumerate(chosen):
                source[row, : len(sources[k]) + 1] = [*sources[k], END]
                target[row, : len(targets[k]) + 2] = [START, *targets[k], END]
            rows.append(Rows(length, torch.from_numpy(source).to(device), torch.from_numpy(target).to(device)))
    return rows


def rows_per_batch(length: int, batch_tokens: int) -> int:
    return max(8, batch_tokens // length // 8 * 8)


def shuffled_batches(parts: Sequence[Rows], batch_tokens: int, random: Random) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass over the texts in full batches of one length each."""
    orders = [torch.randperm(len(part.source)).to(part.source.device) for part in parts]
    batches = [
        (i, start)
        for i, part in enumerate(parts)
        for size in [rows_per_batch(part.length, batch_tokens)]
        for start in range(0, len(part.source) - size + 1, size)
    ]
    random.shuffle(batches)
    for i, start in batches:
        size = rows_per_batch(parts[i].length, batch_tokens)
        yield parts[i].batch(orders[i][start : start + size])


# --- the training -----------------------------------------------------------------------------------------------------


@dataclass
class Progress:
    """What a training has done."""

    steps: int = 0
    tokens: int = 0  # target tokens, with their ends
    seconds: float = 0.0
    best_loss: float = math.inf
    best_step: int = 0


class Training:
    """Trains one model for a given time; the best average of the weights on validation texts stays in `averaged`."""

    def __init__(self, name: str, model: RecurrentTranslator, *, device: str, lr: float, batch_tokens: int) -> None:
        self.name, self.device, self.batch_tokens, self.peak = name, device, batch_tokens, lr
        self.model = model.to(device).train()
        self.averaged = copy.deepcopy(self.model).eval()
        self.best: Mapping[str, Tensor] = copy.deepcopy(self.averaged.state_dict())
        self.cuda = device.startswith("cuda")
        self.lr = torch.tensor(lr, device=device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=self.lr, betas=(0.9, 0.98), capturable=self.cuda, fused=self.cuda or None
        )
        self.stream = torch.cuda.Stream() if self.cuda else None
        self.graphs: dict[int, tuple[Any, Tensor, Tensor]] = {}
        self.loss_sum = torch.zeros((), device=device)
        self.token_sum = torch.zeros((), dtype=torch.int64, device=device)
        self.progress = Progress()

    def on_stream(self) -> Any:
        return torch.cuda.stream(self.stream) if self.stream is not None else nullcontext()

    def step(self, source: Tensor, target: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = translation_loss(self.model, source, target, SMOOTHING)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        weights = list(self.model.parameters())
        with torch.no_grad():
            torch._foreach_lerp_(list(self.averaged.parameters()), weights, 1 - EMA)
            self.loss_sum += loss.detach()
            self.token_sum += (target[:, 1:] != PAD).sum()

    def capture(self, lengths: Sequence[int], batch: Callable[[int], tuple[Tensor, Tensor]]) -> None:
        """Capture the step of each length; one at a time, before any training runs."""
        self.lr.fill_(self.peak / 100)
        pool = torch.cuda.graph_pool_handle()
        with self.on_stream():
            for length in lengths:
                source, target = (part.clone() for part in batch(length))
                self.step(source, target)
                self.optimizer.zero_grad(set_to_none=True)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
                    self.step(source, target)
                self.graphs[length] = graph, source, target
        torch.cuda.synchronize()

    def run(
        self,
        phases: Sequence[tuple[float, Callable[[int], Sequence[Rows]]]],
        validation: Sequence[Rows],
        *,
        seconds: float,
        warmup: int = 500,
        validations: int = 12,
        report: Callable[[str], None] = print,
        seed: int = 1,
    ) -> None:
        """Train for this time: each phase is a share of it, and the texts of its n-th pass."""
        begin, random, validated = time.monotonic(), Random(seed), 0
        ends = np.cumsum([share for share, _ in phases])
        events: list[Any] = []
        passes, share = 0, 0.0
        with self.on_stream():
            while share < 1:
                phase = int(np.searchsorted(ends, share, side="right"))
                for source, target in shuffled_batches(phases[phase][1](passes), self.batch_tokens, random):
                    share = (time.monotonic() - begin) / seconds
                    if share >= min(1.0, ends[phase]):
                        break
                    ramp = min(1.0, (self.progress.steps + 1) / warmup)
                    self.lr.fill_(self.peak * ramp * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * share))))
                    self.one(source, target, events)
                    if share > (validated + 1) / validations:
                        validated += 1
                        self.validate(validation, share, report)
                passes += 1
                share = max(share, (time.monotonic() - begin) / seconds)
            self.validate(validation, 1.0, report)
        self.progress.seconds, self.progress.tokens = time.monotonic() - begin, int(self.token_sum)
        self.averaged.load_state_dict(self.best)

    def one(self, source: Tensor, target: Tensor, events: list[Any]) -> None:
        """A step, by replaying its graph; at most three wait for the GPU."""
        captured = self.graphs.get(source.shape[1])
        if captured is None:
            self.step(source, target)
        else:
            graph, static_source, static_target = captured
            static_source.copy_(source)
            static_target.copy_(target)
            graph.replay()
        self.progress.steps += 1
        if self.cuda:
            events.append(torch.cuda.Event())
            events[-1].record()
            if len(events) > 3:
                events.pop(0).synchronize()

    @torch.no_grad()
    def validate(self, validation: Sequence[Rows], share: float, report: Callable[[str], None]) -> None:
        total = count = 0.0
        for part in validation:
            for start in range(0, len(part.source), 256):
                source, target = part.batch(slice(start, start + 256))
                words = float((target[:, 1:] != PAD).sum())
                total += float(translation_loss(self.averaged, source, target)) * words
                count += words
        loss = total / count
        if loss < self.progress.best_loss:
            self.progress.best_loss, self.progress.best_step = loss, self.progress.steps
            self.best = copy.deepcopy(self.averaged.state_dict())
        trained = float(self.loss_sum) / max(1, self.progress.steps)
        report(
            f"{self.name}: {share:4.0%}  step {self.progress.steps:,}  validation loss {loss:.3f}"
            f"  mean training loss so far {trained:.3f}"
        )


# --- decoding ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def translate(model: RecurrentTranslator, sources: Sequence[Tokens], device: str, batch: int = 256) -> list[list[int]]:
    """Translate by greedy search; a translation has at most twice as many tokens as its source, and ten."""
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    outputs: list[list[int]] = [[] for _ in sources]
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        longest = max(len(sources[i]) for i in chosen) + 1
        source = torch.full((len(chosen), longest), PAD)
        for row, i in enumerate(chosen):
            source[row, : len(sources[i]) + 1] = torch.tensor([*sources[i], END])
        for i, tokens in zip(chosen, greedy(model, source.to(device), 2 * longest + 10).tolist(), strict=True):
            outputs[i] = tokens[: tokens.index(END)] if END in tokens else tokens
    return outputs


def greedy(model: RecurrentTranslator, source: Tensor, limit: int) -> Tensor:
    state = model.start(model.encode(source))
    word = torch.full((len(source), 1), START, device=source.device)
    ended = torch.zeros_like(word, dtype=torch.bool)
    words = []
    for i in range(limit):
        word = model.project(model.decode(word, state=state)).argmax(-1)
        words.append(word)
        ended |= word == END
        if i % 8 == 7 and bool(ended.all()):
            break
    return torch.cat(words, dim=1)
