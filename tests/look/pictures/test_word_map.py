"""The map of words: points by PCA, arrows, and labels that cover neither each other nor other points."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.look.pictures.word_map import principal_components, word_map_plot


def test_the_plane_is_that_of_the_principal_components() -> None:
    vectors = torch.randn(12, 5, generator=torch.Generator().manual_seed(1))
    points, share = principal_components(vectors)
    centred = vectors.double().numpy() - vectors.double().numpy().mean(0)
    values, directions = np.linalg.eigh(centred.T @ centred)  # in ascending order
    for component in (0, 1):
        expected = centred @ directions[:, -1 - component]
        sign = np.sign(expected @ points[:, component].numpy())
        np.testing.assert_allclose(points[:, component].numpy(), sign * expected, atol=1e-10)
        assert share[component] == pytest.approx(values[-1 - component] / values.sum())


def test_labels_cover_no_other_label() -> None:
    """Four pairs of neighbours, and two words at almost the same place; the words are long."""
    places = [(0, 0), (0.02, 0.01), (1, 0), (1, 0.04), (0, 1), (0.1, 1), (1, 1), (1.05, 1.02)]
    vectors = torch.tensor([(x, 1.7 * y, 0.0) for x, y in places])
    words = [f"germany{i}" for i in range(len(places))]
    figure = word_map_plot(vectors, words, arrows=[(0, 2), (4, 6)])
    figure.draw_without_rendering()
    labels = [text for text in figure.axes[0].texts if text.get_text()]
    assert [label.get_text() for label in labels] == words
    boxes = [label.get_window_extent() for label in labels]
    assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])


def test_too_few_words_are_refused() -> None:
    with pytest.raises(ValueError, match="at least three words, got 2"):
        principal_components(torch.eye(2))
