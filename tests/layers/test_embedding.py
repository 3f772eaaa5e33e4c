"""The embedding table, the tied output and word counts."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from regard.layers.embedding import Embedding, bag_of_words, one_hot_lookup


class TestEmbedding:
    @given(st.integers(1, 9), st.integers(1, 5), st.lists(st.integers(0, 3), max_size=3), st.booleans())
    def test_look_up_is_torchs(self, vocabulary, dim, shape, scale):
        table = Embedding(vocabulary=vocabulary, dim=dim, scale=scale)
        theirs = nn.Embedding.from_pretrained(table.weight.detach() * (math.sqrt(dim) if scale else 1))
        tokens = torch.randint(vocabulary, shape)
        torch.testing.assert_close(table(tokens), theirs(tokens))

    def test_begins_with_standard_deviation_one_over_root_of_width(self):
        weight = Embedding(vocabulary=1000, dim=64, pad_id=5).weight
        assert weight[5].eq(0).all()
        assert weight.std().item() == pytest.approx(1 / 8, rel=0.02)
        assert weight.mean().item() == pytest.approx(0, abs=2e-3)

    def test_padding_row_is_zero_and_has_no_gradient(self):
        table = Embedding(vocabulary=5, dim=4, pad_id=2, scale=True)
        tokens = torch.tensor([[1, 2, 2], [3, 2, 0]])
        x = table(tokens)
        assert x[tokens == 2].eq(0).all()
        # tied: input and output both reach the table
        torch.nn.functional.cross_entropy(table.logits(x + 1).flatten(0, 1), tokens.flatten()).backward()
        assert table.weight.grad[2].eq(0).all()
        assert table.weight.grad[[0, 1, 3, 4]].ne(0).any(dim=1).all()

    def test_tied_output_is_the_transposed_table(self):
        for pad_id in (None, 0):
            table = Embedding(vocabulary=5, dim=4, pad_id=pad_id, scale=True)
            x = torch.randn(2, 3, 4)
            torch.testing.assert_close(table.logits(x), torch.einsum("btd,vd->btv", x, table.weight))

    def test_gradient_of_the_tied_output(self):
        table = Embedding(vocabulary=5, dim=4, pad_id=1).double()
        x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(table.logits, x)

    @pytest.mark.parametrize("pad_id", [pytest.param(None, marks=pytest.mark.slow), 0])
    def test_compiles_in_one_graph(self, pad_id):
        table = Embedding(vocabulary=5, dim=4, pad_id=pad_id, scale=True)
        compiled = torch.compile(lambda t: table.logits(table(t)), backend="eager", fullgraph=True)
        for length in (3, 4):
            tokens = torch.randint(5, (2, length))
            torch.testing.assert_close(compiled(tokens), table.logits(table(tokens)))

    @pytest.mark.parametrize(("tokens", "got"), [([0, 5], r"0\.\.5"), ([-1, 4], r"-1\.\.4")])
    def test_tokens_outside_the_table(self, tokens, got):
        tokens = torch.tensor(tokens)
        message = rf"tokens must lie in 0\.\.4, the rows of the table, got {got}"
        with pytest.raises(ValueError, match=message):
            Embedding(vocabulary=5, dim=4)(tokens)
        with pytest.raises(ValueError, match=message):
            one_hot_lookup(tokens, torch.randn(5, 4))
        with pytest.raises(ValueError, match=message):
            bag_of_words(tokens, 5)

    def test_wrong_arguments(self):
        table = Embedding(vocabulary=5, dim=4)
        with pytest.raises(TypeError, match=r"tokens must be torch.long or torch.int, got torch.float32"):
            table(torch.zeros(3))
        with pytest.raises(ValueError, match=r"x must be \(…, 4\), since dim is 4, got \(2, 3\)"):
            table.logits(torch.zeros(2, 3))
        with pytest.raises(TypeError, match=r"x must have the weights' dtype torch.float32, got torch.float64"):
            table.logits(torch.zeros(2, 4).double())
        with pytest.raises(ValueError, match=r"pad_id must lie in 0\.\.4, got 5"):
            Embedding(vocabulary=5, dim=4, pad_id=5)
        with pytest.raises(ValueError, match=r"vocabulary and dim must be at least 1, got 0 and 4"):
            Embedding(vocabulary=0, dim=4)
        with pytest.raises(ValueError, match=r"tokens must be \(…, length\), got a single number"):
            bag_of_words(torch.tensor(1), 5)
