"""A1, A2, A4: tokens and embeddings, as the lectures have them."""

from __future__ import annotations

import random

import pytest
import torch

import regard
from regard.layers.embedding import Embedding, bag_of_words, one_hot_lookup
from regard.layers.word_vectors import fill_from_vectors, read_vectors
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START, UNKNOWN, pad_batch, wrap
from regard.training.recipe.schema import DataRecipe, Recipe

PRINTED = [
    [0.6957, -1.8061, -1.1589, 0.3255, -0.6315],
    [-2.8400, -0.7849, -1.4096, -0.4076, 0.7953],
    [1.3010, 1.2753, -0.2010, -0.1606, -0.4015],
]


def lecture_table():
    """The lecture's torch.nn.Embedding(4, 5) after manual_seed(123), its weights in our table."""
    torch.manual_seed(123)
    table = Embedding(vocabulary=4, dim=5)
    torch.manual_seed(123)
    table.load_state_dict(torch.nn.Embedding(4, 5).state_dict(), strict=True)
    return table


def test_A1_printed_table():
    rows = lecture_table()(torch.tensor([2, 3, 1]))
    torch.testing.assert_close(rows.detach(), torch.tensor(PRINTED), atol=5e-5, rtol=0)


def test_A1_one_hot_product_is_the_look_up():
    table, tokens = lecture_table(), torch.tensor([2, 3, 1])
    product = one_hot_lookup(tokens, table.weight)
    assert torch.equal(product, table(tokens))
    torch.testing.assert_close(product.detach(), torch.tensor(PRINTED), atol=5e-5, rtol=0)
    # the same by hand, with the one-hot rows written down
    one_hot = torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0]])
    assert torch.equal(product, one_hot @ table.weight)
    # and the same gradient
    by_product, by_look_up = (
        torch.autograd.grad(y.sin().sum(), table.weight)[0]
        for y in (one_hot_lookup(tokens, table.weight), table(tokens))
    )
    torch.testing.assert_close(by_product, by_look_up)


def test_A1_the_table_has_highest_index_plus_one_rows():
    tokens = torch.tensor([2, 3, 1])
    highest = int(tokens.max())
    assert Embedding(vocabulary=highest + 1, dim=5)(tokens).shape == (3, 5)
    with pytest.raises(ValueError, match="tokens must lie in"):
        Embedding(vocabulary=highest, dim=5)(tokens)


def test_A1_sunny():
    letters = torch.tensor([ord(letter) - ord("A") for letter in "SUNNY"])
    assert letters.tolist() == [18, 20, 13, 13, 24]
    one_hot = one_hot_lookup(letters, torch.eye(26))  # times the identity: the sparse rows themselves
    assert one_hot.shape == (5, 26)
    assert one_hot.nonzero().tolist() == [[0, 18], [1, 20], [2, 13], [3, 13], [4, 24]]
    dense = Embedding(vocabulary=26, dim=4)(letters)
    assert dense.shape == (5, 4)
    assert torch.equal(dense[2], dense[3])
    assert len(dense.unique(dim=0)) == 4


def test_A2_king_and_queen(tmp_path):
    """Word2Vec and GloVe, trained: man is to king as woman is to queen, in a text whose contexts say so."""
    draw, lines = random.Random(1), []
    for _ in range(6000):
        word, royal, male = draw.choice(
            [("king", True, True), ("queen", True, False), ("man", False, True), ("woman", False, False)]
        )
        rank = draw.choice(("crown", "throne", "palace", "castle") if royal else ("field", "market", "farm", "village"))
        other = draw.choice(("he", "his", "him", "beard") if male else ("she", "her", "hers", "dress"))
        lines.append(f"{rank} {word} {other}\n")
    (tmp_path / "tales.txt").write_text("".join(lines))
    for method in ("skip-gram", "cbow", "glove"):
        recipe = Recipe(
            name="tales",
            data=DataRecipe(text=(str(tmp_path / "tales.txt"),)),
            model={"kind": "word-vectors", "method": method, "dim": 12},
        )
        overrides = {"training.steps": 150, "training.batch_tokens": 4096, "training.validate_every": 150}
        vectors = regard.train(recipe, out=tmp_path / method, overrides=overrides, quiet=True).load()
        assert vectors.analogy("man", "king", "woman")[0].word == "queen", method
        assert vectors.analogy("king", "man", "queen")[0].word == "woman", method


def test_A2_bag_of_words():
    sentence, shuffled = torch.tensor([[3, 1, 3, 0], [0, 3, 3, 1]])
    counts = bag_of_words(sentence, 5)
    assert counts.tolist() == [1, 1, 0, 2, 0]
    assert torch.equal(counts, bag_of_words(shuffled, 5))  # the order is forgotten
    table = Embedding(vocabulary=5, dim=4)
    torch.testing.assert_close(counts.float() @ table.weight, table(sentence).sum(0))
    assert bag_of_words(torch.stack([sentence, shuffled]), 5).shape == (2, 5)


@pytest.mark.parametrize("header", ["3 2\n", ""], ids=["word2vec", "glove"])
def test_A2_tables_of_word2vec_and_glove(tmp_path, header):
    path = tmp_path / "vectors.txt"
    path.write_text(header + "king 1.0 2.0\nqueen 1.0 -2.0\nman 0.5 0.25\n")
    words, matrix = read_vectors(path)
    assert words == ["king", "queen", "man"]
    assert matrix.tolist() == [[1.0, 2.0], [1.0, -2.0], [0.5, 0.25]]
    table = Embedding(vocabulary=4, dim=2, pad_id=0)
    report = fill_from_vectors(table, ["<pad>", "Queen", "king", "woman"], path)
    assert (report.found, report.missing) == (2, ("woman",))
    assert table(torch.tensor([0, 1, 2])).tolist() == [[0.0, 0.0], [1.0, -2.0], [1.0, 2.0]]


def test_A4_special_tokens():
    assert sorted([PAD, UNKNOWN, START, END]) == [0, 1, 2, 3]  # distinct, the first rows of a table
    assert [SPECIAL_TOKENS[index] for index in (PAD, UNKNOWN, START, END)] == ["<pad>", "<unk>", "<s>", "</s>"]
    table = Embedding(vocabulary=4, dim=3, pad_id=PAD)
    assert table(torch.tensor([PAD])).eq(0).all()
    assert table(torch.tensor([UNKNOWN, START, END])).ne(0).all()


def test_A4_sentences_between_start_and_end():
    """The target is wrapped; the source too where L2's way is chosen, else it has its end or nothing."""
    jane, visits = 7, 8
    assert wrap([jane, visits]) == [START, jane, visits, END]
    assert wrap([jane, visits], start=False) == [jane, visits, END]
    assert wrap([jane, visits], start=False, end=False) == [jane, visits]
    batch = pad_batch([wrap([jane, visits]), wrap([jane])])
    assert batch.tolist() == [[START, jane, visits, END], [START, jane, END, PAD]]
