"""Attention by itself: `regard.attend` with each score and mask, random features, and layers with a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from comparison import exact, tensor_checksum
from torch import Tensor

import regard

MAPS = ("trig", "plain", "positive", "hyperbolic", "optimal", "elu")


def attention_facts() -> dict[str, Any]:
    return {name: tensor_facts(outputs) for name, outputs in cases()}


def tensor_facts(outputs: Tensor | tuple[Tensor, ...]) -> list[str]:
    """A sum for comparisons with tolerance and a checksum for exact ones, of each tensor."""
    tensors = outputs if isinstance(outputs, tuple) else (outputs,)
    sums = [exact((tensor * torch.arange(tensor.numel()).cos().view_as(tensor)).sum()) for tensor in tensors]
    return [*sums, tensor_checksum({str(number): tensor for number, tensor in enumerate(tensors)})]


def cases() -> Iterator[tuple[str, Tensor | tuple[Tensor, ...]]]:
    torch.manual_seed(5)
    q, k, v = (torch.randn(2, 4, 9, 8) for _ in range(3))
    keep = torch.arange(9) < torch.tensor([[9], [6]])
    masks = {
        "no mask": None,
        "causal": regard.masks.causal(),
        "window": regard.masks.window(2, 1),
        "padding": regard.masks.padding(keep),
        "document": regard.masks.document(torch.tensor([[0] * 4 + [1] * 5] * 2)),
    }
    for backend in ("auto", "reference", "sdpa"):
        for name, mask in masks.items():
            yield f"attend, {backend}, {name}", regard.attend(q, k, v, mask=mask, backend=backend)
    for score in ("dot", "scaled"):
        yield f"attend, weights, {score}", regard.attend(q, k, v, score=score, causal=True, return_weights=True)
    yield "attend, grouped keys, bias", regard.attend(q, k[:, :2], v[:, :2], bias=torch.randn(9, 9))
    torch.manual_seed(6)
    yield "attend, dropout", regard.attend(q, k, v, dropout=0.3, causal=True)
    for name in MAPS:
        features = regard.RandomFeatures(dim=8, features=None if name == "elu" else 16, heads=4, map=name, seed=3)
        for backend in ("auto", "chunked", "reference"):
            for causal in (False, True):
                text = f"attend_features, {name}, {backend}, {'causal' if causal else 'whole'}"
                yield text, regard.attend_features(q, k, v, features=features, causal=causal, backend=backend)
    yield from layer_cases()


def layer_cases() -> Iterator[tuple[str, Tensor | tuple[Tensor, ...]]]:
    x, memory = torch.randn(2, 7, 16), torch.randn(2, 5, 16)
    torch.manual_seed(7)
    exact_heads = regard.MultiHeadAttention(dim=16, heads=4, position=regard.positions.Rotary(head_dim=4)).eval()
    random_heads = regard.RandomFeatureAttention(dim=16, heads=4, features=8, gate=True, seed=2).eval()
    for name, layer in {"MultiHeadAttention": exact_heads, "RandomFeatureAttention": random_heads}.items():
        yield f"{name}, causal", layer(x, causal=True)
        cache = layer.new_cache(2, 7)
        yield (
            f"{name}, with a cache",
            torch.cat([layer(x[:, i : i + 1], causal=True, cache=cache) for i in range(7)], 1),
        )
    torch.manual_seed(9)
    yield "MultiHeadAttention, to a memory", regard.MultiHeadAttention(dim=16, heads=4)(x, memory, return_weights=True)
    for cell in (regard.RNN, regard.GRU, regard.LSTM):
        torch.manual_seed(8)
        layer = cell(16, 12, num_layers=2, batch_first=True, bidirectional=True)
        for backend in ("auto", "reference"):
            yield f"{cell.__name__}, {backend}", layer(x, lengths=torch.tensor([7, 4]), backend=backend)[0]
