"""The variance formulas of the maps hold when it is measured, and tell the maps apart as theory does."""

from __future__ import annotations

import pytest
import torch

from regard.attention.linear.feature_maps import EluPlusOne, Plain, make_map
from regard.attention.linear.random_rows import draw_rows
from regard.attention.linear.variance import ESTIMATING, relative_variance, squared_sum


def vectors(length: float, d: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.nn.functional.normalize(torch.randn(2, 3, d, dtype=torch.float64), dim=-1) * length
    return x, y


@pytest.mark.parametrize("name", ESTIMATING)
def test_the_formula_is_what_is_measured(name: str) -> None:
    """50,000 draws of 4 rows: within 10%, for pairs with |x+y|² up to 1.4."""
    x, y = vectors(0.6)
    phi, W = make_map(name), draw_rows(200_000, 6, kind="independent").view(-1, 4, 6)
    (of_x, level_x), (of_y, level_y) = phi(x, W), phi(y, W)
    products = (of_x * level_x.exp().unsqueeze(-1)) @ (of_y * level_y.exp().unsqueeze(-1)).mT
    measured = products.var(0) / (2 * x @ y.mT).exp()
    torch.testing.assert_close(measured, relative_variance(phi, x, y, rows=4), rtol=0.1, atol=0.001)


def test_by_hand() -> None:
    """x = y = e_1: |x+y|² = 4, |x-y|² = 0; M = 2."""
    x = torch.tensor([[1.0, 0.0]])
    found = {name: relative_variance(make_map(name), x, x, rows=2).item() for name in ESTIMATING}
    assert found["trig"] == 0.0
    assert found["positive"] == pytest.approx(26.7991, rel=1e-5)  # (e⁴ - 1) / 2
    assert found["hyperbolic"] == pytest.approx(13.1541, rel=1e-5)  # (cosh 4 - 1) / 2
    assert found["optimal"] < found["hyperbolic"]


def test_sines_and_exponentials_mirror_each_other() -> None:
    x, y = vectors(1.0)
    sines, exponentials = make_map("trig"), make_map("hyperbolic")
    torch.testing.assert_close(relative_variance(sines, x, -y, rows=8), relative_variance(exponentials, x, y, rows=8))


def test_sharp_pairs_have_a_number() -> None:
    x, y = vectors(100.0)
    for name in ESTIMATING:
        assert relative_variance(make_map(name), x, y, rows=8).isfinite().all()


def test_sums_of_pairs() -> None:
    x, y = torch.randn(2, 4, 5), torch.randn(2, 3, 5)
    torch.testing.assert_close(squared_sum(x, y), (x[:, :, None] + y[:, None]).square().sum(-1))
    assert (squared_sum(x, -x) >= 0).all()  # rounding does not make it negative


@pytest.mark.parametrize("phi", [Plain(), EluPlusOne()])
def test_maps_without_a_formula(phi: object) -> None:
    with pytest.raises(ValueError, match=r"does not estimate exp\(x\.y\): hyperbolic, positive, optimal, trig do"):
        relative_variance(phi, torch.ones(1, 2), torch.ones(1, 2), rows=2)  # type: ignore[arg-type]
