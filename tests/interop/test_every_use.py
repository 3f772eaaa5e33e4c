"""Everything works with imports of each kind: commands, int8, recordings, traces, the explorer's server and `serve`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_encoders import make_encoder
from small_models import make_original
from small_translators import ENGLISH, FRENCH, make_fairseq, make_marian
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.errors import UsageError
from regard.interop import import_model
from regard.look import inside_block
from regard.look.trace.trace import Trace
from regard.serving.model_threads import ModelShelf, ServedModel

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.serving.conftest import Client, page, serve  # noqa: F401  # fixtures
from tests.serving.service.conftest import Running, make_service, start  # noqa: F401

TEXT = "The cat sat on the mat."
GREEDY = {"name": "greedy"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Imports of a translator, a translator between languages, a language model and an encoder."""
    root = tmp_path_factory.mktemp("imports")
    makers: dict[str, Callable[[Path], Any]] = {
        "marian": make_marian,
        "nllb": lambda folder: make_fairseq(folder, "m2m_100"),
        "llama": lambda folder: make_original("llama", folder, attention_bias=False),
        "bert": lambda folder: make_encoder("bert", folder),
    }
    for name, make in makers.items():
        make(root / f"{name}-original")
    return {name: import_model(root / f"{name}-original", root / name) for name in makers}


