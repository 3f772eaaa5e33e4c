"""Sinusoidal and learned positions and the two rejected ideas."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch.testing import assert_close

from regard.errors import DataError
from regard.positions import (
    Fraction,
    Index,
    Learned,
    Sinusoidal,
    distance_variance,
    fraction,
    index,
    inner_products,
    rotation,
    sinusoidal,
)


@given(
    length=st.integers(0, 6),
    dim=st.integers(1, 9),
    start=st.integers(-5, 5000),
    base=st.sampled_from([10.0, 10000.0]),
    first=st.integers(0, 2),
    halves=st.booleans(),
)
def test_every_option_is_the_formula(length: int, dim: int, start: int, base: float, first: int, halves: bool) -> None:
    layout = "halves" if halves else "interleaved"
    table = sinusoidal(length, dim, start=start, base=base, first=first, layout=layout)
    expected = []
    for t in range(start, start + length):
        angles = [t / base ** (2 * (first + c) / dim) for c in range((dim + 1) // 2)]
        sines, cosines = [math.sin(a) for a in angles], [math.cos(a) for a in angles]
        pairs = [wave for pair in zip(sines, cosines, strict=True) for wave in pair]
        expected.append((sines + cosines if halves else pairs)[:dim])
    assert table.shape == (length, dim) and table.dtype == torch.float32
    assert_close(table, torch.tensor(expected).view(length, dim), atol=1e-7, rtol=1e-6)


def test_table_has_float64_precision_when_asked_and_far_out() -> None:
    row = sinusoidal(1, 4, start=1_000_000, dtype=torch.float64)[0]
    expected = [math.sin(1e6), math.cos(1e6), math.sin(1e4), math.cos(1e4)]
    assert_close(row, torch.tensor(expected, dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("dim", [6, 7])
def test_module_adds_the_function(dim: int, start: int) -> None:
    x = torch.randn(2, 5, dim)
    module = Sinusoidal(dim=dim, start=start, base=100.0, first=1, layout="halves")
    table = sinusoidal(70_000, dim, start=start, base=100.0, first=1, layout="halves")
    assert_close(module.embed(x, torch.arange(5)), x + table[:5])
    positions = torch.tensor([[0, 1, 2, 3, 4], [9, 500, 7, 69_999, 3]])
    assert_close(module.embed(x, positions), x + table[positions])


def test_odd_width_ends_with_a_sine_and_loses_the_properties() -> None:
    table = sinusoidal(50, 5, dtype=torch.float64)
    assert_close(table[:, 4], torch.sin(torch.arange(50.0).double() / 10000 ** (4 / 5)))
    assert not torch.allclose(inner_products(table).diagonal(), inner_products(table)[0, 0])
    with pytest.raises(ValueError, match="dim must be even, not 5: the last sine of an odd width has no cosine"):
        rotation(3, 5)
    with pytest.raises(ValueError, match="dim must be even, not 5"):
        distance_variance(5)


def test_rows_that_are_kept_are_those_computed_anew() -> None:
    """While text is written rows are kept: they grow with it, and follow the dtype."""
    position = Sinusoidal(dim=6, start=1, layout="halves", first=1)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for positions in (torch.arange(3), torch.tensor([[70], [2]]), torch.tensor([500]), torch.tensor([-2, 1])):
            x = torch.zeros(2, positions.shape[-1], 6, dtype=dtype)
            with torch.no_grad():
                kept = [position.embed(x, positions) for _ in range(2)]
            computed = position.embed(x, positions)
            assert torch.equal(kept[0], computed) and torch.equal(kept[1], computed)
    with torch.inference_mode():
        position.embed(torch.zeros(1, 1, 6), torch.tensor([9000]))
    position.embed(torch.zeros(1, 1, 6, requires_grad=True), torch.tensor([3])).sum().backward()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim must be at least 1, not 0"),
        ({"length": -1}, "length must be at least 0, not -1"),
        ({"base": 0.0}, "base must be positive, not 0.0"),
        ({"layout": "pairs"}, "unknown layout 'pairs' \\(known: interleaved, halves\\)"),
    ],
)
def test_sinusoidal_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sinusoidal(**({"length": 3, "dim": 4} | arguments))
    with pytest.raises(TypeError, match=r"dim must be a whole number, not 4\.0"):
        sinusoidal(3, 4.0)


def test_learned_adds_its_rows() -> None:
    module = Learned(max_length=6, dim=4)
    assert module.table.requires_grad and module.out_dim(4) == 4
    x = torch.randn(2, 3, 4)
    assert_close(module.embed(x, torch.arange(3)), x + module.table[:3])
    rows = torch.tensor([[0, 1, 2], [5, 4, 3]])
    assert_close(module.embed(x, rows), x + module.table[rows])


def test_learned_concatenates_and_widens() -> None:
    module = Learned(max_length=6, dim=4, mode="concat", width=3)
    x = torch.randn(2, 3, 4)
    y = module.embed(x, torch.arange(3))
    assert y.shape == (2, 3, module.out_dim(4)) == (2, 3, 7)
    assert torch.equal(y[..., :4], x) and torch.equal(y[1, :, 4:], module.table[:3])
    rows = torch.tensor([[0, 1, 2], [5, 4, 3]])
    assert torch.equal(module.embed(x, rows)[..., 4:], module.table[rows])


def test_learned_past_its_length_says_length_limit_and_cure() -> None:
    module = Learned(max_length=6, dim=4)
    message = "length 7 has no learned positions past the trained length 6: shorten it, train with a larger max_length"
    with pytest.raises(ValueError, match=message):
        module.embed(torch.zeros(1, 7, 4), torch.arange(7))
    with pytest.raises(DataError, match=message):  # one step with a cache
        module.embed(torch.zeros(1, 1, 4), torch.tensor([6]))
    with pytest.raises(DataError, match=message):
        torch.compile(module.embed, backend="eager")(torch.zeros(1, 7, 4), torch.arange(7))
    with torch.device("meta"), pytest.raises(DataError, match=message):  # no values to read here, only the length
        Learned(max_length=6, dim=4).embed(torch.zeros(1, 7, 4), torch.arange(7))
    with pytest.raises(ValueError, match="positions must count from 0, but the lowest is -1"):
        module.embed(torch.zeros(1, 2, 4), torch.tensor([-1, 0]))
    assert module.embed(torch.zeros(1, 0, 4), torch.arange(0)).shape == (1, 0, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "multiply"}, "unknown mode 'multiply' \\(known: add, concat\\)"),
        ({"width": 3}, "width is the number of columns that mode='concat' appends; got mode='add', width=3"),
        ({"mode": "concat"}, "got mode='concat', width=None"),
        ({"mode": "concat", "width": 0}, "width must be at least 1, not 0"),
        ({"max_length": 0}, "max_length must be at least 1, not 0"),
    ],
)
def test_learned_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Learned(**({"max_length": 5, "dim": 4} | arguments))


def test_fraction_and_index_are_added_to_each_column() -> None:
    x = torch.randn(2, 5, 3)
    positions = torch.arange(5)
    assert_close(Fraction(dim=3).embed(x, positions), x + torch.tensor([0, 0.25, 0.5, 0.75, 1])[:, None])
    assert_close(Fraction(dim=3).embed(x, positions), x + fraction(5, 3))
    assert_close(Index(dim=3).embed(x, positions), x + torch.tensor([1.0, 2, 3, 4, 5])[:, None])
    assert_close(Index(dim=3).embed(x, positions), x + index(5, 3))
    assert fraction(1, 2).tolist() == [[0.0, 0.0]] and fraction(0, 2).shape == (0, 2)


def test_fraction_ends_at_each_rows_own_last_word() -> None:
    rows = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 2, 2]])  # the second sentence has three words
    share = Fraction(dim=1).embed(torch.zeros(2, 5, 1), rows)[..., 0]
    assert_close(share, torch.tensor([[0, 0.25, 0.5, 0.75, 1], [0, 0.5, 1, 1, 1]]))


def test_fraction_refuses_what_is_not_a_whole_sentence() -> None:
    module, x = Fraction(dim=2), torch.zeros(1, 1, 2)
    assert torch.equal(module.embed(x, torch.tensor([0])), x)
    with pytest.raises(ValueError, match="its length is unknown while it is being generated, which is why"):
        module.embed(x, torch.tensor([1]))
    # Compiled code does not look at values; there the answer cannot be mistaken for one.
    assert torch.compile(module.embed, backend="eager", fullgraph=True)(x, torch.tensor([1])).isnan().all()
    assert module.embed(torch.zeros(1, 0, 2), torch.arange(0)).shape == (1, 0, 2)


def test_inner_products_want_a_table() -> None:
    with pytest.raises(ValueError, match=r"table must be \(length, dim\), not \(3,\)"):
        inner_products(torch.zeros(3))
