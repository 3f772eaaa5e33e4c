"""The embedding table: words and their vectors, the plane of principal components, the nearest words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.api.translator import Translator
from regard.api.writer import Writer
from regard.look.embeddings import EmbeddedWords, principal_plane, word_table
from regard.models.config import RecurrentLMConfig, RecurrentTranslatorConfig
from regard.models.presets import make_model
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.subwords import train_subwords


def test_A2_plane_is_the_best_of_all_planes() -> None:
    """The projection has the two largest eigenvalues of the covariance as its variances (numpy's, not torch's)."""
    torch.manual_seed(0)
    vectors = torch.randn(40, 6) * torch.tensor([5.0, 3.0, 1.0, 1.0, 0.5, 0.1])
    plane = principal_plane(vectors)
    eigenvalues = np.linalg.eigvalsh(np.cov(vectors.double().numpy().T))[::-1]
    assert plane.points.double().var(0).tolist() == pytest.approx(eigenvalues[:2].tolist(), rel=1e-5)
    assert plane.explained == pytest.approx(eigenvalues[:2].sum() / eigenvalues.sum())
    assert plane.points.mean(0).tolist() == pytest.approx([0, 0], abs=1e-5)


def test_vectors_outside_the_fit_are_only_projected() -> None:
    torch.manual_seed(1)
    vectors = torch.randn(30, 5)
    first, more = principal_plane(vectors[:20]), principal_plane(vectors, fitted=20)
    torch.testing.assert_close(more.points[:20], first.points)
    assert more.explained == first.explained


def test_plane_does_not_depend_on_the_sign_of_a_component() -> None:
    vectors = torch.tensor([[3.0, 0.0], [-1.0, 1.0], [-2.0, -1.0]])
    points = principal_plane(vectors).points
    assert points[0, 0] > 0  # along the positive end of the longest entry
    torch.testing.assert_close(points, principal_plane(vectors.clone()).points)


def test_A2_nearest_words_are_those_of_the_smallest_angle() -> None:
    table = EmbeddedWords(
        ["cat", "dog", "car", "big cat"], torch.tensor([[1.0, 0.2], [1.0, 0.4], [-1.0, 0.3], [9.0, 1.8]])
    )
    nearest = table.nearest("cat", 3)
    assert [word for word, _ in nearest] == ["big cat", "dog", "car"]  # by the angle, not by the length
    assert nearest[0][1] == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"'cats' is not one token of this model.* Similar words: cat"):
        table.index("cats")


def test_A1_the_words_of_a_translator_are_whole_words_with_their_rows() -> None:
    texts = ["le chat noir dort dans le jardin"] * 5 + ["le chien dort"] * 3
    source = train_subwords(texts, size=None, kind="unigram", lossless=False)
    target = train_subwords(["the black cat sleeps in the garden"] * 5, size=None, kind="unigram", lossless=False)
    config = RecurrentTranslatorConfig(
        source_vocabulary=source.size, target_vocabulary=target.size, embedding=6, hidden=8
    )
    translator = Translator(make_model(config), source, target)
    table = word_table(translator)
    assert "chat" in table.words and all(len(word) > 1 and word.isalpha() for word in table.words)
    (token,) = source.encode("chat")
    row = table.vectors[table.index("chat")]
    torch.testing.assert_close(row, translator.model.encoder.embedding.weight[token].detach())


def test_the_words_of_a_character_model_are_its_characters() -> None:
    tokenizer = train_characters(["a cat\n"])
    writer = Writer(make_model(RecurrentLMConfig(vocabulary=tokenizer.size, embedding=4, hidden=4)), tokenizer)
    table = word_table(writer)
    assert table.words == ["⏎", "▁", "a", "c", "t"] and table.vectors.shape == (5, 4)
