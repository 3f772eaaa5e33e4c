"""`regard check`: its forms, its exit codes, and that it judges by what training is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from regard.demo.corpus import demo_pairs, demo_text

Run = Callable[..., Result]
PAIRS = demo_pairs("train", 60)


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Clean files in the folder that we are in."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "train.fr", [pair.source for pair in PAIRS])
    written(tmp_path / "train.en", [pair.target for pair in PAIRS])
    return Path("train.fr"), Path("train.en")


def test_clean_files_take_one_line(command: Run, files: tuple[Path, Path]) -> None:
    result = command("check", *files)
    assert result.exit_code == 0 and result.stderr == ""
    (line,) = result.stdout.splitlines()
    assert line.startswith("train.fr, train.en: 60 pairs, no problems found; words per line")
    assert "tokens per word" in line and "subwords of a sample" in line


def test_remarks_end_with_0_and_what_stops_with_3(command: Run, files: tuple[Path, Path]) -> None:
    lines = files[0].read_bytes().splitlines(keepends=True)
    lines[16] = b"&quot;" + lines[16]
    files[0].write_bytes(b"".join(lines))
    result = command("check", *files)
    assert result.exit_code == 0 and result.stdout.splitlines()[-1] == "Training would run."
    assert (
        "leftover HTML: 1\n  training keeps it, and the model learns to write it\n  train.fr:17  &quot;"
        in result.stdout
    )
    lines[40] = b"caf\xe9\n"
    files[0].write_bytes(b"".join(lines))
    result = command("check", *files)
    assert result.exit_code == 3 and result.stdout.splitlines()[-1] == "Training would stop."
    assert 'not UTF-8: 1\n  training stops; with data.faults = "skip"' in result.stdout
    assert r"train.fr:41  caf\xe9" in result.stdout
    result = command("check", *files, "--set", "data.faults=skip")
    assert (
        result.exit_code == 0
        and 'training skips them, together with the other side (data.faults = "skip")' in result.stdout
    )


def test_json(command: Run, files: tuple[Path, Path]) -> None:
    files[1].write_bytes(files[1].read_bytes().replace(b"\n", b"\r\n", 1))
    result = command("check", *files, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0 and report["files"] == ["train.fr", "train.en"] and report["stops"] is False
    (kind,) = report["kinds"]
    assert (kind["name"], kind["count"]) == ("CRLF line ends", 1) and kind["training"].startswith("fixes")
    assert [example["place"] for example in kind["examples"]] == ["train.en:1"]


def test_other_files(command: Run, files: tuple[Path, Path]) -> None:
    rows = [f"{pair.source}\t{pair.target}" for pair in PAIRS]
    assert "60 pairs, no problems" in command("check", written(Path("pairs.tsv"), rows)).stdout
    assert command("check", written(Path("bad.tsv"), [*rows, "no tab"])).exit_code == 3
    lines = [json.dumps({"source": pair.source, "target": pair.target}) for pair in PAIRS]
    assert "60 pairs, no problems" in command("check", written(Path("pairs.jsonl"), lines)).stdout
    text = written(Path("text.txt"), demo_text(2000).split("\n"))
    assert "lines, no problems" in command("check", text).stdout
    result = command("check", "train.rf", "train.en")
    assert result.exit_code == 3 and "did you mean" in result.stderr


def test_validation_and_test_files(command: Run, files: tuple[Path, Path]) -> None:
    held = (
        written(Path("held.fr"), [PAIRS[8].source, "Tout autre chose."]),
        written(Path("held.en"), ["A.", "Another."]),
    )
    leak = "training sentences in the validation or test data: 1"
    for option in ("--validation", "--test"):
        result = command("check", *files, option, *held)
        assert result.exit_code == 0 and leak in result.stdout and "(same as held.fr:1)" in result.stdout
    held[0].write_bytes(b"\xff\nb\n")
    assert command("check", *files, "--validation", *held).exit_code == 3
    result = command("check", *files, "--test", *held)
    assert result.exit_code == 3 and "held.fr:1: byte 0xff" in result.stderr
    text = written(Path("text.txt"), ["some text"])
    assert command("check", text, "--test", *held).exit_code == 2
    assert command("check", text, "--validation", *held).exit_code == 2


def test_a_recipe_with_all_its_files(command: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    written(tmp_path / "v.fr", ["Une phrase.", ""]), written(tmp_path / "v.en", ["A sentence.", "x"])
    recipe = """
    name = "mine"
    [data]
    source = "train.fr"
    target = "train.en"
    validation_source = "v.fr"
    validation_target = "v.en"
    max_length = 12
    """
    Path("recipe.toml").write_text(recipe, encoding="utf-8")
    result = command("check", "recipe.toml")
    assert result.exit_code == 0, result.stderr
    assert "empty: 1" in result.stdout and "v.fr:2" in result.stdout
    assert "more than 12 tokens on one side (data.max_length)" in result.stdout
    larger = command("check", "recipe.toml", "--set", "data.max_length=200", "--set", "training.batch_tokens=500")
    assert "too long" not in larger.stdout
    smaller = command("check", "recipe.toml", "--set", "training.batch_tokens=11")
    assert "more than 11 tokens" in smaller.stdout


def test_characters_are_tokens_where_the_recipe_says_so(command: Run, files: tuple[Path, Path]) -> None:
    options = ("--set", "data.max_length=30", "--set", "tokenizer.kind=characters")
    found = json.loads(command("check", *files, "--json", *options).stdout)["kinds"]
    wanted = sum(max(len(pair.source), len(pair.target)) >= 30 for pair in PAIRS)
    assert [(kind["name"], kind["count"]) for kind in found] == [("too long", wanted)]


def test_by_a_models_tokenizer(command: Run, files: tuple[Path, Path], models: dict[str, str]) -> None:
    result = command("check", *files, "-m", models["translator"])
    assert result.exit_code == 0 and "the model's tokenizer" in result.stdout
    assert command("check", *files, "-m", "no-such-model").exit_code == 4


def test_nothing_to_check(command: Run, files: tuple[Path, Path]) -> None:
    result = command("check", "demo")
    assert result.exit_code == 2 and "no files to check" in result.stderr
    assert command("check").exit_code == 2
    assert command("check", *files, "--set", "data.nonsense=1").exit_code == 2


def test_fix_writes_repaired_copies(command: Run, files: tuple[Path, Path]) -> None:
    lines = files[0].read_bytes().splitlines(keepends=True)
    lines[16] = b"&quot;" + lines[16]
    lines[40] = b"caf\xe9\r\n"
    lines[41] = lines[3]
    files[0].write_bytes(b"".join(lines))
    before = files[0].read_bytes()
    result = command("check", *files)
    assert result.exit_code == 3
    assert "To write repaired copies of the files: regard check FILES --fix FOLDER" in result.stdout
    result = command("check", *files, "--fix", "new")
    assert result.exit_code == 0 and "train.fr, train.en: wrote new/train.fr, new/train.en (60 rows)" in result.stdout
    for line in ("repaired  leftover HTML: 1", "repaired  CRLF line ends: 1", "repaired  not UTF-8: 1"):
        assert f"  {line}\n" in result.stdout
    assert "new/changes.tsv lists every change" in result.stdout
    assert "new/train.fr, new/train.en: 60 pairs" in result.stdout and files[0].read_bytes() == before
    assert sorted(path.name for path in Path("new").iterdir()) == ["changes.tsv", "train.en", "train.fr"]
    assert Path("new/train.en").read_bytes() == files[1].read_bytes()
    result = command("check", *files, "--fix", "new")
    assert result.exit_code == 2 and "new is not empty" in result.stderr
    result = command("check", "new/train.fr", "new/train.en", "--fix", "again", "--json")
    report = json.loads(result.stdout)
    assert report["fixed"]["repaired"] == report["fixed"]["dropped"] == {} and report["files"][0] == "again/train.fr"
    assert report["fixable"] is False and report["fixed"]["changes"] == "again/changes.tsv"


def test_fix_cannot_mend_everything(command: Run, files: tuple[Path, Path]) -> None:
    files[0].write_bytes(files[0].read_bytes() + "привет мир\n".encode("koi8-r"))
    files[1].write_bytes(files[1].read_bytes() + b"hello\r\n")
    result = command("check", *files, "--fix", "new")
    assert result.exit_code == 3 and "Training would stop." in result.stdout and "--fix FOLDER" not in result.stdout
    result = command("check", "demo", "--fix", "other")
    assert result.exit_code == 2 and not Path("other").exists()
    result = command("check", *files, "--fix", "train.fr/x")
    assert result.exit_code == 2 and "cannot be written" in result.stderr


def test_fix_of_a_recipe_covers_its_validation_files(command: Run, files: tuple[Path, Path]) -> None:
    for path in files:
        Path(f"held.{path}").write_bytes(path.read_bytes().replace(b"\n", b"\r\n", 1))
    recipe = 'source = "train.fr"\ntarget = "train.en"\nvalidation_source = "held.train.fr"\n'
    Path("recipe.toml").write_text(f'[data]\n{recipe}validation_target = "held.train.en"\n')
    report = json.loads(command("check", "recipe.toml", "--fix", "new", "--json").stdout)
    assert report["fixed"]["repaired"] == {"CRLF line ends": 2} and Path("new/held.train.fr").exists()


def test_csv_is_read_as_pairs(command: Run, files: tuple[Path, Path]) -> None:
    rows = "".join(f'"{pair.source}","{pair.target}"\n' for pair in PAIRS)
    Path("pairs.csv").write_text(f"source,target\n{rows}", encoding="utf-8")
    result = command("check", "pairs.csv")
    assert result.exit_code == 0 and "pairs.csv: 60 pairs, no problems found" in result.stdout
    assert 'pairs.csv:1: header row, skipped (source: column "source", target: column "target")' in result.stdout
    swapped = command("check", "pairs.csv", "--set", 'data.columns=["target", "source"]')
    assert '(source: column "target", target: column "source")' in swapped.stdout
