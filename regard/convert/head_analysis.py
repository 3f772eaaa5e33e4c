"""Predict and measure how well random features can replace each head of a trained model.

F3. A head is measured on the queries and keys that it computes for a text, and judged by the error of its output: that,
not the error of single weights, is what the rest of the model sees.

    B batch   H heads   G heads of keys   m queries   n keys   d width   F features
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.dispatch import attend
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.variance import relative_variance, squared_sum
from regard.attention.mask_algebra import Mask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.recording.recorder import layer_name
from regard.convert.sample_texts import Tokens
from regard.kernels.linear.attend import attend_features

DRAWS = 4  # of W, over which an error is taken; to choose a factor half of them
MOST = 4096  # features; a head that needs more is better off exact
# What scores are multiplied by to begin with. Flatter attention is another one, and estimated with far less noise.
FACTORS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.12)


@dataclass(frozen=True)
class Call:
    """What an attention layer was asked in one batch."""

    query: Tensor  # (B, m, width)
    key: Tensor | None  # (B, n, width); None: self-attention
    mask: Mask | Tensor | None
    causal: bool
    text: Tensor  # bool (B, 1, m, 1): which queries are of a token and not of padding


@dataclass(frozen=True)
class Head:
    """A head and what was found about it. Errors are relative: root mean squares, |estimate - exact| / |exact|."""

    layer: str
    head: int
    spread: float  # |x+y|², the mean over the pairs that the head looks at: above 10 or so it is too sharp
    variance: float  # of a single estimate of exp(x.y), relative, by the formula; mean over the same pairs
    error: float  # of the output, as the head is
    factor: float  # what its scores should be multiplied by to begin with
    start: float  # the error with that factor
    needed: int | None  # features for the target error, as the head is; None: more than MOST
    random: bool = False  # whether it was swapped
    distilled: float | None = None  # the error after distilling

    @property
    def name(self) -> str:
        return f"{self.layer}:{self.head}"


@torch.no_grad()
def layer_calls(model: Any, batch: Tokens) -> dict[str, Call]:
    """What each exact attention layer of a Transformer is asked when the model reads the batch."""
    calls: dict[str, Call] = {}

    def note(name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tokens = batch[-1] if name.startswith("decoder") else batch[0]
        text = (tokens != model.config.pad_id)[:, None, :, None]
        key = args[1] if len(args) > 1 else None
        calls[name] = Call(args[0], key, kwargs.get("mask"), kwargs.get("causal", False), text)

    hooks = [
        layer.register_forward_pre_hook(partial(note, name), with_kwargs=True)
        for name, layer in exact_layers(model).items()
    ]
    try:
        model(*batch)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def exact_layers(model: nn.Module) -> dict[str, MultiHeadAttention]:
    """The layers of exact attention by the names that recordings have."""
    return {layer_name(path): layer for path, layer in model.named_modules() if isinstance(layer, MultiHeadAttention)}


def project(layer: MultiHeadAttention | RandomFeatureAttention, call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """q (B, H, m, d), k (B, G, n, d) and v (B, G, n, e) of a call, turned by their positions."""
    key = call.query if call.key is None else call.key
    q, k, v = layer.input(call.query, key, key)
    if layer.position is not None:
        i = torch.arange(q.shape[2], device=q.device)
        q, k = layer.position.rotate(q, i), layer.position.rotate(k, i)
    return q, k, v


def squared_error(estimate: Tensor, exact: Tensor, text: Tensor) -> Tensor:
    """Mean squares of (estimate - exact) over those of exact, for each head (H,), of outputs (B, H, m, e)."""
    off, size = (((x * text).square()).sum((0, 2, 3)) for x in (estimate - exact, exact))
    return off / size.clamp(min=torch.finfo(size.dtype).tiny)


@torch.no_grad()
def measure_layer(
    name: str, layer: MultiHeadAttention, calls: Sequence[Call], *, features: int, map: str, target: float
) -> list[Head]:
    """All heads of a layer."""
    measured = partial(_errors, layer, calls, map=map)
    errors = {factor: measured(features=features, factor=factor, draws=DRAWS // 2) for factor in FACTORS}
    shared = torch.stack(list(errors.values())).square().unflatten(1, (layer.kv_heads, -1)).mean(2)  # (factors, G)
    best = shared.argmin(0).repeat_interleave(layer.heads // layer.kv_heads)  # heads that share keys share the factor
    spread, variance = _predicted(layer, calls, features=features, map=map)
    own = measured(features=features)
    needed = _needed(own, measured, features=features, target=target)
    return [
        Head(
            name,
            head,
            spread=spread[head].item(),
            variance=variance[head].item(),
            error=own[head].item(),
            factor=(factor := FACTORS[int(best[head])]),
            start=errors[factor][head].item(),
            needed=needed[head],
        )
        for head in range(layer.heads)
    ]


@torch.no_grad()
def measure_distilled(
    heads: Sequence[Head], teacher: MultiHeadAttention, student: RandomFeatureAttention, calls: Sequence[Call]
) -> list[Head]:
    """The heads that the student has, with its error; the others as they are."""
    numbers = [number for number, head in enumerate(heads) if head.random]
    found = torch.stack([squared_error(*both_outputs(teacher, student, numbers, call), call.text) for call in calls])
    errors = dict(zip(numbers, found.mean(0).sqrt().tolist(), strict=True))
    return [replace(head, distilled=errors.get(number)) for number, head in enumerate(heads)]


def both_outputs(
    teacher: MultiHeadAttention, student: RandomFeatureAttention, numbers: Sequence[int], call: Call
) -> tuple[Tensor, Tensor]:
    """(output of the student's heads, that of the teacher's same heads), each (B, heads, m, e) before W^O."""
    with torch.no_grad():
        exact = attend(*project(teacher, call), mask=call.mask, causal=call.causal)[:, list(numbers)]
    q, k, v = project(student, call)
    return attend_features(q, k, v, features=student.features, mask=call.mask, causal=call.causal), exact


def _errors(
    layer: MultiHeadAttention,
    calls: Sequence[Call],
    *,
    features: int,
    map: str,
    factor: float = 1.0,
    draws: int = DRAWS,
) -> Tensor:
    """The error of each head's output (H,) with so many features, over several draws and all calls."""
    maps = [_features(layer, features=features, map=map, factor=factor, seed=seed) for seed in range(draws)]
    total = []
    for call in calls:
        q, k, v = project(layer, call)
        seen: dict[str, Any] = {"mask": call.mask, "causal": call.causal}
        exact = attend(q, k, v, **seen)
        total += [squared_error(attend_features(q, k, v, features=phi, **seen), exact, call.text) for phi in maps]
    return torch.stack(total).mean(0).sqrt()


