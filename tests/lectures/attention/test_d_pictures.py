"""D16: the alignment matrix, computed by attention and drawn with the words on its axes."""

from __future__ import annotations

import numpy as np
import torch

import regard
from regard.look.lecture_examples import ENGLISH, FRENCH, concept_vectors, marine_alignment
from regard.look.pictures.matrices import alignment_plot

SOURCE = [
    "It", "should", "be", "noted", "that", "the", "marine", "environment", "is", "the", "least", "known", "of",
    "environments", ".", "<end>",
]  # fmt: skip
TARGET = [
    "Il", "convient", "de", "noter", "que", "l'", "environnement", "marin", "est", "le", "moins", "connu", "de",
    "l'", "environnement", ".", "<end>",
]  # fmt: skip


def test_D16_noun_and_adjective_change_places() -> None:
    shown = marine_alignment()
    assert shown.source == SOURCE and shown.target == TARGET
    best = shown.weights.argmax(dim=1).tolist()
    noun, adjective = TARGET.index("environnement"), TARGET.index("marin")
    assert SOURCE[best[noun]] == "environment" and SOURCE[best[adjective]] == "marine"
    assert noun < adjective and best[noun] > best[adjective]  # they cross
    rest = [j for i, j in enumerate(best) if i not in (noun, adjective, TARGET.index("l'", 8))]
    assert rest == sorted(rest)  # all else runs in order, but for the article that English does not have
    assert SOURCE[best[TARGET.index("environnement", 8)]] == "environments"


def test_D16_a_trained_model_aligns_the_sentence_of_the_figure() -> None:
    """Given the translation of the figure, the shipped model finds every word but "de", which has no counterpart."""
    source = " ".join(SOURCE[:-1]).replace(" .", ".")
    target = " ".join(TARGET[:-1]).replace("l' ", "l'").replace(" .", ".")
    translator = regard.load("en-fr", device="cpu")
    found = translator.align(source, target)
    links = {(found.target[j].strip("."), found.source[i].strip(".")) for i, j in found.pairs}
    assert links >= {
        ("noter", "noted"), ("que", "that"), ("l'environnement", "environment"), ("marin", "marine"), ("est", "is"),
        ("le", "the"), ("moins", "least"), ("connu", "known"), ("de", "of"), ("l'environnement", "environments"),
    }  # fmt: skip
    assert "marin" not in translator.translate(source).text  # what the page says of the model by itself


def test_D16_weights_are_computed_and_not_written_down() -> None:
    """Softmax of scaled scores over meaning and position, done again in numpy with the formula of B2."""
    d = 64
    i = np.arange(0, d, 2)

    def positions(T: int) -> np.ndarray:
        angles = np.arange(T)[:, None] / 10000 ** (i / d)
        return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(T, d)

    length = 1.5 / np.sqrt(d / 2)
    q = concept_vectors(TARGET, FRENCH).numpy() + length * positions(len(TARGET))
    k = concept_vectors(SOURCE, ENGLISH).numpy() + length * positions(len(SOURCE))
    scores = np.exp(5 * q @ k.T)
    np.testing.assert_allclose(marine_alignment().weights, scores / scores.sum(1, keepdims=True), atol=1e-5)


def test_D16_picture_is_target_words_by_source_words() -> None:
    shown = marine_alignment()
    figure = alignment_plot(shown.weights, shown.source, shown.target, made=shown.made)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == TARGET  # rows
    assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE  # columns
    (image,) = axes.images
    assert torch.equal(torch.from_numpy(image.get_array().filled()), shown.weights)
    assert "regard.attend" in figure.get_supxlabel().replace("\n", " ")  # says how it was made
