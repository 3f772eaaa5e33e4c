"""What the checker says when no known mistake fits, or two at once; and how it reads files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import DataError, UsageError
from regard.exercises.answer_file import number, recognise, start
from regard.exercises.catalogue import entries, load_exercise
from regard.exercises.checking import check_answer, check_file
from regard.exercises.verdict import Outcome, Verdict


def attention(Q, K, V):
    return torch.softmax(Q @ K.mT / math.sqrt(K.shape[-1]), dim=-1) @ V


def test_two_mistakes_at_once() -> None:
    verdict = check_answer("scaled-dot-product", lambda Q, K, V: torch.softmax(Q @ K.mT, dim=-2) @ V)
    assert verdict.mistakes == ("no-scale", "softmax-over-queries")
    assert verdict.message.startswith("two mistakes at once. ")


@pytest.mark.parametrize(
    ("answer", "message", "evidence"),
    [
        (lambda Q, K, V: None, "wrong for one head.", "It returns None. Does the function end with `return`?"),
        (
            lambda Q, K, V: attention(Q, K, V).mT,
            "wrong for one head.",
            "The shape is (4, 3), expected is (3, 4). It is",
        ),
        (lambda Q, K, V: 3 * attention(Q, K, V), "wrong for one head.", "Every number is 3 times what it should be."),
        (lambda Q, K, V: attention(Q, K, V) / 0, "wrong for one head.", "The first difference is at [0, 0]: "),
        (lambda Q, K, V: attention(Q, K, V) * math.nan, "wrong for one head.", "The result has nan at [0, 0]: "),
        (lambda Q, K, V: "text", "wrong for one head.", "It is 'text'; expected are numbers of shape (3, 4)."),
        (
            lambda Q, K, V: attention(Q, K, V) if Q.dim() == 2 else attention(Q[0], K[0], V[0]),
            "right for one head, as many queries as keys; wrong for two heads.",
            "The shape is (3, 4), expected is (2, 3, 4).",
        ),
    ],
)
def test_an_answer_that_no_mistake_explains(answer: Any, message: str, evidence: str) -> None:
    verdict = check_answer("scaled-dot-product", answer)
    assert verdict.outcome is Outcome.wrong
    assert (verdict.message, verdict.mistakes) == (message, ())
    assert verdict.evidence[0].startswith(evidence)


def test_an_argument_changed_in_place_is_noted() -> None:
    def softmax(scores):
        scores -= scores.amax(-1, keepdim=True)
        return scores.exp() / scores.exp().sum(-1, keepdim=True)

    verdict = check_answer("softmax", softmax)
    assert verdict.right
    assert "changes an argument in place" in verdict.evidence[0]


def test_numbers_that_are_missing_or_wrong() -> None:
    weights, masked = [0.09, 0.245, 0.665], [0.27, 0.73, 0]
    assert check_answer("softmax-by-hand", {"weights": weights}).outcome is Outcome.unfinished
    assert check_answer("softmax-by-hand", {"weights": weights, "masked": masked}).right
    slip = check_answer("softmax-by-hand", {"weights": weights, "masked": [0.27, 0.5, 0]})
    assert (slip.message, slip.evidence) == ("right: weights; wrong: masked.", ("2 of 3 numbers are right.",))
    # The first wrong answer decides, when the others do not follow from the same mistake.
    carried_on = check_answer("softmax-by-hand", {"weights": [1, 2.72, 7.39], "masked": [5, 5, 5]})
    assert carried_on.mistakes == ("not-normalized",)
    assert check_answer("softmax-by-hand", {"weights": [0.5, 0.5]}).evidence == (
        "The shape is (2,), expected is (3,).",
    )


def test_numbers_may_be_fractions() -> None:
    assert number(["1/4", " 3 / 4", 2]) == [0.25, 0.75, 2]
    assert number("cat") == "cat"


def test_check_answer_wants_what_the_exercise_asks_for() -> None:
    with pytest.raises(TypeError, match="asks for a function"):
        check_answer("softmax", {"weights": [1]})
    with pytest.raises(TypeError, match="pass a dict with weights, masked"):
        check_answer("softmax-by-hand", attention)


def test_a_file_is_recognised_by_its_heading_or_its_name(tmp_path: Path) -> None:
    assert recognise(Path("hand-in 7.py"), '"""Exercise causal-mask: a title."""') == "causal-mask"
    assert recognise(Path("causal_mask.py"), "import torch") == "causal-mask"
    with pytest.raises(UsageError, match="answers no exercise"):
        recognise(Path("homework.py"), "# Exercise nothing: of this name")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = start("softmax", tmp_path)
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="nothing is overwritten"):
        start("softmax", tmp_path)
    assert path.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weights = [0.1,, 0.2]", "is not TOML"),
        ("wieghts = [0.1]", "wieghts is not asked for; weights, masked is"),
    ],
)
def test_a_file_of_numbers_that_cannot_be_read(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "softmax_by_hand.toml"
    path.write_text(text, encoding="utf-8")
    verdict = check_file(path)
    assert verdict.outcome is Outcome.error
    assert message in verdict.message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        check_file(tmp_path / "softmax.py")
    path = tmp_path / "softmax.py"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        check_file(path)


@pytest.mark.parametrize(
    ("code", "message", "evidence"),
    [
        (
            "import nothing_of_this_name",
            "the file cannot be run.",
            ("line 2, in <module>: import nothing_of_this_name", "ModuleNotFoundError: No module named"),
        ),
        (
            "def softmax(scores:\n    return scores",
            "the file cannot be run.",
            ("line 2: def softmax(scores:", "SyntaxError: '(' was never closed"),
        ),
        ("def soft_max(scores):\n    return scores", "the file has no function `softmax`.", ()),
    ],
)
def test_code_that_cannot_be_run(code: str, message: str, evidence: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "answer.py"
    path.write_text(f"# Exercise softmax: a title\n{code}\n", encoding="utf-8")
    verdict = check_file(path)
    assert (verdict.outcome, verdict.message) == (Outcome.error, message)
    assert len(verdict.evidence) == len(evidence)
    assert all(line.startswith(begin) for line, begin in zip(verdict.evidence, evidence, strict=True))


def test_verdicts_survive_json() -> None:
    verdict = Verdict("softmax", Outcome.wrong, "a message", ("one", "two"), "why", ("evidence",), "printed")
    assert Verdict.from_dict(verdict.to_dict()) == verdict


def test_unknown_names_are_explained() -> None:
    with pytest.raises(UsageError, match="did you mean 'softmax'"):
        load_exercise("sofmax")
    with pytest.raises(UsageError, match="unknown topic 'atention'; did you mean 'attention'"):
        entries(topic="atention")
