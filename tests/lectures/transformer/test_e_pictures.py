"""E9 and E11: the running example in numbers, and the diagrams, read by what is joined to what."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from regard.look.lecture_examples import jane_alignment, jane_flow
from regard.look.pictures.architecture import architecture_diagram, multi_head_diagram, scaled_dot_product_diagram
from regard.look.pictures.attention_flow import qkv_flow_diagram
from regard.look.pictures.concepts.growth import EXPERTS, GROWTH, growth_plot
from regard.look.pictures.drawing.boxes import Board, Box

Point = tuple[float, float]
JANE = "Jane visite l'Afrique en septembre"


class Graph:
    """The boxes of a diagram with their texts, and the arrows between them."""

    def __init__(self, draw: Callable[[], Figure], monkeypatch: pytest.MonkeyPatch) -> None:
        self.boxes: list[tuple[str, Box]] = []
        self.arrows: list[tuple[Point, ...]] = []
        make_box, make_arrow = Board.box, Board.arrow

        def box(board: Board, x: float, y: float, text: str, **look: object) -> Box:
            made = make_box(board, x, y, text, **look)
            self.boxes.append((text.replace("\n", " "), made))
            return made

        def arrow(board: Board, *points: Point, **look: object) -> None:
            self.arrows.append(points)
            make_arrow(board, *points, **look)

        monkeypatch.setattr(Board, "box", box)
        monkeypatch.setattr(Board, "arrow", arrow)
        self.figure = draw()
        self.notes = [text.get_text() for text in self.figure.findobj(Text)]

    def column(self, x: float) -> list[str]:
        """The texts of the boxes above x, from the bottom to the top."""
        here = [(box.y, text) for text, box in self.boxes if abs(box.x - x) < 1e-6]
        return [text for _, text in sorted(here)]

    def into(self, name: str) -> list[int]:
        """For each box of that name, how many arrows end on its edge."""
        counts = []
        for box in (box for text, box in self.boxes if text == name):
            ends = [points[-1] for points in self.arrows]
            counts.append(sum(self.touches(box, end) for end in ends))
        return counts

    @staticmethod
    def touches(box: Box, point: Point) -> bool:
        dx, dy = abs(point[0] - box.x) - box.width / 2, abs(point[1] - box.y) - box.height / 2
        return max(dx, dy) == pytest.approx(0, abs=1e-6)

    def joined(self, below: Box, above: Box) -> bool:
        return any(self.touches(below, points[0]) and self.touches(above, points[-1]) for points in self.arrows)


def test_E9_the_sentence_and_its_alignment() -> None:
    shown = jane_alignment()
    assert " ".join(shown.source) == f"{JANE} <end>"
    assert " ".join(shown.target) == "Jane visits Africa in September <end>"
    assert shown.weights.argmax(dim=1).tolist() == [0, 1, 2, 3, 4, 5]
    assert shown.weights.diagonal().min() > 0.8


def test_E9_q3_asks_what_is_happening_and_the_action_answers() -> None:
    flow = jane_flow()
    assert flow.words == JANE.split()
    person, action = 0, 1  # k1 answers "person", k2 "action"
    assert flow.weights[2].argsort(descending=True).tolist()[:2] == [action, person]
    assert flow.weights[2, action] > 0.5
    q, k, v = (tensor.numpy().astype("float64") for tensor in (flow.q, flow.k, flow.v))
    scores = q @ k.T / np.sqrt(k.shape[1])
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(flow.scores, scores, atol=1e-6)
    np.testing.assert_allclose(flow.weights, weights, atol=1e-6)
    np.testing.assert_allclose(flow.y, weights @ v, atol=1e-5)


def test_E11_the_whole_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(architecture_diagram, monkeypatch)
    encoder, decoder = sorted({box.x for _, box in graph.boxes})
    assert graph.column(encoder) == [
        "Embedding",
        "Multi-head self-attention", "Add & norm",
        "Feed-forward", "Add & norm",
    ]  # fmt: skip
    assert graph.column(decoder) == [
        "Embedding",
        "Masked multi-head self-attention", "Add & norm",
        "Multi-head cross-attention", "Add & norm",
        "Feed-forward", "Add & norm",
        "Linear", "Softmax",
    ]  # fmt: skip
    assert graph.into("Add & norm") == [2] * 5  # post-norm: the block's output and the residual line
    assert graph.into("Feed-forward") == [1, 1] == graph.into("Embedding")
    assert graph.into("Linear") == [1] == graph.into("Softmax")
    for name in ("Multi-head self-attention", "Masked multi-head self-attention", "Multi-head cross-attention"):
        assert graph.into(name) == [3], name  # keys, values and queries
    assert graph.notes.count("6 ×") == 2
    assert graph.notes.count("position\nencoding") == 2
    # E4: the way from the top of the encoder ends at the cross-attention.
    top = max((box for _, box in graph.boxes if box.x == encoder), key=lambda box: box.y)
    cross = next(box for text, box in graph.boxes if text == "Multi-head cross-attention")
    assert graph.joined(top, cross)


def test_E11_scaled_dot_product(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(scaled_dot_product_diagram, monkeypatch)
    names = [text for text, _ in graph.boxes]
    assert names == ["MatMul", "Scale", "Mask (optional)", "Softmax", "MatMul"]
    boxes = [box for _, box in graph.boxes]
    assert all(graph.joined(below, above) for below, above in pairwise(boxes))
    assert graph.into("MatMul") == [2, 2]  # Q and K; A and V
    assert {"Q", "K", "V", "Y"} <= set(graph.notes)
    assert r"$QK^\top/\sqrt{d_k}$" in graph.notes and r"$Y = AV$" in graph.notes


def test_E11_multi_head(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(multi_head_diagram, monkeypatch)
    middle = sorted({box.x for _, box in graph.boxes})[1]
    assert graph.column(middle) == ["Linear", "Scaled dot-product attention", "Concatenate", "Linear"]
    assert [text for text, _ in graph.boxes].count("Linear") == 4  # one each for Q, K, V, and W^O
    assert graph.into("Scaled dot-product attention") == [3]
    assert "512 → 8 × 64, one stacked matrix each" in graph.notes and "h = 8" in graph.notes
    copies = [patch for patch in graph.figure.axes[0].patches if (patch.get_gid() or "").startswith("copy")]
    assert len(copies) == 8  # two behind each of the three projections and behind the attention


def test_E11_flow_of_q_k_v_for_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(qkv_flow_diagram, monkeypatch)
    flow = jane_flow()
    assert set(JANE.split()) <= set(graph.notes)
    texts = [text for text, _ in graph.boxes]
    for weight in flow.weights[2].tolist():
        assert f"{weight:.2f}" in texts
    scores = [f"{score:.2f}" for score in flow.scores[2].tolist()]
    assert all(2 in graph.into(score) for score in scores)  # q3 and one key meet in each
    assert " ".join(f"{value:.1f}" for value in flow.y[2].tolist()) in [" ".join(text.split()) for text in texts]


def test_E10_sizes_of_published_models_follow_from_their_architectures() -> None:
    """(layers, width, vocabulary) of the papers: a block has 4 d^2 weights in attention and 8 d^2 behind it."""
    blocks = {
        "GPT": (12, 768, 40_478),
        "BERT (large)": (24, 1024, 30_522),
        "GPT-2": (48, 1600, 50_257),
        "Megatron-LM": (72, 3072, 51_200),
        "GPT-3": (96, 12_288, 50_257),
        "MT-NLG": (105, 20_480, 51_200),
    }
    sizes = {name: 12 * layers * d**2 + vocabulary * d for name, (layers, d, vocabulary) in blocks.items()}
    # Gopher (80 blocks of 16,384) has another d^2 for relative positions. T5 (24 + 24 blocks of 1,024) has attention of
    # 128 heads of width 128, three times for each pair of blocks, and a hidden layer of 65,536. Llama 3.1 (126 of
    # 16,384) has 8 heads of width 128 for keys and values, three matrices to a hidden layer of 53,248, and two tables.
    sizes["Gopher"] = 13 * 80 * 16_384**2 + 32_000 * 16_384
    sizes["T5"] = 72 * 4 * 1024 * 128 * 128 + 48 * 2 * 1024 * 65_536 + 32_128 * 1024
    d = 16_384
    sizes["Llama 3.1"] = 126 * (2 * d * d + 2 * d * 1024 + 3 * d * 53_248) + 2 * 128_256 * d
    # The big Transformer has 6 + 6 blocks of 1,024, cross-attention in half of them, and 37,000 tokens.
    sizes["Transformer (big)"] = 12 * 12 * 1024**2 + 6 * 4 * 1024**2 + 37_000 * 1024
    published = {point.name: point.parameters for point in GROWTH}
    assert {name: published[name] for name in sizes} == pytest.approx(sizes, rel=0.05)
    assert [point.time for point in GROWTH] == sorted(point.time for point in GROWTH)
    assert {point.name for point in GROWTH if point.active} < set(EXPERTS) < set(published)
    shown = [text.get_text() for text in growth_plot().findobj(Text)]
    assert {"GPT, 117 M", "GPT-2, 1.5 B", "GPT-3, 175 B", "Switch-C, 1.6 T"} < set(shown)
