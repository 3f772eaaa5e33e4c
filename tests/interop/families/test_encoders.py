"""Imported encoders give the vectors that transformers and sentence-transformers give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_encoders import WORDS, make_encoder, put_around

import regard
from regard.errors import ModelError, UsageError
from regard.interop import import_model, read
from regard.look import trace_text

TEXTS = ["a c", "bad cab fade", "", "a b c d e f g h i j k l m n"]  # the last one is too long


class Both(NamedTuple):
    theirs: Any
    source: Path


@pytest.fixture(scope="module", params=["bert", "roberta"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp(request.param)
    return Both(make_encoder(request.param, folder), folder)


def test_vectors_of_tokens(both: Both) -> None:
    """In float64, with padding on the right."""
    model: Any = read(both.source).model(torch.float64)
    pad, vocabulary = model.config.pad_id, model.config.vocabulary
    tokens = torch.randint(4, vocabulary, (3, 11), generator=torch.Generator().manual_seed(0))
    tokens[1, 7:] = pad
    theirs = both.theirs.double()
    keep = tokens != pad
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=keep.long()).last_hidden_state
        got = model.encode(tokens).states
    both.theirs.float()
    torch.testing.assert_close(got[keep], expected[keep], atol=1e-10, rtol=0)


def test_sentences(both: Both, tmp_path: Path) -> None:
    """The mean over all tokens, of unit length, by the definition of sentence-transformers; one by one."""
    import transformers

    put_around(both.source, pooling={"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
    embedder = regard.load(import_model(both.source, tmp_path / "m", check=True), device="cpu")
    tokenizer = transformers.AutoTokenizer.from_pretrained(both.source, local_files_only=True)
    rows = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        ids = torch.tensor([ids if len(ids) <= 12 else [*ids[:11], 3]])
        with torch.no_grad():
            rows.append(torch.nn.functional.normalize(both.theirs(ids).last_hidden_state.mean(1), dim=-1)[0])
    with pytest.warns(UserWarning, match="the model reads only the first 10"):
        vectors = embedder.embed(TEXTS)
    torch.testing.assert_close(vectors, torch.stack(rows), atol=1e-5, rtol=0)
    trace = trace_text(embedder, "a cat")
    assert [token.special for token in trace.axes["source"].tokens] == [True, False, False, True]


def test_files_of_sentence_transformers(tmp_path: Path) -> None:
    make_encoder("bert", tmp_path)
    assert any("does not say" in note for note in read(tmp_path).notes)
    put_around(tmp_path, pooling={"pooling_mode": "cls"}, modules=())
    imported = read(tmp_path)
    assert (imported.config.pooling, imported.info["max_tokens"]) == ("first", 12)
    prompts = tmp_path / "config_sentence_transformers.json"
    prompts.write_text(json.dumps({"prompts": {"query": "query: "}, "default_prompt_name": None}))
    imported = read(tmp_path)
    assert any("'query: ' as query" in note for note in imported.notes) and not imported.config.normalize
    prompts.write_text(json.dumps({"prompts": {"query": "ab ", "passage": ""}}))
    embedder = regard.load(import_model(tmp_path, tmp_path / "imported"), device="cpu")
    assert embedder.prompts == {"query": "ab "}
    vectors = embedder.embed("cab", prompt="query")
    torch.testing.assert_close(vectors, embedder.embed(["ab cab"]))
    assert abs(vectors.norm().item() - 1) > 0.01  # without a module that normalizes
    assert embedder.similarity("cab", "cab").item() == pytest.approx(1)
    with pytest.raises(UsageError, match="unknown prompt 'document'"):
        embedder.embed("cab", prompt="document")
    prompts.write_text(json.dumps({"prompts": {"query": "query: "}, "default_prompt_name": "query"}))
    with pytest.raises(ModelError, match="puts nothing before a text by itself"):
        read(tmp_path)
    prompts.unlink()
    for pooling, modules, message in (
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, ("Normalize",), "the pooling is"),
        ({"pooling_mode_weightedmean_tokens": True}, ("Normalize",), "the pooling is"),
        ({"pooling_mode_mean_tokens": True, "unheard_of": 1}, ("Normalize",), "does not know the key 'unheard_of'"),
        ({"pooling_mode_mean_tokens": True}, ("Dense", "Normalize"), "the modules are .*Dense"),
        ({"pooling_mode_mean_tokens": True, "word_embedding_dimension": 3}, (), "the vectors have 16 numbers"),
    ):
        put_around(tmp_path, pooling=pooling, modules=modules)
        with pytest.raises(ModelError, match=message):
            read(tmp_path)


def test_the_names_of_old_files(tmp_path: Path) -> None:
    """gamma and beta, the prefix of a model with heads, and the heads themselves."""
    make_encoder("bert", tmp_path)
    expected = dict(read(tmp_path).weights())
    stored = load_file(tmp_path / "model.safetensors")
    old = {f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma"): weight for name, weight in stored.items()}
    old = {name.replace("LayerNorm.bias", "LayerNorm.beta"): weight for name, weight in old.items()}
    old["cls.predictions.bias"] = torch.zeros(4)
    old["bert.embeddings.position_ids"] = torch.arange(40)[None]
    save_file(old, tmp_path / "model.safetensors")
    again = dict(read(tmp_path).weights())
    assert all(torch.equal(again[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_embedding_type": "relative_key"},
        {"hidden_act": "mish"},
        {"pad_token_id": None},
        {"type_vocab_size": 3},
    ],
)
def test_settings_that_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    make_encoder("bert", tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, **changes}))
    with pytest.raises(ModelError):
        read(tmp_path)


def test_distilbert(tmp_path: Path) -> None:
    """Its own names, no segments, and a head of its training that nobody needs."""
    import transformers

    make_encoder("bert", tmp_path)  # for the tokenizer
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).unlink()
    sizes = {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24, "max_position_embeddings": 40}
    config = transformers.DistilBertConfig(vocab_size=len(WORDS), pad_token_id=0, eos_token_id=3, **sizes)
    theirs = transformers.DistilBertForMaskedLM(config).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    theirs.save_pretrained(tmp_path)
    model: Any = read(tmp_path).model()
    tokens = torch.tensor([[2, 5, 9, 3], [2, 7, 3, 0]])
    with torch.no_grad():
        expected = theirs.distilbert(tokens, attention_mask=(tokens != 0).long()).last_hidden_state
        states = model.encode(tokens).states
    torch.testing.assert_close(states[0], expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states[1, :3], expected[1, :3], atol=1e-5, rtol=0)