def _features(layer: MultiHeadAttention, *, features: int, map: str, factor: float, seed: int) -> RandomFeatures:
    like = next(layer.parameters())
    return RandomFeatures(
        dim=layer.d_k,
        features=features,
        heads=layer.kv_heads,
        map=map,
        normalize=False,
        scale=factor / math.sqrt(layer.d_k),
        seed=seed,
    ).to(like.device)


def _predicted(layer: MultiHeadAttention, calls: Sequence[Call], *, features: int, map: str) -> tuple[Tensor, Tensor]:
    """(mean |x+y|², mean relative variance of an estimate), each (H,), over the pairs that the heads look at."""
    phi = _features(layer, features=features, map=map, factor=1.0, seed=0)
    sums, queries = torch.zeros(2, layer.heads, dtype=torch.float64), 0.0
    for call in calls:
        q, k, v = project(layer, call)
        _, weights = attend(q, k, v, mask=call.mask, causal=call.causal, return_weights=True)  # (B, H, m, n)
        counted = (weights * call.text).double()
        x, y = phi.prepare(q), phi.prepare(k).repeat_interleave(layer.heads // layer.kv_heads, dim=1)
        found = squared_sum(x, y), relative_variance(phi.map, x, y, rows=phi.rows)
        sums += torch.stack([(counted * one).sum((0, 2, 3)) for one in found]).cpu()
        queries += call.text.sum().item()
    return sums[0] / queries, sums[1] / queries


def _needed(errors: Tensor, measured: Callable[..., Tensor], *, features: int, target: float) -> list[int | None]:
    """Features for the target error of each head, a power of two, from the errors (H,) with so many features.

    The square falls as 1/F, which says where to look; there it is measured, and more are taken until it holds.
    """
    guess = (features * (errors / target).square()).tolist()
    needed: list[int | None] = [2 ** max(4, math.ceil(math.log2(one))) if one <= MOST else None for one in guess]
    number = 16
    while number <= MOST:
        if number in needed:
            more = 2 * number if number < MOST else None
            found = zip(needed, measured(features=number).tolist(), strict=True)
            needed = [more if one == number and error > target else one for one, error in found]
        number *= 2
    return needed
