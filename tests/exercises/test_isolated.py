"""Files of students are checked in processes of their own: endless loops, crashes and odd files become verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import UsageError
from regard.exercises.isolated import answer_files, check_files
from regard.exercises.verdict import Outcome, Verdict

HEADER = '"""Exercise {}: a title."""\nimport torch\n'
SUBMISSIONS = {
    "ann/right.py": 'def softmax(scores):\n    print("busy")\n    return torch.softmax(scores, -1)\n',
    "bob/endless.py": "def softmax(scores):\n    while True:\n        scores = scores + 1\n",
    "cy/raises.py": "def row(scores):\n    return scores[7]\n\n\ndef softmax(scores):\n    return row(scores)\n",
    "di/exits.py": "def softmax(scores):\n    raise SystemExit(5)\n",
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    folder = tmp_path_factory.mktemp("submissions")
    for name, code in SUBMISSIONS.items():
        path = folder / name
        path.parent.mkdir()
        path.write_text(HEADER.format("softmax") + code, encoding="utf-8")
    (folder / "notes.py").write_text("# not an answer\n", encoding="utf-8")
    return {str(path.relative_to(folder)): verdict for path, verdict in check_files([folder], limit=4)}


def test_a_folder_has_a_verdict_for_each_answer_in_order(verdicts: dict[str, Verdict]) -> None:
    assert list(verdicts) == sorted(SUBMISSIONS)
    assert {verdict.exercise for verdict in verdicts.values()} == {"softmax"}


def test_a_right_answer_shows_what_it_printed(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["ann/right.py"]
    assert verdict.outcome is Outcome.right
    assert verdict.printed.splitlines() == ["busy"] * 3


def test_an_endless_loop_is_stopped_and_its_line_is_shown(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["bob/endless.py"]
    assert verdict.outcome is Outcome.timeout
    assert "after 4 seconds" in verdict.message
    assert verdict.evidence[-1].startswith(("line 4, in softmax: while True:", "line 5, in softmax: scores ="))


def test_an_exception_is_shown_with_the_students_lines(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["cy/raises.py"]
    assert verdict.outcome is Outcome.error
    assert verdict.evidence[:2] == ("line 8, in softmax: return row(scores)", "line 4, in row: return scores[7]")
    assert verdict.evidence[2].startswith("IndexError: ")


def test_a_process_that_ends_is_an_error(verdicts: dict[str, Verdict]) -> None:
    assert verdicts["di/exits.py"].outcome is Outcome.error
    assert verdicts["di/exits.py"].message == "the process ended with code 5."


def test_a_folder_without_answers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file that answers an exercise"):
        list(answer_files([tmp_path]))
