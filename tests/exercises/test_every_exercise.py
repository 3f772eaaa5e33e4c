"""Every exercise: its solution is right, its skeleton is not done yet, and each mistake is recognised as that mistake.

wrong_answers/ has each mistake as wrong code, an edit of the solution, independent of how the checker computes it.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from regard.exercises.answer_file import file_name, file_text, read_numbers, start
from regard.exercises.catalogue import ENTRIES, TOPICS, load_exercise, solution
from regard.exercises.checking import check_file
from regard.exercises.diagnosis import run
from regard.exercises.exercise import CodeExercise, Draw, NumberExercise
from regard.exercises.values import same
from regard.exercises.verdict import Outcome, Verdict

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WRONG: dict[str, dict[str, Any]] = {}
for path in sorted((HERE / "wrong_answers").glob("*.toml")):
    WRONG |= tomllib.loads(path.read_text(encoding="utf-8"))
WRONG_CASES = [(name, mistake) for name, answers in WRONG.items() for mistake in answers]


def check_text(name: str, text: str, folder: Path) -> Verdict:
    entry, exercise = load_exercise(name)
    path = folder / file_name(entry, exercise)
    path.write_text(text, encoding="utf-8")
    return check_file(path)


def wrong_text(name: str, answer: Any) -> str:
    """A wrong answer as a file: numbers, or the solution with its edits, each of which must change something."""
    if isinstance(answer, dict):
        return "\n".join(f"{key} = {value!r}" for key, value in answer.items())
    text = solution(name)
    for old, new in answer:
        assert old in text, f"{old!r} is not in the solution of {name}"
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", ENTRIES)
def test_solution_is_right(name: str, tmp_path: Path) -> None:
    verdict = check_text(name, solution(name), tmp_path)
    assert verdict.outcome is Outcome.right, str(verdict)
    assert verdict.evidence == ()


@pytest.mark.parametrize("name", ENTRIES)
def test_skeleton_is_not_done_yet(name: str, tmp_path: Path) -> None:
    path = start(name, tmp_path)
    verdict = check_file(path)
    assert verdict.outcome is Outcome.unfinished, str(verdict)
    assert verdict.exercise == name


@pytest.mark.parametrize(("name", "mistake"), WRONG_CASES)
def test_mistake_is_recognised(name: str, mistake: str, tmp_path: Path) -> None:
    verdict = check_text(name, wrong_text(name, WRONG[name][mistake]), tmp_path)
    assert verdict.outcome is Outcome.wrong, str(verdict)
    assert verdict.mistakes == (mistake,), str(verdict)
    assert verdict.why and verdict.evidence


def test_every_mistake_has_a_wrong_answer() -> None:
    known = {(name, mistake.name) for name in ENTRIES for mistake in load_exercise(name)[1].mistakes}
    assert set(WRONG_CASES) == known


@pytest.mark.parametrize("name", ENTRIES)
def test_mistakes_can_be_told_apart(name: str) -> None:
    """On the inputs of the checks, every mistake gives something else than the right answer and the other mistakes."""
    _, exercise = load_exercise(name)
    assert len({mistake.name for mistake in exercise.mistakes}) == len(exercise.mistakes) >= 2
    if isinstance(exercise, NumberExercise):
        answers = {mistake.name: exercise.reference(**mistake.options) for mistake in exercise.mistakes}
        answers["right"] = exercise.reference()
        for one, other in combinations(answers, 2):
            assert not same(answers[one], answers[other], exercise.tolerance), f"{one} gives the same as {other}"
        return
    cases = list(exercise.cases(Draw()))
    results = {m.name: [run(exercise.reference, case, **m.options) for case in cases] for m in exercise.mistakes}
    results["right"] = [run(exercise.reference, case) for case in cases]
    assert all(result.error is None for result in results["right"])
    for one, other in combinations(results, 2):
        pairs = zip(results[one], results[other], strict=True)
        equal = [
            same(a.value, b.value, exercise.tolerance) if a.error is b.error is None else str(a.error) == str(b.error)
            for a, b in pairs
        ]
        assert not all(equal), f"{one} gives the same as {other}"


@pytest.mark.parametrize("name", ENTRIES)
def test_files(name: str) -> None:
    """The start file shows the question in lines that fit, and the solution answers just what is asked."""
    entry, exercise = load_exercise(name)
    text = file_text(entry, exercise)
    assert max(map(len, text.splitlines())) <= 120
    assert text.count('"""') % 2 == 0
    if isinstance(exercise, CodeExercise):
        assert f"def {exercise.function}(" in exercise.skeleton
        compile(text, name, "exec")
    else:
        assert list(exercise.answers) == list(exercise.reference())
        assert list(read_numbers(Path(name), solution(name), exercise)) == list(exercise.answers)
        assert read_numbers(Path(name), text, exercise) == {}


def test_catalogue_and_folders_agree() -> None:
    listed = Counter(entry.module for entry in ENTRIES.values())
    topics = (ROOT / "regard/exercises/topics").rglob("*.py")
    solutions = [path for path in (ROOT / "regard/exercises/solutions").rglob("*.*") if path.suffix in (".py", ".toml")]
    for paths in (topics, solutions):
        assert Counter(f"{path.parent.name}/{path.stem}" for path in paths if path.stem != "__init__") == listed


def test_catalogue_is_ordered() -> None:
    for topic, rows in TOPICS.items():
        levels = [level for _, level, _, _ in rows]
        assert levels == sorted(levels), topic.title
        assert set(levels) <= {1, 2, 3}


def test_tags_are_those_of_the_lectures() -> None:
    page = (ROOT / "docs/learn/lectures.md").read_text(encoding="utf-8")
    unknown = {tag for entry in ENTRIES.values() for tag in entry.tags if f"\n| {tag} |" not in page}
    assert unknown == set()
    assert all(entry.tags for entry in ENTRIES.values())
