"""What a training says: metrics.jsonl, plain lines, the bar, and the words for a time."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from regard.errors import UsageError
from regard.training.loop.report import Report, duration, training_time


def test_metrics_hold_every_number(tmp_path: Path) -> None:
    with Report(tmp_path, steps=10, quiet=True) as report:
        report.log(5, "train", {"loss": 1.5}, "loss 1.5")
        report.log(5, "validation", {"bleu": {"value": 3.0}}, "BLEU 3.0")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [
        {"step": 5, "kind": "train", "loss": 1.5},
        {"step": 5, "kind": "validation", "bleu": {"value": 3.0}},
    ]


def test_a_resumed_run_says_nothing_twice(tmp_path: Path) -> None:
    """Lines after the step that it goes on from, and one that was cut off, are taken out."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 5, "kind": "train"}\n{"step": 10, "kind": "train"}\n{"step": 1')
    with Report(tmp_path, steps=20, start=5, quiet=True) as report:
        report.log(10, "train", {"loss": 1.0}, "")
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [5, 10]


def test_plain_lines_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Report(tmp_path, steps=10) as report:
        report.log(5, "train", {"loss": 1.5}, "loss 1.500")
        report.step(6)
        report.say("a word")
    shown = capsys.readouterr()
    assert shown.out == ""
    first, second = shown.err.splitlines()
    assert first.startswith("step 5/10  loss 1.500  ")
    assert first.endswith("left")
    assert second == "a word"


def test_a_bar_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with Report(tmp_path, steps=10, start=2) as report:
        report.log(5, "train", {"loss": 1.5}, "loss 1.500")
        report.log(5, "validation", {}, "BLEU 12.3 [not markup]")
        report.step(7)
    assert "7/10" in screen.getvalue()
    assert "loss 1.500" in screen.getvalue()
    assert "BLEU 12.3 [not markup]" in screen.getvalue()


def test_quiet_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Report(tmp_path, steps=10, quiet=True) as report:
        report.log(5, "train", {}, "loss")
        report.say("a word")
    assert capsys.readouterr() == ("", "")


def test_tensorboard_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"pip install 'regard\[tensorboard\]'"):
        Report(tmp_path, steps=1, tensorboard=True)


def test_tensorboard_gets_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    told: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path / "tensorboard")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            told.append((name, value, step))

        def close(self) -> None:
            told.append(("closed", 0.0, 0))

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    with Report(tmp_path, steps=9, quiet=True, tensorboard=True) as report:
        report.log(3, "train", {"loss": 2.0, "samples": ["text"]}, "")
    assert told == [("train/loss", 2.0, 3), ("closed", 0.0, 0)]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
        (float("inf"), "?"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_time_to_prepare_steps_is_told_apart() -> None:
    assert training_time(100.0, 0.4) == "1 min 40 s"
    assert training_time(100.0, 40.0) == "1 min 00 s, and 40 s to prepare the steps"
