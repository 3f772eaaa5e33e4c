"""Attributions against what defines them: completeness, finite differences, and a recomputation without each token.

The models are small and random, in float64, so that the checks are sharp. What attributions of the shipped model say is
checked on a sentence whose translation every reader can align.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import regard
from regard.api.classifier import Classifier
from regard.errors import UsageError
from regard.look import attribute, rank_agreement
from regard.look.attribution.attribution import attribute_all, baseline_vectors
from regard.look.attribution.beside_attention import attention_beside
from regard.look.attribution.methods import METHODS, integrated_gradients
from regard.look.attribution.scored_text import score_text
from regard.models.config import (
    ClassifierConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.text.tokenizers.labels import train_labels
from regard.text.tokenizers.subwords import train_subwords

TEXTS = ["le chat noir dort", "the black cat sleeps", "le chat dort bien", "the cat sleeps well"]
STACK: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 2, "hidden": 24, "activation": "gelu"}  # ReLU has kinks
KINDS = ("translator", "shared table", "recurrent", "writer", "classifier")


@pytest.fixture(scope="module")
def faces() -> dict[str, Any]:
    """Small models of each kind with random weights, in float64."""
    tokenizer = train_subwords(TEXTS, size=None, kind="unigram", lossless=False)
    size = tokenizer.size
    sides = {"source_vocabulary": size, "target_vocabulary": size}
    labels = train_labels(["cat", "dog"])
    configs = {
        "translator": TransformerConfig(**STACK, **sides),
        "shared table": TransformerConfig(**STACK, **sides, share_embeddings=True, order="post", position="sinusoidal"),
        "recurrent": RecurrentTranslatorConfig(embedding=8, hidden=12, **sides),
        "writer": TransformerLMConfig(**STACK, vocabulary=size),
        "classifier": ClassifierConfig(**STACK, source_vocabulary=size, target_vocabulary=labels.size),
    }
    made = {}
    for seed, (kind, config) in enumerate(configs.items()):
        torch.manual_seed(seed)
        model = regard.make_model(config).double().eval()
        if kind == "classifier":
            made[kind] = Classifier(model, tokenizer, labels)
        elif kind == "writer":
            made[kind] = regard.Writer(model, tokenizer)
        else:
            made[kind] = regard.Translator(model, tokenizer, tokenizer)
    return made


def arguments(kind: str) -> dict[str, Any]:
    return {} if kind == "classifier" else {"target": " the black cat" if kind == "writer" else "the black cat"}


@pytest.mark.parametrize("kind", KINDS)
def test_integrated_gradients_are_complete(kind: str, faces: dict[str, Any]) -> None:
    """Sundararajan et al. 2017, proposition 1: a row sums to the difference of the outputs.

    The baseline is the text with its tokens moved by one, so that the way does not pass near zero, where a random model
    that normalizes its input changes abruptly.
    """
    scored = score_text(faces[kind], "le chat noir dort", **arguments(kind))
    x = scored.vectors()
    base = x.roll(1, 0)
    with torch.no_grad():
        change = (scored.score(x[None]) - scored.score(base[None]))[0]
    assert change.abs().max() > 1e-3
    values = integrated_gradients(scored.score, x, base, 64)
    assert values.shape == (len(scored.outputs), len(scored.inputs))
    assert (values.sum(1) - change).abs().max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_finite_differences(kind: str, faces: dict[str, Any]) -> None:
    """Scaling one token vector by 1 ± h changes each output by 2h times its contribution."""
    scored = score_text(faces[kind], "le chat noir dort", **arguments(kind))
    x, h = scored.vectors(), 1e-5
    values = METHODS["gradient_times_input"](scored.score, x, x, 0)
    for j in range(len(x)):
        more, less = x.clone(), x.clone()
        more[j] *= 1 + h
        less[j] *= 1 - h
        with torch.no_grad():
            slope = (scored.score(more[None]) - scored.score(less[None]))[0] / (2 * h)
        torch.testing.assert_close(values[:, j], slope, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_occlusion_is_what_a_model_says_without_the_token(kind: str, faces: dict[str, Any]) -> None:
    """Recomputed with a changed table: a row of it, used by one token only, is set to the baseline."""
    face = faces[kind]
    scored = score_text(face, "le chat noir dort", **arguments(kind))
    x = scored.vectors()
    values = METHODS["occlusion"](scored.score, x, baseline_vectors(scored, x, "zero"), 0)
    model, token = face.model, int(scored.tokens[1])
    assert (scored.tokens == token).sum() == 1
    table = next(module for module in model.modules() if isinstance(module, regard.Embedding))
    with torch.no_grad():
        before = scored.finish(scored.enter(scored.tokens[None]), 1)[0]
        kept = table.weight[token].clone()
        table.weight[token] = 0
        entered = scored.enter(scored.tokens[None])
        table.weight[token] = kept  # before the output layer, which may be the same table, reads it
        after = scored.finish(entered, 1)[0]
    torch.testing.assert_close(values[:, 1], before - after)


def test_what_is_after_an_output_contributes_nothing(faces: dict[str, Any]) -> None:
    for found in attribute_all(faces["writer"], "le chat", target=" noir dort"):
        assert not np.triu(found.values, 1).any(), found.method
        assert found.values.shape == (len(found.outputs), len(found.inputs))


def test_an_attribution_says_what_it_is_of(faces: dict[str, Any], tmp_path: Path) -> None:
    found = attribute(faces["translator"], "le chat noir dort", target="the black cat", method="occlusion")
    assert (found.output, found.outputs.tokens[-1].text) == ("the black cat", "</s>")
    content = found.to_dict()
    assert np.array(content["values"]).shape == (len(content["outputs"]), len(content["inputs"]))
    assert found.plot(tmp_path / "attribution.png") == tmp_path / "attribution.png"
    assert (tmp_path / "attribution.png").stat().st_size > 5000


def test_the_log_probabilities_are_those_of_the_model(faces: dict[str, Any]) -> None:
    from regard.decoding.forced import score_tokens

    face = faces["translator"]
    found = attribute(face, "le chat noir dort", target="the black cat", method="occlusion")
    source = face.read("le chat noir dort").ids
    (expected,) = score_tokens(face.model, [source], [list(found.ids)])
    np.testing.assert_allclose(found.logps, expected.logps, rtol=1e-6)


def test_the_classifier_can_be_asked_about_another_class(faces: dict[str, Any]) -> None:
    """The log-probabilities of two classes: what speaks for one speaks against the other."""
    cat, dog = (
        attribute(faces["classifier"], "le chat noir", label=label, method="occlusion") for label in ("cat", "dog")
    )
    np.testing.assert_allclose(np.exp(cat.logps) + np.exp(dog.logps), 1)
    assert (np.sign(cat.values) == -np.sign(dog.values)).all()
    beside = attention_beside(faces["classifier"], "le chat noir", cat)
    assert beside is not None and beside.shape == cat.values.shape
    np.testing.assert_allclose(beside.sum(1), 1)


def test_attention_of_the_same_tokens_stands_beside(faces: dict[str, Any]) -> None:
    for kind in ("translator", "recurrent", "writer"):
        found = attribute(faces[kind], "le chat noir", method="occlusion", **arguments(kind))
        beside = attention_beside(faces[kind], "le chat noir", found)
        assert beside is not None and beside.shape == found.values.shape, kind


def test_ranks_agree_or_do_not() -> None:
    weights: NDArray[Any] = np.array([[0.1, 0.2, 0.7]])
    assert rank_agreement(weights, np.array([[1.0, -2.0, 9.0]])) == pytest.approx(1)
    assert rank_agreement(weights, np.array([[9.0, 2.0, -1.0]])) == pytest.approx(-1)
    assert rank_agreement(np.array([[0.1, 0.1, 0.8]]), np.array([[1.0, 1.0, 5.0]])) == pytest.approx(1)
    assert np.isnan(rank_agreement(np.array([[0.5, 0.5]]), np.array([[1.0, 2.0]])))


def test_without_its_word_the_shipped_model_does_not_know_the_colour() -> None:
    """fr-en: “red” depends on “rouge” most, as its attention says; weights and contributions are not the same."""
    translator = regard.load("fr-en")
    found = attribute(translator, "Marie a acheté une voiture rouge", method="occlusion")
    rows, columns = ([token.text.lstrip("▁") for token in axis.tokens] for axis in (found.outputs, found.inputs))
    assert found.output == "Mary bought a red car"
    for word, source in (("Mary", "Marie"), ("red", "rouge")):
        assert columns[int(found.values[rows.index(word)].argmax())] == source
    beside = attention_beside(translator, "Marie a acheté une voiture rouge", found)
    assert beside is not None and 0.2 < rank_agreement(beside, found.values) < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "method"),
        ({"baseline": "magic"}, "baseline"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"label": "cat"}, "label is for classifiers"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str, faces: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=message):
        attribute(faces["translator"], "le chat", **options)
    with pytest.raises(UsageError, match="moon"):
        attribute(faces["classifier"], "le chat", label="moon")
