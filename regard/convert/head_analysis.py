"""Predict and measure how well random features can replace each head of a trained model.

F3. A head is measured on the queries and keys that it computes for a text. What counts is the error of its output, not
of single weights, because the rest of the model uses the output.

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
from regard.attention.masks.algebra import Mask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.recording.recorder import layer_name
from regard.convert.sample_texts import Tokens
from regard.kernels.linear.attend import attend_features

DRAWS = 4  # of W, over which an error is averaged; half of them to choose a factor
MAX_FEATURES = 4096  # a head that needs more should stay exact
# Initial factors of the scores. A small factor changes the attention, but flat attention is estimated with less noise.
FACTORS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.12)


@dataclass(frozen=True)
class Call:
    """The inputs of an attention layer in one batch."""

    query: Tensor  # (B, m, width)
    key: Tensor | None  # (B, n, width); None: self-attention
    mask: Mask | Tensor | None
    causal: bool
    text: Tensor  # bool (B, 1, m, 1): False for queries of padding


@dataclass(frozen=True)
class MeasuredHead:
    """A head and its measurements. Errors are relative root mean squares, |estimate - exact| / |exact|."""

    layer: str
    head: int
    spread: float  # mean of |x+y|², weighted by attention: above about 10 the head is too sharp
    variance: float  # of a single estimate of exp(x.y), relative, by the formula; the same mean
    error: float  # of the output, without a factor
    factor: float  # the best initial factor of its scores
    start: float  # the error with that factor
    needed: int | None  # features for the target error, without a factor; None: more than MAX_FEATURES
    random: bool = False  # whether it was swapped
    distilled: float | None = None  # the error after distilling

    @property
    def name(self) -> str:
        return f"{self.layer}:{self.head}"


@torch.no_grad()
def layer_calls(model: Any, batch: Tokens) -> dict[str, Call]:
    """Run the model on a batch and return the inputs of each exact attention layer."""
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
    """Return the layers of exact attention by their names in recordings."""
    return {layer_name(path): layer for path, layer in model.named_modules() if isinstance(layer, MultiHeadAttention)}


def project(layer: MultiHeadAttention | RandomFeatureAttention, call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Return q (B, H, m, d), k (B, G, n, d) and v (B, G, n, e) of a call, q and k rotated by their positions."""
    key = call.query if call.key is None else call.key
    q, k, v = layer.input(call.query, key, key)
    if layer.position is not None:
        i = torch.arange(q.shape[2], device=q.device)
        q, k = layer.position.rotate(q, i), layer.position.rotate(k, i)
    return q, k, v


def squared_error(estimate: Tensor, exact: Tensor, text: Tensor) -> Tensor:
    """Return the mean square of (estimate - exact) relative to that of exact, outputs (B, H, m, e), per head (H,)."""
    difference, size = (((x * text).square()).sum((0, 2, 3)) for x in (estimate - exact, exact))
    return difference / size.clamp(min=torch.finfo(size.dtype).tiny)


@torch.no_grad()
def measure_layer(
    name: str, layer: MultiHeadAttention, calls: Sequence[Call], *, features: int, map: str, target: float
) -> list[MeasuredHead]:
    """Measure all heads of a layer."""
    measured = partial(_errors, layer, calls, map=map)
    errors = {factor: measured(features=features, factor=factor, draws=DRAWS // 2) for factor in FACTORS}
    shared = torch.stack(list(errors.values())).square().unflatten(1, (layer.kv_heads, -1)).mean(2)  # (factors, G)
    best = shared.argmin(0).repeat_interleave(layer.heads // layer.kv_heads)  # heads that share keys share the factor
    spread, variance = _predicted(layer, calls, features=features, map=map)
    unscaled = measured(features=features)
    needed = _needed(unscaled, measured, features=features, target=target)
    return [
        MeasuredHead(
            name,
            head,
            spread=spread[head].item(),
            variance=variance[head].item(),
            error=unscaled[head].item(),
            factor=(factor := FACTORS[int(best[head])]),
            start=errors[factor][head].item(),
            needed=needed[head],
        )
        for head in range(layer.heads)
    ]


@torch.no_grad()
def measure_distilled(
    heads: Sequence[MeasuredHead], teacher: MultiHeadAttention, student: RandomFeatureAttention, calls: Sequence[Call]
) -> list[MeasuredHead]:
    """Return the heads, those of the student with the error after distillation."""
    numbers = [number for number, head in enumerate(heads) if head.random]
    squares = torch.stack([squared_error(*both_outputs(teacher, student, numbers, call), call.text) for call in calls])
    errors = dict(zip(numbers, squares.mean(0).sqrt().tolist(), strict=True))
    return [replace(head, distilled=errors.get(number)) for number, head in enumerate(heads)]


def both_outputs(
    teacher: MultiHeadAttention, student: RandomFeatureAttention, numbers: Sequence[int], call: Call
) -> tuple[Tensor, Tensor]:
    """Return the outputs of the student's heads and of the same heads of the teacher, (B, heads, m, e) before W^O."""
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
    """Return the error of each head's output (H,) with that many features, over several draws and all calls."""
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
    """Return the means of |x+y|² and of the relative variance of an estimate, each (H,), weighted by attention."""
    phi = _features(layer, features=features, map=map, factor=1.0, seed=0)
    sums, queries = torch.zeros(2, layer.heads, dtype=torch.float64), 0.0
    for call in calls:
        q, k, v = project(layer, call)
        _, weights = attend(q, k, v, mask=call.mask, causal=call.causal, return_weights=True)  # (B, H, m, n)
        counted = (weights * call.text).double()
        x, y = phi.prepare(q), phi.prepare(k).repeat_interleave(layer.heads // layer.kv_heads, dim=1)
        quantities = squared_sum(x, y), relative_variance(phi.map, x, y, rows=phi.rows)
        sums += torch.stack([(counted * values).sum((0, 2, 3)) for values in quantities]).cpu()
        queries += call.text.sum().item()
    return sums[0] / queries, sums[1] / queries


def _needed(errors: Tensor, measured: Callable[..., Tensor], *, features: int, target: float) -> list[int | None]:
    """Return the features for the target error of each head, a power of two, given the errors (H,) with `features`.

    The squared error falls as 1/F, which gives a first guess; it is doubled until a measurement confirms it.
    """
    guess = (features * (errors / target).square()).tolist()
    needed: list[int | None] = [
        2 ** max(4, math.ceil(math.log2(count))) if count <= MAX_FEATURES else None for count in guess
    ]
    number = 16
    while number <= MAX_FEATURES:
        if number in needed:
            doubled = 2 * number if number < MAX_FEATURES else None
            measurements = zip(needed, measured(features=number).tolist(), strict=True)
            needed = [doubled if count == number and error > target else count for count, error in measurements]
        number *= 2
    return needed
