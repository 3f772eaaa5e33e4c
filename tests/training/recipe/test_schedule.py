"""The learning rate against its formulas, with numbers worked out by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from regard.errors import UsageError
from regard.recipes.schedule import SCHEDULES, learning_rate


def rate(step: int, kind: str, **settings: float) -> float:
    return learning_rate(step, **{"kind": kind, "peak": 2.0, "warmup": 10, "steps": 50, "dim": 16, **settings})


@pytest.mark.parametrize(
    ("kind", "step", "expected"),
    [
        # 2 · 16^-1/2 · min(step^-1/2, step · 10^-3/2)
        ("noam", 1, 0.5 / 10**1.5),
        ("noam", 10, 0.5 / math.sqrt(10)),
        ("noam", 1000, 0.5 / math.sqrt(1000)),
        ("inverse-sqrt", 5, 1.0),
        ("inverse-sqrt", 10, 2.0),
        ("inverse-sqrt", 40, 1.0),
        ("inverse-sqrt", 1000, 0.2),
        ("cosine", 5, 1.0),
        ("cosine", 10, 2.0),
        ("cosine", 20, 1 + math.sqrt(0.5)),
        ("cosine", 30, 1.0),
        ("cosine", 50, 0.0),
        ("cosine", 60, 0.0),
        ("linear", 1, 0.2),
        ("linear", 20, 1.5),
        ("linear", 50, 0.0),
        ("linear", 51, 0.0),
        ("constant", 9, 1.8),
        ("constant", 10, 2.0),
        ("constant", 1000, 2.0),
    ],
)
def test_values(kind: str, step: int, expected: float) -> None:
    assert rate(step, kind) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("kind", "middle"), [("cosine", 1.2), ("linear", 1.2)])
def test_floor(kind: str, middle: float) -> None:
    """With a floor of 0.2 the rate comes down from 2 to 0.4: halfway it is 1.2."""
    assert rate(10, kind, floor=0.2) == pytest.approx(2.0)
    assert rate(30, kind, floor=0.2) == pytest.approx(middle)
    assert rate(50, kind, floor=0.2) == rate(99, kind, floor=0.2) == pytest.approx(0.4)


def test_noam_of_the_paper() -> None:
    """Base model: width 512, 4000 steps of warm-up, the top is (512 · 4000)^-1/2, about 7e-4."""
    top = learning_rate(4000, kind="noam", peak=1.0, warmup=4000, dim=512)
    assert top == pytest.approx(1 / math.sqrt(512 * 4000)) == pytest.approx(6.99e-4, rel=1e-3)


@pytest.mark.parametrize("kind", SCHEDULES)
@given(warmup=st.integers(1, 200), more=st.integers(1, 300))
def test_one_top_at_the_end_of_the_warmup(kind: str, warmup: int, more: int) -> None:
    """Up in equal steps from 0 to the top, never up again, and no jump where the two meet."""
    rates = [
        learning_rate(t, kind=kind, peak=1.0, warmup=warmup, steps=warmup + more, dim=1)
        for t in range(1, warmup + more + 10)
    ]
    top = rates[warmup - 1]
    assert rates[:warmup] == pytest.approx([top * t / warmup for t in range(1, warmup + 1)])
    after = rates[warmup - 1 :]
    assert all(0 <= b <= a + 1e-12 for a, b in pairwise(after))
    assert top == pytest.approx(1.0 if kind != "noam" else warmup**-0.5)


@pytest.mark.parametrize(("kind", "second"), [("inverse-sqrt", 2 / math.sqrt(2)), ("constant", 2), ("linear", 1.92)])
def test_without_warmup(kind: str, second: float) -> None:
    assert rate(2, kind, warmup=0) == pytest.approx(second)


def test_warmup_longer_than_the_run_is_allowed_where_nothing_ends() -> None:
    for kind in ("noam", "inverse-sqrt", "constant"):
        assert 0 < rate(20, kind, warmup=100, steps=20) < rate(100, kind, warmup=100, steps=20)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "cosin"}, r"unknown schedule 'cosin'; did you mean 'cosine'\?"),
        ({"kind": "noam", "dim": None}, "follows the model's width: give dim"),
        ({"kind": "noam", "warmup": 0}, "warmup of at least 1"),
        ({"kind": "cosine", "steps": None}, "cosine schedule needs to know how many steps"),
        ({"kind": "linear", "warmup": 50}, "no steps left to come down: warmup=50, steps=50"),
        ({"kind": "constant", "floor": 0.1}, "floor=0.1 belongs to cosine and linear; the constant"),
        ({"kind": "cosine", "floor": 1.5}, "share of the highest rate, from 0 to 1; got 1.5"),
        ({"kind": "constant", "peak": 0.0}, "above 0, got 0"),
        ({"kind": "constant", "peak": math.nan}, "above 0, got nan"),
        ({"kind": "constant", "warmup": -1}, "cannot be -1"),
    ],
)
def test_errors(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rate(1, **settings)


def test_steps_count_from_one() -> None:
    with pytest.raises(ValueError, match="count from 1, got step=0"):
        rate(0, "constant")
