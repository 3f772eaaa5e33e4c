"""The file in which a student answers an exercise: write it, recognise it, and read the numbers in it."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

from regard.errors import DataError, UsageError
from regard.exercises.catalogue import ENTRIES, Entry, load_exercise
from regard.exercises.exercise import CodeExercise, Exercise, NumberExercise

HEADING = re.compile(r"\bExercise ([a-z0-9-]+):")
HEADING_LINES = 20  # at the top of a file, among which the heading is searched
OPEN = "?"  # in a TOML file: not answered yet


def file_name(entry: Entry, exercise: Exercise) -> str:
    """Return the name of the file for an answer."""
    return entry.name.replace("-", "_") + exercise.suffix


def file_text(entry: Entry, exercise: Exercise) -> str:
    """Return the file that `regard exercise start` writes: the question, and the skeleton or the open answers."""
    tags = f"; {', '.join(entry.tags)} in the lectures" if entry.tags else ""
    question = (
        f"Exercise {entry.name}: {entry.title}.\n"
        f"({entry.topic.title}, level {entry.level}{tags})\n\n"
        f"{textwrap.dedent(exercise.question).strip()}\n\n"
        f"Check your answer with: regard exercise check {file_name(entry, exercise)}"
    )
    if isinstance(exercise, CodeExercise):
        return f'"""{question}\n"""\n\n{exercise.skeleton.strip()}\n'
    comment = "\n".join(f"# {line}".rstrip() for line in question.splitlines())
    return f"{comment}\n\n{open_answers(exercise)}"


def open_answers(exercise: NumberExercise) -> str:
    """Return the part of a TOML file that the student fills in."""
    return "\n".join(f'# {what}\n{key} = "{OPEN}"\n' for key, what in exercise.answers.items())


def start(name: str, folder: Path) -> Path:
    """Write the file of an exercise into a folder and return its path; UsageError if the file exists."""
    entry, exercise = load_exercise(name)
    path = folder / file_name(entry, exercise)
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(file_text(entry, exercise))
    except FileExistsError:
        raise UsageError(f"{path} exists, and nothing is overwritten: move or delete it to start again") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def read_answer(path: Path) -> str:
    """Read a student's file; DataError if it is not UTF-8 text, UsageError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def recognise(path: Path, text: str) -> str:
    """Return the name of the exercise that a file answers: from the heading in the file, or from the file's name."""
    for line in text.splitlines()[:HEADING_LINES]:
        heading = HEADING.search(line)
        if heading and heading[1] in ENTRIES:
            return heading[1]
    name = path.stem.replace("_", "-").lower()
    if name in ENTRIES:
        return name
    raise UsageError(
        f"{path} answers no exercise: keep the line `Exercise NAME: …` at its top, as `regard exercise start` writes it"
    )


def unchanged(text: str, entry: Entry, exercise: CodeExercise) -> bool:
    """Whether the code of a file is still the skeleton; comments and docstrings do not count."""
    return code_of(text) == code_of(file_text(entry, exercise))


def code_of(text: str) -> str:
    """Return the code of a Python file without comments, docstrings and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def read_numbers(path: Path, text: str, exercise: NumberExercise) -> dict[str, Any]:
    """Read the answers of a TOML file, without those that are still open; DataError if the file is not TOML."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        examples = 'write numbers as 0.5, fractions as "1/3", lists as [1, 2]'
        raise DataError(f"{path} is not TOML: {error}; {examples}") from error
    unknown = data.keys() - exercise.answers.keys()
    if unknown:
        raise DataError(f"{path}: {', '.join(sorted(unknown))} is not asked for; {', '.join(exercise.answers)} is")
    return {key: number(value) for key, value in data.items() if value not in (OPEN, "", [])}


def number(value: Any) -> Any:
    """Return an answer with texts such as "1/3" as numbers; other texts stay as they are."""
    if isinstance(value, list):
        return [number(entry) for entry in value]
    if isinstance(value, str):
        try:
            return float(Fraction(value.replace(" ", "")))
        except (ValueError, ZeroDivisionError):
            return value
    return value
