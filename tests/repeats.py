"""Cases that repeat a claim: some run by default, and all of them with `make test-all`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def by_default(chosen: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`; those that are not among `chosen` are slow."""
    return [case if case in chosen else slow(case) for case in cases]


def some(cases: Iterable[Any], keep: int = 3) -> list[Any]:
    """The cases for `parametrize`; all but `keep` evenly spaced ones, the first and the last among them, are slow."""
    cases = list(cases)
    kept = {round(i * (len(cases) - 1) / max(keep - 1, 1)) for i in range(keep)}
    return [case if i in kept else slow(case) for i, case in enumerate(cases)]


def slow(case: Any) -> Any:
    """A case for `parametrize` that is slow: a value, a tuple of values or a `pytest.param`."""
    if hasattr(case, "marks"):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
