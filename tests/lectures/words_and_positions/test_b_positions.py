"""Section B of the lectures, one test or more a tag: positions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import regard
from regard.positions import (
    Fraction,
    Index,
    Learned,
    Position,
    Rotary,
    Sinusoidal,
    distance_variance,
    fraction,
    index,
    inner_products,
    make_position,
    rotation,
    sinusoidal,
)


def test_B1_equivariance() -> None:
    """Permuting the rows of X permutes the output rows, in bare attention and in a trained layer."""
    X = torch.randn(1, 7, 16)
    order = torch.tensor([3, 0, 6, 2, 1, 5, 4])
    layer = regard.MultiHeadAttention(dim=16, heads=4)
    for attention in (lambda x: regard.attend(x, x, x), layer):
        assert_close(attention(X[:, order]), attention(X)[:, order], atol=1e-6, rtol=0)
    # With positions it is not so: neither with B2's added nor with B7's turned in.
    p = sinusoidal(7, 16)
    assert not torch.allclose(layer(X[:, order] + p), layer(X + p)[:, order], atol=1e-3)
    rotary = regard.MultiHeadAttention(dim=16, heads=4, position="rotary")
    assert not torch.allclose(rotary(X[:, order]), rotary(X)[:, order], atol=1e-4)


def test_B2_sinusoidal_formula() -> None:
    d = 6
    table = sinusoidal(40, d)
    for pos in (0, 1, 17, 39):
        for i in range(d // 2):
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(pos / 10000 ** (2 * i / d)), abs=1e-6)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(pos / 10000 ** (2 * i / d)), abs=1e-6)


def test_B2_added_to_the_embedding() -> None:
    x = torch.randn(2, 5, 6)
    assert_close(Sinusoidal(dim=6).embed(x, torch.arange(5)), x + sinusoidal(5, 6))


def test_B2_L0_starts_at_i_1_and_L1_counts_from_1() -> None:
    d = 6
    assert_close(
        sinusoidal(3, d, first=1)[2, :2], torch.tensor([math.sin(2 / 10000 ** (2 / d)), math.cos(2 / 10000 ** (2 / d))])
    )
    assert_close(sinusoidal(3, d, first=1)[:, -1], torch.cos(torch.arange(3) / 10000.0))  # i = d/2: 10000^1
    assert_close(sinusoidal(4, d, start=1), sinusoidal(5, d)[1:])


@pytest.mark.parametrize("d", [4, 8, 128])
def test_B3_unique_bounded_deterministic_any_length(d: int) -> None:
    table = sinusoidal(2000, d, dtype=torch.float64)
    assert torch.cdist(table, table).fill_diagonal_(1).min() > 1e-3
    assert table.abs().max() <= 1
    assert torch.equal(table, sinusoidal(2000, d, dtype=torch.float64))
    assert torch.equal(table[:10], sinusoidal(10, d, dtype=torch.float64))  # a step is the same in any sentence
    assert sinusoidal(1, d, start=10**7).isfinite().all()


def test_B3_inner_product_depends_on_the_distance_only() -> None:
    d = 128
    products = inner_products(sinusoidal(500, d, dtype=torch.float64))
    for k in range(500):
        expected = sum(math.cos(k / 10000 ** (2 * i / d)) for i in range(d // 2))
        for diagonal in (products.diagonal(k), products.diagonal(-k)):
            assert_close(diagonal, torch.full_like(diagonal, expected), atol=1e-9, rtol=0)
    assert products[0, 0].item() == pytest.approx(64)


@pytest.mark.parametrize("k", [0, 1, 7, -3, 250])
def test_B3_k_steps_on_are_a_rotation(k: int) -> None:
    table = sinusoidal(300, 32, start=300, dtype=torch.float64)
    R = rotation(k, 32, dtype=torch.float64)
    assert_close(table @ R.T, sinusoidal(300, 32, start=300 + k, dtype=torch.float64), atol=1e-9, rtol=0)
    assert_close(R @ R.T, torch.eye(32, dtype=torch.float64))
    assert torch.linalg.det(R).item() == pytest.approx(1)


def test_B3_odd_width_is_defined_but_the_two_fail() -> None:
    table = sinusoidal(2000, 7, dtype=torch.float64)
    assert table.shape == (2000, 7)
    diagonal = inner_products(table).diagonal()
    assert diagonal.max() - diagonal.min() > 0.1
    # No matrix leads one step on and is a rotation: the length of p_t itself changes.
    with pytest.raises(ValueError, match="the last sine of an odd width has no cosine, so this fails"):
        rotation(1, 7)
    assert "properties of B3 then fail" in " ".join(sinusoidal.__doc__.split())


def test_B4_heat_map_is_100_by_500() -> None:
    table = sinusoidal(100, 500)
    assert table.shape == (100, 500)
    # What the picture shows: fast waves on the left, on the right columns that hardly move.
    assert table[:, :10].std(0).min() > 0.6 and table[:, -10:].std(0).max() < 0.01


def test_B4_variance_of_the_first_k_dimensions() -> None:
    d = 128
    variance = distance_variance(d)
    assert variance.shape == (64,)
    # k = 2, 4, …, 128, from the table itself: pairs of rows at distance 0 to 49, from another start
    table = sinusoidal(50, d, start=37, dtype=torch.float64)
    for k in (2, 26, 50, 62, 128):
        products = table[:, :k] @ table[0, :k]
        assert variance[k // 2 - 1].item() == pytest.approx(products.var(correction=0).item())
    assert variance[-1].item() == pytest.approx(53.26, abs=0.005)
    share = variance / variance[-1]
    assert round(share[50 // 2 - 1].item(), 2) == 0.81
    assert share[60 // 2 - 1] < 0.95 <= share[62 // 2 - 1]


def test_B5_fraction_means_another_step_in_another_sentence() -> None:
    assert_close(fraction(5, 2)[:, 0], torch.tensor([0, 0.25, 0.5, 0.75, 1]))
    assert_close(fraction(5, 2)[:, 0], fraction(5, 2)[:, 1])
    steps = {n: (fraction(n, 1)[1] - fraction(n, 1)[0]).item() for n in (5, 11)}
    assert steps == {5: pytest.approx(1 / 4), 11: pytest.approx(1 / 10)}
    # Nobody can tell how many words lie in a range: here from 0 to a half.
    assert [(fraction(n, 1) <= 0.5).sum().item() for n in (5, 11)] == [3, 6]
    with pytest.raises(ValueError, match="its length is unknown"):
        Fraction(dim=2).embed(torch.zeros(1, 1, 2), torch.tensor([3]))


def test_B5_index_grows_without_bound() -> None:
    assert index(4, 2).tolist() == [[1, 1], [2, 2], [3, 3], [4, 4]]
    seen, longer = index(50, 1), index(400, 1)
    assert longer.max() == 400 > seen.max() and sinusoidal(400, 8).abs().max() <= 1
    x = torch.zeros(1, 3, 2)
    assert_close(Index(dim=2).embed(x, torch.tensor([397, 398, 399]))[0], longer[397:].expand(3, 2))


def test_B6_learned_added_or_concatenated_and_undefined_past_its_length() -> None:
    x = torch.randn(1, 4, 6)
    added = Learned(max_length=4, dim=6)
    assert [p.shape for p in added.parameters()] == [(4, 6)]
    assert_close(added.embed(x, torch.arange(4)), x + added.table)
    joined = Learned(max_length=4, dim=6, mode="concat", width=2)
    assert_close(joined.embed(x, torch.arange(4)), torch.cat((x, joined.table[None]), -1))
    assert joined.out_dim(6) == 8  # L1: they enlarge the embedding
    for module in (added, joined):
        with pytest.raises(ValueError, match="length 5 has no learned positions past the trained length 4"):
            module.embed(torch.randn(1, 5, 6), torch.arange(5))


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_B7_rotary_turns_pairs_so_that_scores_know_the_distance(layout: str) -> None:
    d = 8
    rotary = Rotary(head_dim=d, layout=layout)
    q, k = torch.randn(2, d)
    pairs = [(2 * c, 2 * c + 1) if layout == "interleaved" else (c, c + d // 2) for c in range(d // 2)]
    for m, n in [(0, 0), (5, 2), (2, 5), (105, 102)]:
        # RoFormer's matrix R_{n - m}, written out: q_m . k_n = q R_{n-m} k
        R = torch.zeros(d, d)
        for c, (a, b) in enumerate(pairs):
            angle = (n - m) * 10000 ** (-2 * c / d)
            R[a, a] = R[b, b] = math.cos(angle)
            R[a, b], R[b, a] = -math.sin(angle), math.sin(angle)
        q_m = rotary.rotate(q.view(1, 1, 1, d), torch.tensor([m])).flatten()
        k_n = rotary.rotate(k.view(1, 1, 1, d), torch.tensor([n])).flatten()
        assert_close(q_m @ k_n, q @ R @ k, atol=1e-4, rtol=0)


def scores(scheme: Position, x: Tensor, positions: Tensor) -> Tensor:
    """Scaled scores of x (1, T, D) with itself, one head."""
    x = scheme.embed(x, positions)[:, None]
    q = scheme.rotate(x, positions)
    s = q @ q.mT / math.sqrt(x.shape[-1])
    bias = scheme.bias(x, positions, positions)
    return s if bias is None else s + bias


FIELDS = {
    "sinusoidal": ("fixed", "absolute"),
    "learned": ("learned", "absolute"),
    "rotary": ("fixed", "relative"),
    "alibi": ("fixed", "relative"),
    "relative": ("learned", "relative"),
    "t5": ("learned", "relative"),
    "index": ("fixed", "absolute"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_B8_the_four_fields(name: str) -> None:
    scheme = make_position(name, dim=8, heads=1, max_length=64)
    for table in scheme.parameters():
        torch.nn.init.normal_(table)
    how, of_what = FIELDS[name]
    assert ("learned" if list(scheme.parameters()) else "fixed") == how
    x, here = torch.randn(1, 10, 8), torch.arange(10)
    at_home, moved = scores(scheme, x, here), scores(scheme, x, here + 20)
    # Relative: the same wherever the sequence stands, but not when the distances change.
    assert torch.allclose(at_home, moved, atol=1e-4) == (of_what == "relative")
    assert not torch.allclose(at_home, scores(scheme, x, here.flip(0) * 3), atol=1e-2)
    line = next(line for line in regard.positions.__doc__.splitlines() if line.startswith(f"| {how} "))
    cell = line.split("|")[2 if of_what == "absolute" else 3]
    assert f"`{type(scheme).__name__}`" in cell
