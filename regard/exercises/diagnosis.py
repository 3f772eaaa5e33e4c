"""Which mistake explains an answer: compare it with what each usual mistake gives on the same inputs."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, Mistake, NumberExercise
from regard.exercises.values import difference, same
from regard.exercises.verdict import Outcome, Verdict


@dataclass(frozen=True)
class Result:
    """What a function returned for one case, or the exception that it raised."""

    value: Any = None
    error: Exception | None = None
    changed_argument: bool = False


def run(function: Callable[..., Any], case: Case, **options: Any) -> Result:
    """Call the function with copies of the arguments."""
    arguments = copy.deepcopy(case.arguments)
    try:
        value = function(*arguments, **options)
    except Exception as error:
        return Result(error=error)
    changed = any(
        isinstance(before, Tensor) and not torch.equal(before, after)
        for before, after in zip(case.arguments, arguments, strict=True)
    )
    return Result(value, changed_argument=changed)


def check_function(name: str, exercise: CodeExercise, function: Callable[..., Any], path: str = "") -> Verdict:
    """Check a function on all cases, and find the mistake if it is wrong; `path` is the student's file."""
    cases = list(exercise.cases(Draw()))
    results = [run(function, case) for case in cases]
    expected = [run(exercise.reference, case).value for case in cases]
    if any(isinstance(result.error, NotImplementedError) for result in results):
        return Verdict(name, Outcome.unfinished, f"not done yet: write `{exercise.function}`.")
    right = [
        result.error is None and same(result.value, value, exercise.tolerance)
        for result, value in zip(results, expected, strict=True)
    ]
    if all(right):
        note = f"`{exercise.function}` changes an argument in place; a caller may still need it."
        evidence = (note,) if any(result.changed_argument for result in results) else ()
        return Verdict(name, Outcome.right, "right.", evidence=evidence)
    for mistakes in singles_and_pairs(exercise.mistakes):
        options = {key: value for mistake in mistakes for key, value in mistake.options.items()}
        wrong = [run(exercise.reference, case, **options) for case in cases]
        if explains(results, expected, wrong, exercise.tolerance):
            labels = "; ".join(case.label for case in cases)
            return explained(name, mistakes, f"Your results equal those of this in all {len(cases)} checks: {labels}.")
    return unexplained(name, exercise, cases, results, expected, right, path)


def singles_and_pairs(mistakes: Sequence[Mistake]) -> Iterator[tuple[Mistake, ...]]:
    """Yield each mistake, then each two that can be made at once."""
    yield from ((mistake,) for mistake in mistakes)
    for one, other in combinations(mistakes, 2):
        if not one.options.keys() & other.options.keys():
            yield one, other


def explains(results: Sequence[Result], expected: Sequence[Any], wrong: Sequence[Result], tolerance: float) -> bool:
    """Whether a mistake gives the student's results in all cases, and a wrong one in at least one.

    Where the mistake raises an exception, the student's function must raise one, too.
    """
    evidence = False
    for result, right_value, mistaken in zip(results, expected, wrong, strict=True):
        if result.error is not None or mistaken.error is not None:
            if result.error is None or mistaken.error is None:
                return False
            evidence = evidence or str(result.error) == str(mistaken.error)
        elif not same(result.value, mistaken.value, tolerance):
            return False
        else:
            evidence = evidence or not same(mistaken.value, right_value, tolerance)
    return evidence


def explained(name: str, mistakes: Sequence[Mistake], evidence: str) -> Verdict:
    """Return the verdict for an answer that one mistake, or two, explain."""
    what = " ".join(mistake.what for mistake in mistakes)
    message = what if len(mistakes) == 1 else f"two mistakes at once. {what}"
    names = tuple(mistake.name for mistake in mistakes)
    return Verdict(name, Outcome.wrong, message, names, " ".join(mistake.why for mistake in mistakes), (evidence,))


def unexplained(
    name: str,
    exercise: CodeExercise,
    cases: Sequence[Case],
    results: Sequence[Result],
    expected: Sequence[Any],
    right: Sequence[bool],
    path: str,
) -> Verdict:
    """Describe an answer that no known mistake explains: the first case that is wrong, and how."""
    first = right.index(False)
    scope = f"wrong for {cases[first].label}."
    correct = [case.label for case, is_right in zip(cases, right, strict=True) if is_right]
    if correct:
        scope = f"right for {', '.join(correct)}; {scope}"
    error = results[first].error
    if error is not None:
        return Verdict(name, Outcome.error, scope, evidence=student_lines(error, path))
    how = difference(results[first].value, expected[first], exercise.tolerance)
    return Verdict(name, Outcome.wrong, scope, evidence=(how,))


def student_lines(error: BaseException, path: str) -> tuple[str, ...]:
    """Return the lines of the student's file through which an exception passed, and the exception."""
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == path:
            lines.append(f"line {frame.lineno}, in {frame.name}: {frame.line}")
    if isinstance(error, SyntaxError) and error.lineno is not None:
        lines.append(f"line {error.lineno}: {(error.text or '').strip()}")
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    return (*lines, f"{type(error).__name__}: {what}")


def check_numbers(name: str, exercise: NumberExercise, answers: dict[str, Any]) -> Verdict:
    """Check numbers computed by hand; answers that are missing are left for later."""
    expected = exercise.reference()
    given = {key: answers[key] for key in expected if key in answers}
    wrong = [key for key in given if not same(given[key], expected[key], exercise.tolerance)]
    missing = [key for key in expected if key not in given]
    if wrong:
        return wrong_numbers(name, exercise, given, expected, wrong)
    if missing:
        correct = f"right so far: {', '.join(given)}; " if given else ""
        return Verdict(name, Outcome.unfinished, f"{correct}not done yet: {', '.join(missing)}.")
    return Verdict(name, Outcome.right, "right.")


def wrong_numbers(
    name: str, exercise: NumberExercise, given: dict[str, Any], expected: dict[str, Any], wrong: list[str]
) -> Verdict:
    """Find the mistake that gives all wrong answers; else the one that gives the first, after which others follow."""
    for keys in (wrong, wrong[:1]):
        for mistakes in singles_and_pairs(exercise.mistakes):
            options = {key: value for mistake in mistakes for key, value in mistake.options.items()}
            mistaken = exercise.reference(**options)
            if all(same(given[key], mistaken[key], exercise.tolerance) for key in keys):
                numbers = "is the number" if len(keys) == 1 else "are the numbers"
                return explained(name, mistakes, f"Your {', '.join(keys)} {numbers} that this gives.")
    correct = [key for key in given if key not in wrong]
    message = f"right: {', '.join(correct)}; wrong: {wrong[0]}." if correct else f"wrong: {wrong[0]}."
    return Verdict(name, Outcome.wrong, message, evidence=(hint(given[wrong[0]], expected[wrong[0]]),))


def hint(value: Any, expected: Any) -> str:
    """Say how a wrong number differs, without the right one."""
    from regard.exercises.values import as_tensor

    numbers, right = as_tensor(value), as_tensor(expected)
    if numbers is None or right is None:
        return f"{value!r} is not the right answer."
    if numbers.shape != right.shape:
        return f"The shape is {tuple(numbers.shape)}, expected is {tuple(right.shape)}."
    if right.dim() == 0:
        return f"It is too {'large' if numbers > right else 'small'}."
    close = torch.isclose(numbers, right, atol=0.006)
    return f"{int(close.sum())} of {close.numel()} numbers are right."
