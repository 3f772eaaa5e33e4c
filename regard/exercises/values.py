"""When two results are the same, and how they differ."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MAX_TEXT = 70  # characters of a value in a message


def as_tensor(value: Any) -> Tensor | None:
    """Return numbers as a tensor of doubles; None if the value is something else, such as a text or a ragged list."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", torch.float64)
    if isinstance(value, str) or value is None or isinstance(value, dict):
        return None
    try:
        return torch.as_tensor(value).to(torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return _stacked(value)


def _stacked(values: Any) -> Tensor | None:
    """Stack a list of tensors of one shape."""
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, Tensor) for value in values):
        return None
    shapes = {value.shape for value in values}
    return torch.stack([value.detach().to("cpu", torch.float64) for value in values]) if len(shapes) == 1 else None


def same(value: Any, expected: Any, tolerance: float) -> bool:
    """Whether two results are the same, up to the tolerance; tensors, arrays and lists of numbers count alike."""
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(same(value[key], expected[key], tolerance) for key in expected)
        )
    if isinstance(expected, tuple):
        return (
            isinstance(value, (tuple, list))
            and len(value) == len(expected)
            and all(same(one, other, tolerance) for one, other in zip(value, expected, strict=True))
        )
    numbers, expected_numbers = as_tensor(value), as_tensor(expected)
    if numbers is None or expected_numbers is None:
        return type(value) is type(expected) and bool(value == expected)
    if numbers.shape != expected_numbers.shape:
        return False
    return torch.allclose(numbers, expected_numbers, rtol=min(tolerance, 1e-4), atol=tolerance, equal_nan=True)


def difference(value: Any, expected: Any, tolerance: float) -> str:
    """Describe how a wrong result differs from the right one, in one sentence or two."""
    if value is None:
        return "It returns None. Does the function end with `return`?"
    if isinstance(expected, tuple):
        return _difference_of_tuples(value, expected, tolerance)
    numbers, expected_numbers = as_tensor(value), as_tensor(expected)
    if expected_numbers is None:
        return f"It is {brief(value)} and should be {brief(expected)}."
    if numbers is None:
        return f"It is {brief(value)}; expected are numbers of shape {tuple(expected_numbers.shape)}."
    return _difference_of_numbers(numbers, expected_numbers, tolerance)


def _difference_of_tuples(value: Any, expected: tuple[Any, ...], tolerance: float) -> str:
    if not isinstance(value, (tuple, list)) or len(value) != len(expected):
        size = f"{len(value)} values" if isinstance(value, (tuple, list)) else "one value"
        return f"It returns {size}; expected are {len(expected)}."
    pairs = zip(value, expected, strict=True)
    wrong = next(i for i, (one, other) in enumerate(pairs) if not same(one, other, tolerance))
    return f"Returned value {wrong + 1} of {len(expected)}: {difference(value[wrong], expected[wrong], tolerance)}"


def _difference_of_numbers(numbers: Tensor, expected: Tensor, tolerance: float) -> str:
    if numbers.shape != expected.shape:
        text = f"The shape is {tuple(numbers.shape)}, expected is {tuple(expected.shape)}."
        if numbers.dim() >= 2 and same(numbers.transpose(-2, -1), expected, tolerance):
            text += " It is the transpose of the right result."
        return text
    square = expected.dim() >= 2 and expected.shape[-1] == expected.shape[-2]
    if square and same(numbers.transpose(-2, -1), expected, tolerance):
        return "It is the transpose of the right result."
    if numbers.isnan().any() and not expected.isnan().any():
        return f"The result has nan at {_index(numbers.isnan())}: is 0 divided by 0, or infinity by infinity?"
    factor = _factor(numbers, expected, tolerance)
    if factor is not None:
        return f"Every number is {factor:.4g} times what it should be."
    wrong = ~torch.isclose(numbers, expected, rtol=min(tolerance, 1e-4), atol=tolerance, equal_nan=True)
    if expected.dim() == 0:
        return f"It is {_number(numbers.item())} and should be {_number(expected.item())}."
    first = tuple(int(i) for i in wrong.nonzero()[0])
    count = f"{int((~wrong).sum())} of {wrong.numel()} numbers are right"
    return (
        f"The first difference is at {list(first)}: {_number(numbers[first].item())} instead of "
        f"{_number(expected[first].item())} ({count})."
    )


def _factor(numbers: Tensor, expected: Tensor, tolerance: float) -> float | None:
    """Return the factor between the results, if there is one."""
    largest = expected.abs().max().item() if expected.numel() else 0.0
    if expected.numel() < 2 or not 0 < largest < float("inf") or not bool(numbers.isfinite().all()):
        return None
    factor = ((numbers * expected).sum() / (expected * expected).sum()).item()
    if factor != 0 and torch.allclose(numbers, factor * expected, rtol=1e-4, atol=tolerance * abs(factor)):
        return factor
    return None


def _index(mask: Tensor) -> list[int]:
    return [int(i) for i in mask.nonzero()[0]]


def _number(value: float) -> str:
    return f"{value:.5g}"


def brief(value: Any) -> str:
    """Return a value as a short text."""
    text = repr(value.tolist() if isinstance(value, Tensor) else value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
