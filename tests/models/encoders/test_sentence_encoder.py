"""The sentence encoder: pooling by its formulas, padding without effect.

B batch   n tokens   p model width
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard import EncoderConfig, SentenceEncoder

TINY: dict[str, Any] = {"layers": 2, "dim": 8, "heads": 2, "hidden": 12, "vocabulary": 11}


def test_batched_equals_single(encoder: Any, source: Tensor) -> None:
    together = encoder(source)
    assert together.shape == (3, 8)
    for row, n in enumerate((4, 6, 3)):
        torch.testing.assert_close(encoder(source[row : row + 1, :n])[0], together[row], atol=1e-10, rtol=0)


def test_unit_length(encoder: Any, source: Tensor) -> None:
    torch.testing.assert_close(encoder(source).norm(dim=-1), torch.ones(3).double())


@pytest.mark.parametrize("pooling", ["mean", "max", "first", "learned"])
def test_pooling_formulas(pooling: str, source: Tensor) -> None:
    model = SentenceEncoder(EncoderConfig(**TINY, pooling=pooling, normalize=False)).eval()
    states = model.encode(source).states
    for row, n in enumerate((4, 6, 3)):
        x = states[row, :n]  # (n, p), the real tokens
        if pooling == "mean":
            want = x.sum(0) / n
        elif pooling == "max":
            want = x.max(0).values
        elif pooling == "first":
            want = x[0]
        else:
            theta = model.pool.theta[0]
            want = torch.softmax(x @ theta / 8**0.5, dim=0) @ x
        torch.testing.assert_close(model(source)[row], want)


def test_normalize_is_a_setting(source: Tensor) -> None:
    torch.manual_seed(4)
    plain = SentenceEncoder(EncoderConfig(**TINY, normalize=False)).eval()
    torch.manual_seed(4)
    unit = SentenceEncoder(EncoderConfig(**TINY)).eval()
    x = plain(source)
    torch.testing.assert_close(unit(source), x / x.norm(dim=-1, keepdim=True))


def test_a_sentence_of_padding_alone_is_zero(encoder: Any, source: Tensor) -> None:
    source[1] = 0
    vectors = encoder(source)
    assert not vectors[1].any() and vectors.isfinite().all()
    vectors.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


def test_gradients_reach_every_parameter(encoder: Any, source: Tensor) -> None:
    (encoder(source) * torch.randn(3, 8)).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_it_looks_both_ways(encoder: Any, source: Tensor) -> None:
    """The first token's vector depends on the last token, and not on padding."""
    seen: list[Tensor] = []
    encoder.input.embedding.register_forward_hook(lambda module, args, y: seen.append(y))
    first = encoder.encode(source).states[:, 0]
    (grad,) = torch.autograd.grad((first * torch.randn(8)).sum(), seen[0])
    assert torch.equal(grad.abs().sum(-1) > 0, source != 0)


def test_dropout_acts_in_training_only(encoder: Any, source: Tensor) -> None:
    assert torch.equal(encoder(source), encoder(source))
    encoder.train()
    assert not torch.equal(encoder(source), encoder(source))


def test_wrong_tokens(encoder: Any, source: Tensor) -> None:
    with pytest.raises(ValueError, match=r"tokens must be \(B, length\), got \(6,\)"):
        encoder(source[0])
    with pytest.raises(TypeError, match="tokens must be"):
        encoder(source.float())


@pytest.mark.parametrize("pooling", ["mean", "max", "first", "learned"])
def test_a_sentence_without_tokens_is_the_zero_vector(pooling: str) -> None:
    config = EncoderConfig(vocabulary=9, layers=1, dim=8, heads=2, hidden=8, pooling=pooling)
    assert SentenceEncoder(config).eval()(torch.zeros(2, 0, dtype=torch.long)).equal(torch.zeros(2, 8))
