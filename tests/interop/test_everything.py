"""Everything works with an imported model: the commands, int8, recording, traces and the inside of a block."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_models import make_original
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.look import inside_block, trace_text

TEXT = "The cat sat on the mat."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An import by the command line, compared with transformers."""
    root = tmp_path_factory.mktemp("everything")
    make_original("llama", root / "original", attention_bias=False)
    (root / "original" / "LICENSE").write_text("Anyone may use this model.")
    command = [sys.executable, "-m", "regard", "import", str(root / "original"), str(root / "llama"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert result.returncode == 0, result.stderr
    assert "a model of the family llama, stored as float32" in result.stderr
    return root / "llama"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_the_card(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    sources = json.loads((folder / "config.json").read_text())["imported"]["files"]
    assert sources.keys() >= {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert all(entry["sha256"] in card for entry in sources.values())
    assert "The largest difference of an output from transformers" in card and "Anyone may use this model." in card


def test_commands(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(f"{TEXT}\n" * 30, encoding="utf-8")  # longer than the context
    greedy = run("generate", "-m", str(folder), TEXT, "--greedy", "--max-tokens", "8")
    assert greedy.startswith(TEXT)
    sampled = [run("generate", "-m", str(folder), TEXT, "--seed", "3", "--max-tokens", "8") for _ in range(2)]
    assert sampled[0] == sampled[1]
    assert "perplexity" in run("evaluate", "-m", str(folder), str(path))
    described = json.loads(run("info", str(folder), "--json"))
    assert described["kind"] == "transformer-lm"
    run("export", str(folder), str(tmp_path / "int8"))
    smaller = regard.load(tmp_path / "int8", device="cpu", dtype="int8")
    assert smaller.write(TEXT, search=regard.Greedy(), max_tokens=3) is not None
    assert smaller.perplexity(TEXT).loss == pytest.approx(regard.load(folder).perplexity(TEXT).loss, rel=0.05)


def test_looking_inside(folder: Path) -> None:
    """The maps of a trace are the recorded weights; the first token of the prompt is what the others attend to."""
    writer = regard.load(folder, device="cpu")
    ids = writer.tokenizer.encode(TEXT)
    trace = trace_text(writer, TEXT, search=regard.Greedy(), max_tokens=4)
    assert [token.text for token in trace.axes["read"].tokens][: len(ids)] == writer.tokenizer.pieces(ids)
    with regard.record(writer.model) as maps, torch.no_grad():
        writer.model(torch.tensor([ids]))
    whole = trace.maps["dec_self"].weights  # (layers, heads, m, n)
    for layer in range(2):
        expected = maps[f"decoder.{layer}.self"][0]
        shown = torch.from_numpy(whole[layer][:, : len(ids), : len(ids)].copy())
        torch.testing.assert_close(shown, expected, atol=1e-5, rtol=0)
    boxes = inside_block(writer, TEXT, stack="decoder", layer=1, token=2, head=1, search=regard.Greedy())["boxes"]
    assert boxes[-1]["id"] == "feed.add"
