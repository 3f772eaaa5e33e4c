"""Check an answer: a file of a student, or in a notebook a function or numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from regard.errors import DataError
from regard.exercises.answer_file import read_answer, read_numbers, recognise, unchanged
from regard.exercises.catalogue import load_exercise
from regard.exercises.diagnosis import check_function, check_numbers, student_lines
from regard.exercises.exercise import CodeExercise
from regard.exercises.verdict import Outcome, Verdict

MODULE = "student_answer"  # the name under which a student's file is imported


def check_answer(name: str, answer: Callable[..., Any] | dict[str, Any]) -> Verdict:
    """Check a function, or the numbers of an exercise by hand, in this process; for notebooks.

    >>> check_answer("perplexity-by-hand", {"perplexity": 4, "bits": 2}).outcome
    <Outcome.right: 'right'>
    """
    _, exercise = load_exercise(name)
    if isinstance(exercise, CodeExercise):
        if not callable(answer):
            raise TypeError(f"{name} asks for a function, not for {type(answer).__name__}")
        code = getattr(answer, "__code__", None)
        return check_function(name, exercise, answer, code.co_filename if code else "")
    if not isinstance(answer, dict):
        raise TypeError(f"{name} asks for numbers: pass a dict with {', '.join(exercise.answers)}")
    return check_numbers(name, exercise, answer)


def check_file(path: Path) -> Verdict:
    """Check the answer in a file. Code of the student runs in this process: `isolated.check_files` is safer."""
    text = read_answer(path)
    name = recognise(path, text)
    entry, exercise = load_exercise(name)
    if not isinstance(exercise, CodeExercise):
        try:
            return check_numbers(name, exercise, read_numbers(path, text, exercise))
        except DataError as error:
            return Verdict(name, Outcome.error, str(error))
    try:
        if unchanged(text, entry, exercise):
            return Verdict(name, Outcome.unfinished, "not done yet: the file is as `regard exercise start` wrote it.")
        module = import_answer(path)
    except Exception as error:
        return Verdict(name, Outcome.error, "the file cannot be run.", evidence=student_lines(error, str(path)))
    function = getattr(module, exercise.function, None)
    if not callable(function):
        return Verdict(name, Outcome.error, f"the file has no function `{exercise.function}`.")
    return check_function(name, exercise, function, str(path))


def import_answer(path: Path) -> ModuleType:
    """Run a student's file as a module, without leaving compiled files in the student's folder."""
    spec = spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[MODULE] = module
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module