def run(*arguments: str, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_commands_of_translators(folders: dict[str, Path], tmp_path: Path) -> None:
    for name, lines in (("fr.txt", FRENCH), ("en.txt", ENGLISH)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [str(tmp_path / "fr.txt"), str(tmp_path / "en.txt")]
    for name, languages in (("marian", []), ("nllb", ["--from", "fr", "--to", "en"])):
        folder = str(folders[name])
        printed = run("translate", "-m", folder, *languages, "--max-tokens", "8", stdin="\n".join(FRENCH))
        assert len(printed.splitlines()) == len(FRENCH)
        again = run("translate", "-m", folder, *languages, "--max-tokens", "8", "--dtype", "int8", "-t", FRENCH[0])
        assert len(again.splitlines()) == 1
    assert "BLEU" in run("evaluate", "-m", str(folders["marian"]), *files, "--beam", "1")
    *lines, _total = run("score", "-m", str(folders["marian"]), *files).splitlines()
    scores = [float(line.split("\t")[1]) for line in lines]
    translator = regard.load(folders["marian"], device="cpu")
    expected = [translator.score(*pair).score for pair in zip(FRENCH, ENGLISH, strict=True)]
    assert scores == pytest.approx(expected, abs=1e-3)


def test_embed(folders: dict[str, Path]) -> None:
    printed = run("embed", "-m", str(folders["bert"]), stdin="bad cab\nfade\n")
    vectors = regard.load(folders["bert"], device="cpu").embed(["bad cab", "fade"])
    found = np.array([line.split() for line in printed.splitlines()], float)
    np.testing.assert_allclose(found, vectors.numpy(), atol=1e-5)
    smaller = regard.load(folders["bert"], device="cpu", dtype="int8").embed(["bad cab", "fade"])
    assert torch.nn.functional.cosine_similarity(smaller, vectors).min() > 0.99


def test_recordings_of_translators(folders: dict[str, Path]) -> None:
    """The maps of a forced translation, by layer; an alignment has a row for each word."""
    translator = regard.load(folders["nllb"], device="cpu").between("fr", "en")
    assert [word.text for word in translator.read(FRENCH[0]).words] == FRENCH[0].split()
    alignment = translator.align(FRENCH[0], ENGLISH[0])
    assert alignment.weights.shape == (len(alignment.target), len(alignment.source))
    with regard.record(translator.model) as maps, torch.no_grad():
        translator.model(torch.tensor([translator.read(FRENCH[0]).ids]), torch.tensor([[2, 5, 6]]))
    assert {"encoder.0.self", "decoder.0.self", "decoder.1.cross"} <= maps.keys()
    boxes = inside_block(translator, FRENCH[0], stack="decoder", layer=1, token=1, head=0, search=regard.Greedy())[
        "boxes"
    ]
    assert boxes[-1]["id"] == "feed.add"


def test_the_explorer(folders: dict[str, Path], serve: Callable[..., Client]) -> None:  # noqa: F811
    """Every head of a Llama has a map, and can be switched off; the translator and the encoder answer, too."""
    names = ("llama", "marian")
    client = serve(ModelShelf([ServedModel(name, folders[name]) for name in names], default="llama"))

    def trace(name: str, text: str, **body: Any) -> Trace:
        answer = client.post("/api/trace", {"model": name, "text": text, "search": GREEDY, "max_tokens": 6, **body})
        assert answer.status == 200, answer.content
        return Trace.from_dict(answer.json)

    whole = trace("llama", TEXT)
    layers, heads, *_ = whole.maps["dec_self"].weights.shape
    assert (layers, heads) == (2, 4)  # of four query heads with two key-value heads
    off = [{"map": "dec_self", "layer": layer, "head": head} for layer in range(layers) for head in range(heads)]
    silent = trace("llama", TEXT, off=off)
    logps = [each.steps[0].candidates[0].logp for each in (whole, silent)]
    assert abs(logps[0] - logps[1]) > 1e-4
    assert {"enc_self", "dec_self", "cross"} <= trace("marian", FRENCH[0]).maps.keys()
    answer = client.post(
        "/api/inside",
        {"model": "llama", "text": TEXT, "stack": "decoder", "layer": 0, "token": 1, "head": 3, "target": None,
         "search": GREEDY, "max_tokens": 6},
    )  # fmt: skip
    assert answer.status == 200, answer.content


def test_serve(folders: dict[str, Path], start: Callable[..., Running]) -> None:  # noqa: F811
    """The answers of the server are those of Python, for a translator, a language model and an encoder."""
    served = {"fr-en": folders["marian"], "llama": folders["llama"], "bert": folders["bert"]}
    server = start(make_service(served, device="cpu"))
    body = {"q": FRENCH, "source": "fr", "target": "en"}
    translator = regard.load(folders["marian"], device="cpu")
    answer = server.post("/translate", body)
    assert answer.status == 200, answer.content
    assert answer.json["translatedText"] == [each.text for each in translator.translate(FRENCH)]
    completion = server.post("/v1/completions", {"model": "llama", "prompt": TEXT, "temperature": 0, "max_tokens": 6})
    assert completion.status == 200, completion.content
    expected = regard.load(folders["llama"], device="cpu").write(TEXT, search=regard.Greedy(), max_tokens=6)
    assert completion.json["choices"][0]["text"] == expected
    embedding = server.post("/v1/embeddings", {"model": "bert", "input": ["bad cab"]})
    vector = np.array(embedding.json["data"][0]["embedding"])
    np.testing.assert_allclose(vector, regard.load(folders["bert"], device="cpu").embed("bad cab")[0], atol=1e-6)


def test_what_users_of_other_tools_report(folders: dict[str, Path]) -> None:
    """Texts do not depend on their batch; those without letters stay; line breaks stay; nothing repeats for ever."""
    translator = regard.load(folders["marian"], device="cpu")
    alone = [translator.translate(text, max_tokens=20).text for text in FRENCH]
    assert [each.text for each in translator.translate(FRENCH * 3, max_tokens=20)] == alone * 3
    assert [translator.translate(text).text for text in ("-", "…", "12:30")] == ["-", "…", "12:30"]
    whole = translator.translate("\n\n".join(FRENCH[:2]), max_tokens=20)
    assert "\n\n" in whole.text
    with pytest.raises(UsageError, match=r"give the source language as source=…, one of eng_Latn, fra_Latn"):
        regard.load(folders["nllb"], device="cpu").translate(FRENCH[0])
