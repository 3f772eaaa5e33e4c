"""`regard words` and `regard plot words`: vectors from a file, and what can be asked of them; A2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app

RUNNER = CliRunner()
# In two dimensions: the first says what the word means, the second its number.
VECTORS = """cat 5 1
cats 5 3
dog 1 5
dogs 1.2 7
king -4 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vectors.txt").write_text(VECTORS)
    result = RUNNER.invoke(app, ["words", "import", str(tmp_path / "vectors.txt"), "--out", str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(tmp_path / "model")
    return tmp_path / "model"


def run(*arguments: object) -> str:
    result = RUNNER.invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_nearest(folder: Path) -> None:
    assert run("words", "nearest", "-m", folder, "cat", "-n", 2) == "0.942  cats\n0.385  dog\n"
    both = json.loads(run("words", "nearest", "-m", folder, "cat", "king", "--json", "-n", 1))
    assert [near["word"] for near in both["cat"]] == ["cats"]
    assert list(both) == ["cat", "king"]


def test_analogy(folder: Path) -> None:
    assert run("words", "analogy", "-m", folder, "cat", "cats", "dog", "-n", 1).split() == ["0.994", "dogs"]
    assert json.loads(run("words", "analogy", "-m", folder, "cat", "cats", "dog", "--json"))[0]["word"] == "dogs"


def test_export_writes_what_was_imported(folder: Path, tmp_path: Path) -> None:
    run("words", "export", "-m", folder, tmp_path / "glove.txt", "--format", "glove")
    numbers = [line.split() for line in (tmp_path / "glove.txt").read_text().splitlines()]
    expected = [line.split() for line in VECTORS.splitlines()]
    assert [row[0] for row in numbers] == [row[0] for row in expected]
    assert [list(map(float, row[1:])) for row in numbers] == [
        pytest.approx(list(map(float, row[1:]))) for row in expected
    ]
    run("words", "export", "-m", folder, tmp_path / "word2vec.txt")
    assert (tmp_path / "word2vec.txt").read_text().splitlines()[0] == "5 2"


def test_map(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.svg"
    assert run("plot", "words", "-m", folder, "cat:cats", "dog:dogs", "king", "-o", path).strip() == str(path)
    text = path.read_text()
    assert all(f"<!-- {word} -->" in text for word in ("cat", "cats", "dog", "dogs", "king"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["words", "nearest", "-m", "MODEL", "catz"],
            "'catz' is not among the 5 words of the vectors; similar words: cat",
        ),
        (["words", "nearest", "-m", "fr-en", "cat"], "which translates: use `regard translate -m fr-en`"),
        (["plot", "words", "-m", "MODEL", "cat:"], "two words with a colon between them"),
        (["plot", "words", "-m", "MODEL", "cat", "dog"], "a map needs at least three different words"),
        (["words", "import", "MODEL", "--out", "MODEL"], "exists: choose another --out"),
        (["embed", "-m", "MODEL", "x.txt"], "has vectors of words: use `regard words nearest"),
    ],
)
def test_errors(
    folder: Path, tmp_path: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.txt").write_text("a line\n")
    result = RUNNER.invoke(app, [str(folder) if part == "MODEL" else part for part in arguments])
    assert result.exit_code == 2
    assert message in result.output
