"""Pictures of traces: the numbers of the trace, its words on the axes, nothing cut off, whatever the script."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.decoding.searches.beam import Beam
from regard.decoding.searches.sample import Sample
from regard.errors import UsageError
from regard.look import plot_trace, trace_text
from regard.look.heads.statistics import head_statistics
from regard.look.pictures.drawing.colours import TABLE
from regard.look.pictures.search_steps import tree_places
from regard.look.trace.attention_map import Map
from regard.look.trace.search_steps import Candidate, Node, Step, Tree
from regard.look.trace.trace import Axis, Head, Model, Token, Trace
from regard.look.trace.words import merge_words

# Letters that matplotlib's own font has, from left to right and from right to left; CJK is in test_fonts.py.
WORDS = st.text(st.sampled_from("abcWM_-.'éßłжЯψ" + "שלוםעברית" + "سلامكتابة"), min_size=1, max_size=14)
Clipped = Callable[[Figure], list[str]]


def make_trace(source: list[str], target: list[str], layers: int = 2, heads: int = 3) -> Trace:
    """Weights that are all different, between these words."""
    rng = np.random.default_rng(len(source) + 7 * len(target))
    shape = (layers, heads, len(target), len(source))
    weights = rng.dirichlet(np.ones(len(source)), shape[:3])
    axes = {name: Axis(tuple(map(Token, words))) for name, words in (("source", source), ("target", target))}
    model = Model("small", "transformer", {"decoder": layers}, heads, {})
    return Trace(model, axes, {"cross": Map("target", "source", weights)})


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@settings(max_examples=4)
@given(source=st.lists(WORDS, min_size=1, max_size=15), target=st.lists(WORDS, min_size=1, max_size=15))
def test_no_word_is_ever_cut(source: list[str], target: list[str], clipped: Clipped) -> None:
    trace = make_trace(source, target)
    for kind in ("alignment", "heads"):
        assert clipped(plot_trace(trace, kind, level="piece")) == []


def test_an_alignment_shows_the_head_that_was_asked_for() -> None:
    trace = make_trace(["a", "b", "c"], ["x", "y"])
    weights = trace.maps["cross"].weights
    for options, wanted in (
        ({}, weights[1].mean(0)),
        ({"layer": 0}, weights[0].mean(0)),
        ({"layer": 0, "head": 2}, weights[0, 2]),
        ({"head": 1}, weights[1, 1]),
    ):
        figure = plot_trace(trace, **options)
        np.testing.assert_allclose(figure.axes[0].images[0].get_array(), wanted, atol=1e-6)
        assert labels(figure.axes[0].xaxis) == ["a", "b", "c"] and labels(figure.axes[0].yaxis) == ["x", "y"]
    best = Trace(trace.model, trace.axes, trace.maps, best_head=Head(0, 1))
    np.testing.assert_allclose(plot_trace(best).axes[0].images[0].get_array(), weights[0, 1], atol=1e-6)
    assert "small: cross-attention, layer 0, head 1." in " ".join(plot_trace(best).get_supxlabel().split())


def test_all_heads_stand_in_rows_of_layers_with_their_badges() -> None:
    trace = make_trace(["a", "b", "c"], ["x", "y", "z"])
    weights = trace.maps["cross"].weights.copy()
    weights[1, 2] = np.eye(3)
    trace = Trace(trace.model, trace.axes, {"cross": Map("target", "source", weights)})
    figure = plot_trace(trace, "heads")
    assert len(figure.axes) == 6
    for number, axes in enumerate(figure.axes):
        layer, head = divmod(number, 3)
        np.testing.assert_array_equal(axes.images[0].get_array(), weights[layer, head])
        assert axes.images[0].get_clim() == (0, 1)  # one scale for all, or they could not be compared
        (name,) = [text.get_text() for text in axes.texts]
        badges = head_statistics(trace.maps["cross"]).badges(layer, head)
        assert name == ", ".join([f"{layer}.{head}", *badges])
    assert "diagonal" in figure.axes[5].texts[0].get_text()
    assert labels(figure.axes[0].yaxis) == ["x", "y", "z"] and labels(figure.axes[0].xaxis) == ["a", "b", "c"]
    places = [axes.get_position() for axes in figure.axes]
    assert places[0].y0 == places[2].y0 > places[3].y0 and places[0].x0 == places[3].x0 < places[1].x0
    assert len(plot_trace(trace, "heads", layer=1).axes) == 3


def test_words_or_pieces(small: Any) -> None:
    trace = trace_text(small.small_face("transformer"), small.TEXT, target="the cat eats")
    words = [token.text for token in merge_words(trace).axes["source"].tokens]
    pieces = [token.text for token in trace.axes["source"].tokens]
    assert len(words) < len(pieces)
    assert labels(plot_trace(trace).axes[0].xaxis) == words
    assert labels(plot_trace(trace, level="piece").axes[0].xaxis) == pieces
    assert labels(plot_trace(trace, which="dec_self", level="piece").axes[0].xaxis)[0] == "<s>"


@pytest.mark.parametrize("search", [Beam(3), pytest.param(Sample(seed=1, temperature=2.0), marks=pytest.mark.slow)])
def test_the_bars_of_every_step_are_its_probabilities(search: Any, small: Any, clipped: Clipped) -> None:
    trace = trace_text(small.small_face("transformer"), small.TEXT, search=search, max_tokens=4, top=10)
    figure = plot_trace(trace, "steps")
    assert clipped(figure) == []
    assert len(figure.axes) == len(trace.steps)
    for axes, step in zip(figure.axes, trace.steps, strict=True):
        bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        shares = [bar.get_width() for bar in bars]
        assert sum(shares) == pytest.approx(1, abs=1e-6)
        dark = [i for i, bar in enumerate(bars) if to_hex(bar.get_facecolor()) == TABLE[200]]
        (chosen,) = [one for one in step.candidates if one.token == step.chosen]
        assert [labels(axes.yaxis)[i] for i in dark] == [chosen.text]
        assert shares[dark[0]] == pytest.approx(math.exp(chosen.logp))
        assert labels(axes.yaxis)[-1] == "all others"


def test_a_tree_shows_every_node_and_the_best_path(small: Any, clipped: Clipped) -> None:
    trace = trace_text(small.small_face("transformer"), small.TEXT, search=Beam(3), max_tokens=6)
    assert trace.tree is not None
    figure = plot_trace(trace, "tree")
    assert clipped(figure) == []
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == [f"{node.text}  {node.score:.2f}" for node in trace.tree.nodes]
    bold = [i for i, text in enumerate(axes.texts) if text.get_weight() == "bold"]
    assert bold == trace.tree.path(trace.tree.best)
    assert len(axes.lines) == sum(node.parent is not None for node in trace.tree.nodes)
    boxes = [text.get_window_extent() for text in axes.texts]
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


@given(data=st.data())
def test_places_in_a_tree(data: st.DataObject) -> None:
    nodes: list[Node] = []
    for i in range(data.draw(st.integers(1, 40))):
        parent = data.draw(st.sampled_from([None, *range(i)]))
        length = 1 if parent is None else round(nodes[parent].sum / -1.0) + 1
        nodes.append(Node(parent, i, "x", -1.0, -1.0 * length, -1.0, "kept"))
    tree = Tree(2, 1.0, tuple(nodes), 0)
    places = tree_places(tree)
    assert len(set(places)) == len(places)
    for node, (step, _) in zip(nodes, places, strict=True):
        assert step == (0 if node.parent is None else places[node.parent][0] + 1)
    parents = {node.parent for node in nodes}
    leaves = sorted(line for i, (_, line) in enumerate(places) if i not in parents)
    assert leaves == list(range(len(leaves)))


def test_a_very_long_beam_has_a_tree_too() -> None:
    nodes = [Node(None if i == 0 else i - 1, 5, "x", -1.0, -1.0 * (i + 1), -1.0, "kept") for i in range(1500)]
    assert tree_places(Tree(1, 1.0, tuple(nodes), 1499))[-1] == (1499, 0.0)


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF-")])
def test_every_format(suffix: str, magic: bytes, tmp_path: Path) -> None:
    trace = make_trace(["le", "chat"], ["the", "cat"])
    assert trace.plot(tmp_path / f"alignment{suffix}").read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("head", {}, "unknown kind 'head'; did you mean 'heads'"),
        ("alignment", {"which": "rnn"}, "unknown map 'rnn'"),
        ("alignment", {"layer": 2}, "layer must be from 0 to 1, got 2"),
        ("alignment", {"layer": 0, "head": 3}, "head must be from 0 to 2, got 3"),
        ("alignment", {"level": "letter"}, "unknown level 'letter'"),
        ("heads", {"head": 0}, "leave out head"),
        ("steps", {}, "this trace has no steps"),
        ("steps", {"layer": 1}, "leave out map, layer and head"),
        ("tree", {}, "trace a beam search"),
    ],
)
def test_what_cannot_be_drawn(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plot_trace(make_trace(["a"], ["b"]), kind, **options)


def test_a_trace_without_attention_offers_its_steps() -> None:
    step = Step(5, (Candidate(5, "a", math.log(0.5)),), 0.5, 0.7)
    trace = Trace(Model("rnn", "rnn-lm", {}, 0, {}), {"target": Axis((Token("a"),))}, {}, (step,))
    with pytest.raises(UsageError, match="use the kind 'steps'"):
        plot_trace(trace)
    assert len(plot_trace(trace, "steps").axes) == 1
