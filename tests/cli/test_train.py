"""`regard train` as it is typed: what it prints, how it ends, and what it says of wrong input."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from regard.cli import app

SMALL = [
    f"--set={setting}"
    for setting in (
        "model.layers=1",
        "model.dim=16",
        "model.heads=2",
        "model.hidden=32",
        "training.steps=4",
        "training.save_every=2",
        "training.validate_every=2",
        "training.batch_tokens=200",
        "tokenizer.size=330",
        "decoding.sentences=2",
        "training.samples=0",
    )
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two parallel files of 150 lines."""
    words = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]
    lines = [" ".join(words[(i * k) % 10] for k in range(1, 3 + i % 5)) + f" {i}" for i in range(150)]
    source, target = tmp_path / "train.fr", tmp_path / "train.en"
    source.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    target.write_text("".join(line.upper() + "\n" for line in lines), encoding="utf-8")
    return source, target


def regard(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_two_files_are_enough(files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = regard("train", *files, *SMALL)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "runs/fr-en\n"
    assert "chosen: training.lr = " not in result.stderr
    assert "validation: loss" in result.stderr
    assert 'next:\n  regard translate -m runs/fr-en -t "…"\n' in result.stderr
    translated = regard("translate", "-m", "runs/fr-en", "-t", "un deux trois")
    assert translated.exit_code == 0, translated.stderr
    again = regard("train", *files, *SMALL)
    assert again.exit_code == 0
    assert "already complete" in again.stderr
    listed = regard("train", *files, *SMALL, "--out", "runs/other", "--verbose")
    assert "chosen: training.lr = " in listed.stderr


def test_a_language_model_from_one_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    small = [one for one in SMALL if "size" not in one and "sentences" not in one]
    result = regard("train", files[0], "--out", tmp_path / "run", "--quiet", *small)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert json.loads((tmp_path / "run" / "config.json").read_text())["kind"] == "transformer-lm"


def test_a_recipe_of_ones_own(files: tuple[Path, Path], tmp_path: Path) -> None:
    """What a dry run printed is a recipe; file names in it are seen from its own folder."""
    printed = regard("train", *files, *SMALL, "--dry-run").stdout.replace(f"{tmp_path}{os.sep}", "")
    (tmp_path / "mine.toml").write_text(printed, encoding="utf-8")
    result = regard("train", tmp_path / "mine.toml", "--out", tmp_path / "run", "--quiet", "--name", "other")
    assert result.exit_code == 0, result.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["recipe"]["name"] == "other"
    refused = regard("train", tmp_path / "mine.toml", "--model", "rnn-lm")
    assert refused.exit_code == 2
    assert "--model is for text files" in refused.stderr
    missing = regard("train", tmp_path / "nothing", "--model", "image-classifier")
    assert missing.exit_code == 3 and "nothing: no such file" in missing.stderr


def test_a_dry_run_writes_nothing(files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = regard("train", *files, *SMALL, "--dry-run")
    assert result.exit_code == 0, result.stderr
    parts = ("data: 150 of 150 kept", "7 samples held out", "vocabulary: ", "parameters: ", "memory: ", "time: ")
    assert all(f"# {part}" in result.stdout for part in parts)
    assert tomllib.loads(result.stdout)["training"]["steps"] == 4
    assert 'schedule = "cosine"  # ' in result.stdout
    assert sorted(tmp_path.rglob("*")) == before


def start(files: tuple[Path, Path], out: Path) -> subprocess.Popen[str]:
    """A training of 80 short steps without validations in between, in a process of its own."""
    intervals = ("training.steps=80", "training.log_every=1", "training.validate_every=999", "training.save_every=999")
    command = ["train", *map(str, files), "--out", str(out), *SMALL, *(f"--set={one}" for one in intervals)]
    return subprocess.Popen(
        [sys.executable, "-c", "from regard.cli import main; main()", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def send_at_step(process: subprocess.Popen[str], step: int, number: signal.Signals) -> str:
    """Send a signal once a step is told; what the process says after it."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"step {step}/"):
            break
    process.send_signal(number)
    return process.communicate(timeout=100)[1]


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(files: tuple[Path, Path], tmp_path: Path) -> None:
    """That it ends with the same bits, and all about SIGTERM, is in tests/faults/stop/test_stop.py."""
    process = start(files, tmp_path / "run")
    said = send_at_step(process, 20, signal.SIGINT)
    assert process.returncode == 130
    stopped = re.search(r"stopped by Ctrl-C after step (\d+)", said)
    assert stopped, said
    assert "Traceback" not in said
    assert not (tmp_path / "run/training/step-00000080").exists()
    rest = start(files, tmp_path / "run")
    said = rest.communicate(timeout=200)[1]
    assert rest.returncode == 0, said
    assert f"continuing from step {stopped[1]}\n" in said
    assert (tmp_path / "run/training/step-00000080/weights.safetensors").exists()


@pytest.mark.slow
def test_sigterm_saves(files: tuple[Path, Path], tmp_path: Path) -> None:
    process = start(files, tmp_path / "run")
    said = send_at_step(process, 20, signal.SIGTERM)
    assert process.returncode == 143
    assert "stopped by SIGTERM after step" in said
    assert list((tmp_path / "run/training").glob("step-*"))


def broken(case: str, source: Path, target: Path) -> tuple[list[object], int, str]:
    """The arguments of a wrong call, its exit code, and words that its message must have."""
    match case:
        case "wrong path":
            return ["train.fx", target], 3, "no such file"
        case "unequal files":
            target.write_text(target.read_text() + "ONE MORE\n")
            return [source, target], 3, "has 150 lines and .* has 151"
        case "unknown key":
            return [source, target, "--set", "training.lerning_rate=1"], 2, "unknown key 'lerning_rate'"
        case "unknown recipe":
            return ["dmeo"], 2, "did you mean 'demo'"
        case "out of range":
            return [source, target, "--set", "training.lr=-1"], 2, "training.lr must be above 0"
        case "unknown model":
            return [source, target, "--model", "transfomer"], 2, "did you mean 'transformer'"
        case "vocabulary":
            return [source, target, "--set", "tokenizer.size=50000"], 2, "tokenizer.size|50000"
        case "encoding":
            source.write_bytes("été\n".encode("latin-1") + source.read_bytes())
            target.write_text("X\n" + target.read_text())
            return [source, target], 3, r"train\.fr:1"
        case "some lines in another encoding":
            lines = source.read_bytes() + "un café déjà bu\n".encode("latin-1") + "l'été\n".encode()
            source.write_bytes(lines)
            target.write_text(target.read_text() + "X\nY\n")
            return (
                [source, target],
                3,
                r"train\.fr:151.* do not convert the whole file: regard check FILES --fix FOLDER",
            )
        case "other keys":
            path = source.with_name("a.jsonl")
            path.write_text('{"de": "eins", "en": "one"}\n')
            return [path], 3, r"""no key 'source'; .*--set 'data\.columns=\["de", "en"\]'"""
        case "table":
            path = source.with_name("a.csv")
            path.write_text("source,target\nun,one\ndeux\n")
            return [path], 3, r"a\.csv:3: columns 0 and 1 are needed .*separated by commas"
        case "one text":
            path = source.with_name("a.txt")
            path.write_text("a\tb\n")
            note = (
                r"a\.txt is a single text, so this trains a language model\. To train a translator, .*: regard train "
            )
            return [path], 3, note + r".*a\.txt TRANSLATIONS\. .*tabs: .*rename the file to a\.tsv\n"
        case "truncated":
            packed = source.with_suffix(".fr.gz")
            packed.write_bytes(gzip.compress(source.read_bytes())[:-20])
            return [packed, target], 3, "gz"
        case "same file":
            return [source, source], 2, "same file"
        case "no sign":
            return [source, target, "--set", "training.lr"], 2, "KEY=VALUE"
    raise AssertionError(case)


@pytest.mark.parametrize(
    "case",
    [
        "wrong path",
        "unequal files",
        "unknown key",
        "unknown recipe",
        "out of range",
        "unknown model",
        "vocabulary",
        "encoding",
        "some lines in another encoding",
        "other keys",
        "table",
        "one text",
        "truncated",
        "same file",
        "no sign",
    ],
)
def test_wrong_input(case: str, files: tuple[Path, Path], tmp_path: Path) -> None:
    """What, where, why; the right exit code; and no half-made run is left."""
    arguments, code, words = broken(case, *files)
    result = regard("train", *arguments, "--out", tmp_path / "run")
    assert result.exit_code == code, result.stderr
    assert re.search(words, result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    assert "bug in regard" not in result.stderr
    assert not (tmp_path / "run").exists()
