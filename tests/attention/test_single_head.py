"""Content, context and key-value attention: one head, and where the queries come from.

B batch   m queries   n keys
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard import AdditiveScore, ContentAttention, DotScore, KeyValueAttention, masks
from regard.attention.scores import SCORES, make_score


def test_content_attention_has_its_queries_as_parameters() -> None:
    layer = ContentAttention(outputs=3, dim=4)
    value = torch.randn(2, 6, 4)
    y, weights = layer(value, return_weights=True)
    want = torch.softmax(layer.theta @ value.mT / 2, -1)  # sqrt(4) = 2
    assert torch.allclose(weights, want, atol=1e-6)
    assert torch.allclose(y, want @ value, atol=1e-6)
    assert torch.allclose(layer(value), y, atol=1e-6)
    assert layer(torch.randn(2, 9, 4)).shape == (2, 3, 4)  # m is fixed by the parameters, n is not
    assert [name for name, _ in layer.named_parameters()] == ["theta"]


def test_content_attention_pools_a_padded_batch() -> None:
    layer = ContentAttention(outputs=1, dim=4, score=AdditiveScore(query_dim=4, key_dim=4, hidden=5))
    value = torch.randn(2, 6, 4)
    pooled = layer(value, mask=masks.padding([6, 2]))
    assert torch.allclose(pooled[1], layer(value[1:, :2])[0], atol=1e-6)
    assert len(dict(layer.named_parameters())) == 4  # theta and those of the score


@pytest.mark.parametrize("score", [DotScore(), AdditiveScore(query_dim=4, key_dim=4, hidden=5)])
def test_context_attention_is_key_value_attention_on_its_own_values(score: nn.Module) -> None:
    layer = KeyValueAttention(score=score)
    context, value = torch.randn(2, 3, 4), torch.randn(2, 6, 4)
    y, weights = layer(context, value, return_weights=True)
    assert y.shape == (2, 3, 4) and weights.shape == (2, 3, 6)
    assert torch.allclose(y, weights @ value, atol=1e-6)
    assert torch.allclose(layer(context, value, value), y, atol=1e-6)


@pytest.mark.parametrize("name", SCORES)
def test_prepared_keys_change_nothing(name: str) -> None:
    """A decoder prepares the keys of the source once and asks for one query at a time."""
    layer = KeyValueAttention(score=make_score(name, query_dim=4, key_dim=4, hidden=5))
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 6, 4), torch.randn(2, 6, 7)
    mask = masks.padding([6, 3])
    keys = layer.keys(key)
    steps = [layer(query[:, i : i + 1], keys, value, mask=mask, prepared=True) for i in range(3)]
    assert torch.allclose(torch.cat(steps, 1), layer(query, key, value, mask=mask), atol=1e-6)


def test_keys_find_and_values_answer() -> None:
    """The database of D4: a query close to one key, at great length, brings that key's value."""
    keys, values = torch.eye(4)[None], torch.randn(1, 4, 7)
    found = KeyValueAttention(score=DotScore())(50 * torch.eye(4)[None, 2:3], keys, values)
    assert torch.allclose(found[0, 0], values[0, 2], atol=1e-6)


def test_dropout_only_in_training() -> None:
    layer = KeyValueAttention(score=DotScore(), dropout=0.5)
    q, k = torch.randn(2, 30, 4), torch.randn(2, 30, 4)
    assert not torch.allclose(layer(q, k), layer(q, k))
    layer.eval()
    assert torch.equal(layer(q, k), layer(q, k))


def test_prepared_keys_are_no_values() -> None:
    score = AdditiveScore(query_dim=4, key_dim=4, hidden=6)
    layer = KeyValueAttention(score=score)
    with pytest.raises(ValueError, match="prepared keys cannot replace the values"):
        layer(torch.randn(1, 2, 4), layer.keys(torch.randn(1, 3, 4)), prepared=True)
