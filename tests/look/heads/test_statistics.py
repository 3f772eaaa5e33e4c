"""Statistics of heads by hand and by plain loops, rollout by the paper's formula, the head that aligns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.errors import UsageError
from regard.look.heads.statistics import best_alignment_head, head_statistics, rollout
from regard.look.trace.attention_map import Map, unit_rows
from regard.look.trace.trace import Axis, Model, Token, Trace


def random_map(layers: int, heads: int, m: int, n: int, *, seed: int, causal: bool = False) -> Map:
    weights = np.random.default_rng(seed).random((layers, heads, m, n)) + 0.01
    mask = np.tri(m, n, n - m, dtype=bool) if causal else None
    return Map("target", "target", unit_rows(weights if mask is None else weights * mask), mask)


def test_heads_by_hand() -> None:
    """A head that looks back, one that looks at itself, one at the first token, and one everywhere."""
    n = 5
    back = np.eye(n, k=-1)
    back[0, 0] = 1
    first = np.zeros((n, n))
    first[:, 0] = 1
    weights = np.stack([back, np.eye(n), first, np.full((n, n), 1 / n)])[None]
    found = head_statistics(Map("source", "source", weights))
    assert found.previous[0].tolist() == pytest.approx([1, 0, 0.25, 0.2])
    assert found.diagonal[0].tolist() == pytest.approx([0.2, 1, 0.2, 0.2])
    assert found.first[0].tolist() == pytest.approx([0.4, 0.2, 1, 0.2])
    assert found.entropy[0].tolist() == pytest.approx([0, 0, 0, math.log(n)])
    assert found.broadness[0].tolist() == pytest.approx([0, 0, 0, 1])
    assert [found.badges(0, head) for head in range(4)] == [["previous"], ["diagonal"], ["first"], ["broad"]]


def test_a_translation_in_order_lies_on_the_diagonal() -> None:
    """Three words from five: the first, the middle and the last one."""
    weights = np.zeros((1, 1, 3, 5))
    weights[0, 0, [0, 1, 2], [0, 2, 4]] = 1
    assert head_statistics(Map("target", "source", weights)).diagonal == 1


def test_rows_that_may_look_at_nothing_do_not_count() -> None:
    weights = np.array([[[[1.0, 0, 0], [0.5, 0.5, 0], [0, 0, 0]]]])
    mask = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0]])
    found = head_statistics(Map("source", "source", weights, mask))
    assert found.first[0, 0] == pytest.approx(0.75) and found.diagonal[0, 0] == pytest.approx(0.75)
    assert found.entropy[0, 0] == pytest.approx(math.log(2) / 2)
    assert found.broadness[0, 0] == pytest.approx(0.5)  # of the two keys that there are
    nothing = head_statistics(Map("source", "source", np.zeros((1, 1, 2, 2)), np.zeros((2, 2))))
    assert nothing.entropy == nothing.first == nothing.previous == 0


@given(
    layers=st.integers(1, 2),
    heads=st.integers(1, 3),
    m=st.integers(1, 6),
    more=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_against_loops(layers: int, heads: int, m: int, more: int, seed: int) -> None:
    """A causal map, also one whose first keys were read before: query i is key i + more."""
    one = random_map(layers, heads, m, m + more, seed=seed, causal=True)
    found = head_statistics(one)
    for layer in range(layers):
        for head in range(heads):
            rows = one.weights[layer, head].astype(float)
            entropies = [-sum(p * math.log(p) for p in row if p > 0) for row in rows]
            assert found.entropy[layer, head] == pytest.approx(np.mean(entropies))
            assert found.diagonal[layer, head] == pytest.approx(np.mean([rows[i, i + more] for i in range(m)]))
            before = [rows[i, i + more - 1] for i in range(m) if i + more > 0]
            assert found.previous[layer, head] == pytest.approx(np.mean(before) if before else 0)
            assert found.first[layer, head] == pytest.approx(rows[:, 0].mean())
            assert -1e-9 <= found.broadness[layer, head] <= 1 + 1e-6


@given(layers=st.integers(1, 4), heads=st.integers(1, 3), m=st.integers(1, 6), residual=st.floats(0, 1))
def test_rollout_is_the_product_of_the_layers(layers: int, heads: int, m: int, residual: float) -> None:
    one = random_map(layers, heads, m, m, seed=layers + 10 * m)
    found = rollout(one, residual=residual)
    want = np.eye(m)
    for layer in range(layers):
        mean = sum(one.weights[layer, head].astype(float) for head in range(heads)) / heads
        want = ((1 - residual) * mean + residual * np.eye(m)) @ want
        np.testing.assert_allclose(found[layer], want, atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-9)


def test_rollout_by_hand() -> None:
    """Two layers that look back by one: after both, half of half of what is two back."""
    back = np.eye(3, k=-1)
    back[0, 0] = 1
    found = rollout(Map("source", "source", np.stack([back[None]] * 2)))
    assert found[1].tolist() == [[1, 0, 0], [0.75, 0.25, 0], [0.25, 0.5, 0.25]]
    causal = rollout(random_map(3, 2, 4, 4, seed=1, causal=True))
    assert not np.triu(causal, 1).any()


def test_what_looks_at_nothing_stays_what_it_is() -> None:
    one = Map("source", "source", np.array([[[[1.0, 0], [0, 0]]]]), np.array([[1, 0], [0, 0]]))
    assert rollout(one)[0].tolist() == [[1, 0], [0, 1]]


def test_rollout_wants_square_maps() -> None:
    with pytest.raises(UsageError, match="with a square map; this one is 2 by 3"):
        rollout(random_map(1, 1, 2, 3, seed=0))
    with pytest.raises(UsageError, match=r"residual must be from 0 to 1, got 1.5"):
        rollout(random_map(1, 1, 2, 2, seed=0), residual=1.5)


def aligned(words: list[str], order: list[int], kind: str = "cross") -> Trace:
    """A translation word by word, from words of two pieces: head 1 of layer 1 knows it, the others look at the end."""
    n = len(words)
    tokens = [Token(piece, i) for i, word in enumerate(words) for piece in (f"▁{word}", "s")]
    end = Token("</s>", special=True)
    source = Axis((*tokens, end), tuple(f"{word}s" for word in words))
    target = Axis(
        (*(Token(f"▁{words[j].upper()}", i) for i, j in enumerate(order)), end), tuple(words[j].upper() for j in order)
    )
    shape = (1, 1) if kind == "rnn" else (2, 2)
    weights = np.zeros((*shape, n + 1, 2 * n + 1))
    weights[..., -1] = 1
    knows = (0, 0) if kind == "rnn" else (1, 1)
    weights[knows][:n] = 0
    for i, j in enumerate(order):
        # The larger piece is not the whole: together they are more than the end.
        weights[(*knows, i)][[2 * j, 2 * j + 1, 2 * n]] = 0.3, 0.3, 0.4
    model = Model("m", "transformer", {"decoder": shape[0]}, shape[1], {})
    return Trace(model, {"source": source, "target": target}, {kind: Map("target", "source", weights)})


@pytest.mark.parametrize(("kind", "layer", "head"), [("cross", "decoder.1.cross", 1), ("rnn", "decoder.cross", 0)])
def test_the_head_that_aligns(kind: str, layer: str, head: int) -> None:
    orders = [[1, 0, 2], [2, 0, 1], [0, 1, 2]]
    traces = [aligned(words, order, kind) for words, order in zip(["abc", "bca", "acd"], orders, strict=True)]
    gold = [{(j, i) for i, j in enumerate(order)} for order in orders]
    best = best_alignment_head(traces, gold)
    assert (best.layer, best.head, best.score) == (layer, head, 0.0)
    told = best_alignment_head(traces)
    assert (told.layer, told.head) == (layer, head) and "mutual information" in told.how


def test_nothing_to_align_by() -> None:
    axes = {"source": Axis((Token("a"),))}
    trace = Trace(
        Model("m", "encoder", {"encoder": 1}, 1, {}), axes, {"enc_self": Map("source", "source", np.ones((1,) * 4))}
    )
    with pytest.raises(UsageError, match="trace 0 has no attention to a source"):
        best_alignment_head([trace])
