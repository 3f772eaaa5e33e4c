"""A3: sentence embedding, the token vectors of a sentence aggregated into one vector."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import ContentAttention, EncoderConfig, SentenceEncoder
from regard.layers.embedding import bag_of_words
from regard.text.tokenizers.special_tokens import pad_batch

SENTENCES = [[4, 5, 6, 4], [7, 8]]


def by_hand(pooling: str, x: Tensor, model: SentenceEncoder) -> Tensor:
    """x (n, p) -> (p,)."""
    if pooling == "mean":
        return x.mean(0)
    if pooling == "max":
        return x.amax(0)
    if pooling == "first":
        return x[0]
    assert isinstance(model.pool, ContentAttention)
    scores = torch.stack([model.pool.theta[0] @ vector for vector in x]) / x.shape[1] ** 0.5
    return sum(weight * vector for weight, vector in zip(scores.exp() / scores.exp().sum(), x, strict=True))


@pytest.mark.parametrize("pooling", ["mean", "max", "first", "learned"])
def test_A3_token_vectors_become_one(pooling: str) -> None:
    """Of each sentence alone, though they are read as one padded batch."""
    model = SentenceEncoder(
        EncoderConfig(vocabulary=9, layers=1, dim=8, heads=2, hidden=12, pooling=pooling, normalize=False)
    ).eval()
    vectors = model(pad_batch(SENTENCES))
    assert vectors.shape == (2, 8)
    for vector, sentence in zip(vectors, SENTENCES, strict=True):
        x = model.encode(torch.tensor([sentence])).states[0]  # (n, p)
        torch.testing.assert_close(vector, by_hand(pooling, x, model), atol=1e-5, rtol=1e-5)


def test_A3_the_simplest_aggregate_is_the_sum_over_the_bag() -> None:
    """Without blocks: the mean of the rows is the bag of words times the table, divided by the length."""
    table = torch.randn(9, 8)
    sentence = torch.tensor(SENTENCES[0])
    torch.testing.assert_close(table[sentence].mean(0), bag_of_words(sentence, 9).float() @ table / 4)
