"""B5, C2, D4, D9, D11, D14, E1: the pictures that explain an idea, with their numbers from closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regard.look.pictures.concepts.diagrams import FORMULAS, SHAPES, sequence_tasks_diagram, two_attentions_diagram
from regard.look.pictures.concepts.normalization import state_changes
from regard.look.pictures.concepts.position_schemes import CRITERIA, judge_scheme, position_schemes_plot, schemes
from regard.look.pictures.concepts.scaling import WIDTHS, measure_scaling
from regard.look.pictures.concepts.three_heads import search_weights, three_heads_weights


def test_E1_layer_norm_does_not_see_the_batch_and_batch_norm_does() -> None:
    changes = state_changes(redraws=16)
    assert changes["layer norm"].max() < 1e-12
    first, last = changes["batch norm"][:4].mean(), changes["batch norm"][-4:].mean()
    assert 0.1 < first < last / 1.5  # two sentences reach the last steps, eight the first ones


def test_D9_scores_have_the_variance_of_the_width() -> None:
    plain, scaled = measure_scaling(scaled=False), measure_scaling(scaled=True)
    np.testing.assert_allclose(plain.spread, np.sqrt(WIDTHS), rtol=0.1)
    np.testing.assert_allclose(scaled.spread, 1, rtol=0.1)
    assert plain.largest[-1] > 0.9 and max(scaled.largest) < 0.3
    assert plain.gradient[-1] < 0.3 * plain.gradient[0] and min(scaled.gradient) > 0.9 * max(scaled.gradient)


def test_B5_the_table_of_position_schemes_is_that_of_the_lecture() -> None:
    """B3 and B5: a fraction has steps of different size, the index grows, a learned table ends; sines have it all."""
    verdicts = {name: dict(zip(CRITERIA, judge_scheme(scheme), strict=True)) for name, scheme in schemes().items()}
    failed = {name: [criterion for criterion, met in row.items() if not met] for name, row in verdicts.items()}
    assert failed == {
        "fraction": ["a step is the same in every sentence"],
        "index": ["bounded"],
        "learned": ["any length", "no parameters"],
        "sinusoidal": [],
    }
    shown = [
        text.get_text() for axes in position_schemes_plot().findobj() if hasattr(axes, "texts") for text in axes.texts
    ]
    assert shown.count("no") == 4 and shown.count("yes") == 16


def test_D11_three_heads_find_what_when_and_who() -> None:
    """l'Afrique is (0, .1, 1, 0), so each query is 4.4 times a feature; row "what" by hand from the actions."""
    weights = three_heads_weights()
    assert weights.argmax(-1).tolist() == [1, 4, 0]  # visite, septembre, Jane
    row = np.exp(4.4 * np.array([0.1, 1.0, 0.1, 0.0, 0.0]))
    np.testing.assert_allclose(weights[0], row / row.sum(), rtol=1e-5)
    with pytest.raises(ValueError, match="word must be from 0 to 4, not 5"):
        three_heads_weights(5)


def test_D4_a_search_by_shared_words() -> None:
    """The query has 6 words, the first title 3 of them, the second 2 of its 4; the others none."""
    scores, weights = search_weights()
    wanted = [3 / math.sqrt(6 * 3), 2 / math.sqrt(6 * 4), 0, 0]
    np.testing.assert_allclose(scores, wanted, rtol=1e-6)
    row = np.exp(4 * np.array(wanted))
    np.testing.assert_allclose(weights, row / row.sum(), rtol=1e-5)


def test_D14_two_attentions_stand_line_by_line() -> None:
    recurrent, transformer = FORMULAS.values()
    assert [name for name, _ in recurrent] == [name for name, _ in transformer]
    texts = [text.get_text() for text in two_attentions_diagram().axes[0].texts]
    assert all(formula in texts for _, formula in (*recurrent, *transformer))


def test_C2_sequence_tasks_have_their_inputs_and_outputs() -> None:
    texts = [text.get_text() for text in sequence_tasks_diagram().axes[0].texts]
    assert (texts.count("x"), texts.count("y")) == (
        sum(len(shape.inputs) for shape in SHAPES),
        sum(len(shape.outputs) for shape in SHAPES),
    )
    assert [len(shape.inputs) for shape in SHAPES[:3]] == [1, 3, 3]
    assert [len(shape.outputs) for shape in SHAPES[:3]] == [3, 1, 3]
