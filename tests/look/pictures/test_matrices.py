"""Pictures of matrices: the cells are the numbers, the labels are the words, and nothing is cut off."""

from __future__ import annotations

import string

import pytest
import torch
from hypothesis import given, settings, strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.look.lecture_examples import example_mask, jane_alignment, marine_alignment
from regard.look.pictures.matrices import alignment_plot, mask_plot, one_hot_plot, positions_plot


def labels(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def image_of(figure: Figure, axes: int = 0) -> torch.Tensor:
    (image,) = figure.axes[axes].images
    return torch.from_numpy(image.get_array().filled())


class TestAlignment:
    def test_words_and_weights(self) -> None:
        weights = torch.tensor([[0.7, 0.3, 0.0], [0.004, 0.2, 0.796]])
        figure = alignment_plot(weights, ["le", "chat", "dort"], ["the cat", "sleeps"], title="T", made="by hand")
        axes, bar = figure.axes
        assert labels(axes.xaxis) == ["le", "chat", "dort"]
        assert labels(axes.yaxis) == ["the cat", "sleeps"]
        assert torch.equal(image_of(figure), weights)
        assert axes.images[0].get_clim() == (0, 1)
        assert bar.get_ylabel() == "attention weight"
        assert figure.get_suptitle() == "T" and figure.get_supxlabel() == "by hand"

    def test_source_words_stand_on_top_and_rows_run_down(self) -> None:
        axes = alignment_plot([[1.0, 0.0]], ["a", "b"], ["c"]).axes[0]
        axes.figure.canvas.draw()
        tick = axes.xaxis.get_major_ticks()[0]
        assert tick.label2.get_visible() and not tick.label1.get_visible()
        assert axes.yaxis_inverted() and not axes.xaxis_inverted()

    def test_values_stand_in_their_cells(self) -> None:
        axes = alignment_plot([[0.75, 0.25, 0.0], [0.0, 0.0, 1.0]], list("abc"), list("de")).axes[0]
        written = {text.get_position(): text.get_text() for text in axes.texts}
        assert written == {(0, 0): ".75", (1, 0): ".25", (2, 1): "1.00"}
        assert list(alignment_plot([[1.0]], ["a"], ["b"], values=False).axes[0].texts) == []

    def test_nothing_is_clipped(self, clipped) -> None:
        marine = marine_alignment()
        assert clipped(alignment_plot(marine.weights, marine.source, marine.target, made=marine.made)) == []

    @settings(max_examples=8)
    @given(m=st.integers(1, 6), n=st.integers(1, 6), long=st.integers(1, 40))
    def test_nothing_is_clipped_at_any_size(self, m: int, n: int, long: int) -> None:
        figure = alignment_plot(torch.full((m, n), 1 / n), ["w" * long] * n, ["x" * (41 - long)] * m, made="how")
        figure.canvas.draw()
        axes, bar = figure.axes
        texts = [*axes.get_xticklabels(), *axes.get_yticklabels(), *bar.get_yticklabels(), bar.yaxis.label]
        for text in texts:
            box = text.get_window_extent()
            assert box.x0 > -0.5 and box.y0 > -0.5, text
            assert box.x1 < figure.bbox.x1 + 0.5 and box.y1 < figure.bbox.y1 + 0.5, text

    @pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 40), (40, 3)])
    def test_long_sentences_grow_the_figure_and_cells_hold_their_values(self, m: int, n: int) -> None:
        figure = alignment_plot(torch.ones(m, n), ["word"] * n, ["mot"] * m)
        figure.canvas.draw()
        axes = figure.axes[0]
        box, text = axes.get_window_extent(), axes.texts[0].get_window_extent()
        cell = box.width / n
        assert box.height / m == pytest.approx(cell)
        assert text.width < 0.9 * cell and text.height < 0.9 * cell

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([[0.5, 0.5], [1.0]], "rows of numbers, all rows of the same length"),
            ([["a", "b"]], "rows of numbers"),
            ([0.5, 0.5], r"must be a matrix .* not of shape \(2,\)"),
            ([[0.5, 0.5], [0.5, 0.5]], r"shape \(2, 2\), but 1 target and 2 source words need \(1, 2\)"),
            ([[0.5, 1.5]], "between 0 and 1, but run from 0.5 to 1.5"),
            ([[-0.5, 0.5]], "between 0 and 1"),
            ([[float("nan"), 0.5]], "between 0 and 1"),
        ],
    )
    def test_wrong_weights(self, weights: list, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            alignment_plot(weights, ["a", "b"], ["c"])


class TestPositions:
    def test_the_cells_are_the_table(self, clipped) -> None:
        table = torch.randn(20, 30)
        figure = positions_plot(table)
        assert torch.equal(image_of(figure), table)
        assert figure.axes[0].get_xlabel() == "dimension"
        assert figure.axes[0].get_ylabel() == "position in the sentence"
        assert clipped(figure) == []

    def test_every_dimension_has_whole_pixels(self) -> None:
        """Else the stripes of sine and cosine beat, and the picture shows waves that are not there."""
        figure = positions_plot(torch.zeros(100, 500))
        figure.set_dpi(160)
        figure.canvas.draw()
        box = figure.axes[0].get_window_extent()
        assert box.width / 500 == pytest.approx(round(box.width / 500), abs=1e-6)
        assert box.height / 100 == pytest.approx(round(box.height / 100), abs=1e-6)

    @pytest.mark.parametrize(("T", "d"), [(1, 1), (3, 2000), (500, 8)])
    def test_odd_sizes_are_not_clipped(self, T: int, d: int, clipped) -> None:
        assert clipped(positions_plot(torch.zeros(T, d))) == []

    def test_wrong_shape(self) -> None:
        with pytest.raises(ValueError, match=r"table must be \(positions, width\), not of shape \(3,\)"):
            positions_plot(torch.zeros(3))


class TestMask:
    def test_allowed_is_filled_and_forbidden_hatched(self, clipped) -> None:
        mask = torch.tensor([[True, False, True], [False, False, True]])
        figure = mask_plot(mask, title="T")
        axes = figure.axes[0]
        cells = {
            (int(cell.get_y() + 0.5), int(cell.get_x() + 0.5)): cell
            for cell in axes.patches
            if isinstance(cell, Rectangle)
        }
        assert len(cells) == 6
        fills = {to_hex(cells[i, j].get_facecolor()) for i, j in mask.nonzero().tolist()}
        assert len(fills) == 1
        for (i, j), cell in cells.items():
            assert bool(cell.get_hatch()) is not bool(mask[i, j])
            assert (to_hex(cell.get_facecolor()) in fills) is bool(mask[i, j])
        assert axes.get_xlabel() == "key" and axes.get_ylabel() == "query"
        assert axes.yaxis_inverted()
        assert clipped(figure) == []

    def test_example_masks_follow_their_rules(self) -> None:
        i, j = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="ij")
        assert torch.equal(example_mask("causal", 12), j <= i)
        assert torch.equal(example_mask("padding", 12), j < 9)
        assert torch.equal(example_mask("window", 12), (i - j).abs() <= 3)
        assert torch.equal(example_mask("document", 12), i // 4 == j // 4)
        assert all(example_mask(kind, 1).all() for kind in ("causal", "padding", "window", "document"))

    def test_errors(self) -> None:
        with pytest.raises(TypeError, match=r"mask must be bool .*, not torch.float32"):
            mask_plot(torch.ones(2, 2))
        with pytest.raises(ValueError, match=r"mask must be a matrix .* not of shape \(2, 2, 2\)"):
            mask_plot(torch.ones(2, 2, 2, dtype=torch.bool))
        with pytest.raises(ValueError, match="unknown kind of mask 'causl'; did you mean 'causal'"):
            example_mask("causl", 3)
        with pytest.raises(ValueError, match="size must be at least 1, not 0"):
            example_mask("causal", 0)


class TestOneHot:
    def test_sunny(self, clipped) -> None:
        figure = one_hot_plot()
        sparse, dense = image_of(figure, 0), image_of(figure, 1)
        assert sparse.shape == (5, 26) and dense.shape == (5, 5)
        assert sparse.nonzero().tolist() == [[0, 18], [1, 20], [2, 13], [3, 13], [4, 24]]
        assert torch.equal(sparse.sum(1), torch.ones(5))
        assert labels(figure.axes[0].xaxis) == list(string.ascii_uppercase)
        assert [label.split() for label in labels(figure.axes[0].yaxis)] == [
            ["S", "18"], ["U", "20"], ["N", "13"], ["N", "13"], ["Y", "24"],
        ]  # fmt: skip
        assert labels(figure.axes[1].yaxis) == list("SUNNY")
        assert torch.equal(dense[2], dense[3])
        assert len({tuple(row) for row in dense.tolist()}) == 4  # and no other two are
        assert clipped(figure) == []

    def test_the_dense_rows_are_the_product(self) -> None:
        """The table is 26 seeded normal rows; the picture's one-hot rows times it are the picture's dense rows."""
        table = torch.randn(26, 5, generator=torch.Generator().manual_seed(123))
        figure = one_hot_plot("attention")
        assert torch.equal(image_of(figure, 0) @ table, image_of(figure, 1))

    @pytest.mark.parametrize("word", ["", "été", "TWO WORDS", "R2D2"])
    def test_other_letters_are_refused(self, word: str) -> None:
        with pytest.raises(ValueError, match="word must be made of the letters A to Z"):
            one_hot_plot(word)

    def test_dim(self) -> None:
        with pytest.raises(ValueError, match="dim must be at least 1, not 0"):
            one_hot_plot(dim=0)


@pytest.mark.parametrize("made", [marine_alignment, jane_alignment])
def test_example_weights_are_distributions(made) -> None:
    weights = made().weights
    assert weights.shape == (len(made().target), len(made().source))
    assert torch.allclose(weights.sum(-1), torch.ones(len(weights)), atol=1e-6)
