"""`regard lectures`: the lectures' numbers on the screen, in 80 columns, and every picture in a folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from typer.testing import CliRunner, Result

from regard.attention import dispatch
from regard.cli import app
from regard.cli.lectures import agree


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("lectures") / "deep" / "pictures"
    return CliRunner().invoke(app, ["lectures", "--out", str(folder)], env={"COLUMNS": "120"}), folder


def rows(text: str) -> list[list[str]]:
    """The numbers of every line that has some."""
    return [found for line in text.splitlines() if (found := re.findall(r"-?\d+\.\d+|-?\b\d+\b", line))]


def test_it_runs(shown: tuple[Result, Path]) -> None:
    result, _ = shown
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""


def test_the_printed_numbers_are_on_the_screen(shown: tuple[Result, Path]) -> None:
    found = rows(shown[0].stdout)
    expected = [
        "0.6957 -1.8061 -1.1589 0.3255 -0.6315",  # A1
        "-2.8400 -0.7849 -1.4096 -0.4076 0.7953",
        "3 -3 1",  # D6
        "-7 -1 11",
        "0.879 0.002 0.119",
        "0.000 0.000 1.000",
        "1.762 3.229 0.998",
        "0.000 5.000 1.000",
        "0.743 0.023 0.234",  # with 1/sqrt(3): exp(3/sqrt 3) : exp(-3/sqrt 3) : exp(1/sqrt 3)
    ]
    for line in expected:
        numbers = line.split()
        assert any(numbers == row[i : i + len(numbers)] for row in found for i in range(len(row))), line
    assert "[ 0.500  0.500  0.000 ]" in shown[0].stdout  # D10
    assert "[ 0.333  0.333  0.333  0.000 ]" in shown[0].stdout


@pytest.mark.parametrize(
    ("computed", "printed"),
    [
        ("⎡  3  -3   1 ⎤", "⎡  3  -3   1 ⎤"),
        ("⎡ 0.879  0.002  0.119 ⎤", "⎡ 0.879  0.002  0.119 ⎤"),
        ("⎡ 1.762  3.229  0.998 ⎤", "⎡ 1.762   3.23  0.998 ⎤"),
        ("[ 0.500  0.500  0.000 ]", "[ 1/2  1/2    0 ]"),
        ("[ 0.333  0.333  0.333  0.000 ]", "[ 1/3  1/3  1/3    0 ]"),
    ],
)
def test_the_slides_numbers_stand_beside_the_computed_ones(
    shown: tuple[Result, Path], computed: str, printed: str
) -> None:
    assert f"{computed} slide {printed}" in shown[0].stdout


def test_the_wide_table_stands_above_the_slides(shown: tuple[Result, Path]) -> None:
    """A1: three computed rows, then the three of the slide, character by character."""
    first = "0.6957  -1.8061  -1.1589   0.3255  -0.6315"
    assert shown[0].stdout.count(first) == 2 and "slide" in shown[0].stdout.split(first)[2].splitlines()[1]


def test_the_factor_is_what_the_lecture_lacks(shown: tuple[Result, Path]) -> None:
    """F3: no line says that the slide has the factor of the keys; the corrected limit agrees with the softmax."""
    screen = shown[0].stdout.split("F3")[1]
    assert "lacks the factor exp(|y|²/2) of each key" in " ".join(screen.split())
    assert "with the factor, the limit agrees with softmax" in screen and "agrees with the slide" not in screen


def test_inner_products_do_not_depend_on_the_start(shown: tuple[Result, Path]) -> None:
    lines = re.findall(r"from t = \d+\s+(.*?)\s*│", shown[0].stdout)
    assert len(lines) == 3 and len(set(lines)) == 1
    assert lines[0].split()[0] == "64.0000"  # d/2 for d = 128


def test_every_check_passed(shown: tuple[Result, Path]) -> None:
    assert shown[0].stdout.count("✓") == 11  # A1 two, D6 three, D10 two, B3 one, F3 two, and the pictures
    assert "✗" not in shown[0].stdout


def test_it_fits_80_columns_on_a_wider_screen_too(shown: tuple[Result, Path]) -> None:
    lines = shown[0].stdout.replace(str(shown[1]), "pictures").splitlines()
    assert max(cell_len(line) for line in lines if "pictures in" not in line) <= 80


def test_the_causal_mask_is_drawn(shown: tuple[Result, Path]) -> None:
    for i in range(8):
        assert " ".join("■" * (i + 1) + "·" * (7 - i)) in shown[0].stdout


def test_jane_is_aligned(shown: tuple[Result, Path]) -> None:
    """The words are in the same order in both languages, so the largest number of row i is the i-th."""
    screen = shown[0].stdout.split("E9")[1]
    for i, word in enumerate(("Jane", "visits", "Africa", "in", "September", "<end>")):
        line = next(line for line in screen.splitlines() if re.match(rf"│\s+{word}\s+[\d·]", line))
        cells = [0.0 if cell == "·" else float(cell) for cell in re.findall(r"·|\d\.\d\d", line)]
        assert len(cells) == 6
        assert cells.index(max(cells)) == i and max(cells) > 0.5


def test_the_lectures_formula_keeps_an_error_and_the_corrected_one_does_not(shown: tuple[Result, Path]) -> None:
    """F3: the first row falls to its bias and stays there, the second goes on falling."""
    lines = shown[0].stdout.split("F3")[1].splitlines()
    plain, trig = (
        [float(number) for line in lines if start in line for number in re.findall(r"\d\.\d{3}", line)]
        for start in ("as printed on the slide", "with exp")
    )
    assert len(plain) == len(trig) == 5
    assert plain[-2] == pytest.approx(plain[-1], rel=0.1) and plain[-1] > 0.2
    assert trig[0] > 2 * trig[2] > 3 * trig[3] > trig[-1] == 0


def test_every_picture_is_written(shown: tuple[Result, Path]) -> None:
    from regard.cli.plot.command import plots

    of_models = {"trace", "words", "image", "forecast", "answer", "summary", "speech", "caption", "attribution"}
    moving = {"attention-rows", "unrolling"}
    names = {command.name or command.callback.__name__ for command in plots.registered_commands} - of_models - moving
    files = {path.name: path.read_bytes() for path in shown[1].iterdir()}
    assert set(files) == {f"{name}.png" for name in names} and len(files) == 20
    assert all(data.startswith(b"\x89PNG") for data in files.values())


def test_the_next_commands_work(shown: tuple[Result, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^  regard (.+)$", shown[0].stdout, re.MULTILINE)
    assert len(commands) == 3
    for line in commands:
        assert CliRunner().invoke(app, line.split()).exit_code == 0, line


def test_a_wrong_number_is_a_bug_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    attend = dispatch.attend

    def always_scaled(*tensors, score, **options):
        return attend(*tensors, score="scaled", **options)

    monkeypatch.setattr(dispatch, "attend", always_scaled)
    result = CliRunner().invoke(app, ["lectures", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert re.search(r"A = softmax differs from the slide by 0\.\d+, more than 0\.0006", result.stderr)


def test_agree_refuses_nan() -> None:
    with pytest.raises(RuntimeError, match="x differs from the slide by nan"):
        agree("x", torch.tensor([[float("nan")]]), torch.zeros(1, 1), 1.0)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["lectures", "--out", str(tmp_path / "file" / "pictures")])
    assert result.exit_code == 2
    assert "regard: cannot create the folder" in result.stderr
