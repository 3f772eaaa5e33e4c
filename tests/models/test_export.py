"""torch.export: encode, and one cached decode step, with batch, source length and capacity left open.

B batch   n source tokens   C capacity   H heads
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from regard import StaticCache, TransformerConfig, TransformerLMConfig, make_model
from regard.attention.cache import ProjectedSource
from regard.models.decoding_state import TransformerState

from ..repeats import by_default

TINY: dict[str, Any] = {"layers": 1, "dim": 8, "heads": 2, "hidden": 12, "dropout": 0.0, "max_length": 16}


class Encode(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        encoded = self.model.encode(source)
        return encoded.states, encoded.keep


class Step(nn.Module):
    """One decoding step as a function of tensors: the caches go in and come out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        tokens: Tensor,  # (B, 1)
        lengths: Tensor,  # (B,)
        ks: list[Tensor],  # (B, H, C, d_k) a block
        vs: list[Tensor],
        memory_ks: list[Tensor],  # (B, H, n, d_k) a block
        memory_vs: list[Tensor],
        mask: Tensor | None,  # (B, 1, 1, n)
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        caches = [StaticCache(k.clone(), v.clone(), lengths.clone()) for k, v in zip(ks, vs, strict=True)]
        memory = [ProjectedSource(k, v) for k, v in zip(memory_ks, memory_vs, strict=True)] if memory_ks else None
        logits = self.model.project(self.model.decode(tokens, state=TransformerState(caches, memory, mask)))
        return logits, [cache.k for cache in caches], [cache.v for cache in caches]


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(1, 11, (batch, length))


def arguments(state: TransformerState) -> list[Any]:
    memory = state.memory or []
    return [
        tokens(len(state.caches[0].k), 1),
        state.caches[0].lengths,
        [cache.k for cache in state.caches],
        [cache.v for cache in state.caches],
        [one.k for one in memory],
        [one.v for one in memory],
        state.memory_mask,
    ]


@torch.no_grad()
def follow(program: Any, model: Any, state: TransformerState, plain: Any) -> None:
    """Five steps of the exported program beside five of the model."""
    args = arguments(state)
    for _ in range(5):
        args[0] = tokens(len(args[0]), 1)
        logits, args[2], args[3] = program(*args)
        args[1] = args[1] + 1
        want = model.project(model.decode(args[0], state=plain))
        torch.testing.assert_close(logits, want, atol=1e-5, rtol=1e-5)


POSITIONS = ("learned", "rotary", "relative", "sinusoidal", "t5", "alibi")  # a language model has alibi below


@pytest.mark.parametrize("position", by_default({"rotary"}, POSITIONS))
@torch.no_grad()
def test_transformer(position: str) -> None:
    config = TransformerConfig(**TINY, source_vocabulary=11, target_vocabulary=11, position=position)
    model: Any = make_model(config).eval()
    longest = {"max": 16} if position == "learned" else {}
    B, n, C = Dim("batch"), Dim("source", min=2, **longest), Dim("capacity", min=2)
    first, second = tokens(3, 7), tokens(2, 11)
    second[0, 6:] = 0
    encode = export(Encode(model), (first,), dynamic_shapes=({0: B, 1: n},)).module()
    states, keep = encode(second)
    want = model.encode(second)
    torch.testing.assert_close(states, want.states, atol=1e-5, rtol=1e-5)
    assert torch.equal(keep, want.keep)

    cache, memory = [{0: B, 2: C}], [{0: B, 2: n}]
    shapes = ({0: B}, {0: B}, cache, cache, memory, memory, {0: B, 3: n})
    args = tuple(arguments(model.start(model.encode(first), 9, static=True)))
    step = export(Step(model), args, dynamic_shapes=shapes).module()
    follow(step, model, model.start(want, 13, static=True), model.start(want, 20 if position != "learned" else 16))


@torch.no_grad()
def test_language_model() -> None:
    model: Any = make_model(TransformerLMConfig(**TINY, vocabulary=11, position="alibi", order="pre")).eval()
    B, C = Dim("batch"), Dim("capacity", min=2)
    cache = [{0: B, 2: C}]
    args = tuple(arguments(model.start(3, 9, static=True)))
    step = export(Step(model), args, dynamic_shapes=({0: B}, {0: B}, cache, cache, [], [], None)).module()
    follow(step, model, model.start(2, 13, static=True), model.start(2, 20))
