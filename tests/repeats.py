"""Cases that repeat a claim: some run by default, and all of them with `make test-all`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def by_default(names: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`; those not among `names` are slow."""
    return [case if case in names else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def some(cases: Iterable[Any], keep: int = 3) -> list[Any]:
    """The cases for `parametrize`; all but `keep` evenly spaced ones, the first and the last among them, are slow.

    A case may be a value, a tuple of values or a `pytest.param`.
    """
    cases = list(cases)
    kept = {round(i * (len(cases) - 1) / max(keep - 1, 1)) for i in range(keep)}
    return [case if i in kept else _slow(case) for i, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    if hasattr(case, "marks"):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
