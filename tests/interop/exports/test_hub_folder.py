"""Exported folders are opened by `from_pretrained` of transformers, whose classes must compute and write the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from random_models import SIZES, VOCABULARY, random_model

import regard
from regard.api.model_names import SHIPPED
from regard.decoding.engine import generate_tokens
from regard.errors import UsageError
from regard.interop import export_model, import_model, read
from regard.models.config import EncoderConfig, TransformerLMConfig
from regard.text.tokenizers.tokenizer import read_tokenizers

LLAMA = {"norm": "rms", "order": "pre", "position": "rotary", "activation": "swiglu", "bias": False}
YARN = {"rope_scaling": "yarn", "rope_factor": 4.0, "rope_trained_length": 16, "rope_attention_factor": 1.2}
LLAMA3 = {"rope_scaling": "llama3", "rope_factor": 8.0, "rope_trained_length": 16, "rope_low": 1.5, "rope_high": 5.0}
# Between them, every setting that a class knows.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**LLAMA, "kv_heads": 2, "rope_layout": "interleaved", "rope_base": 300.0, "norm_eps": 1e-3}),
    "llama-biases": ("Llama", {**LLAMA, "bias": True, "activation": "geglu-tanh", "scale_embedding": False, **LLAMA3}),
    "mistral": ("Mistral", {**LLAMA, "window": 3, "d_k": 6, "d_v": 6, "tie_output": False, **YARN}),
    "qwen2": ("Qwen2", {**LLAMA, "qkv_bias": True, "rope_layout": "interleaved", "kv_heads": 1}),
    "qwen3": ("Qwen3", {**LLAMA, "qk_norm": True, "norm_eps": 1e-5, "rope_layout": "interleaved", "d_k": 6, "d_v": 6}),
    "gpt2": ("GPT2", {"order": "pre", "position": "learned", "activation": "gelu-tanh", "max_length": 40}),
    "gpt2-tied": (
        "GPT2",
        {"order": "pre", "position": "learned", "activation": "silu", "scale_embedding": False, "norm_eps": 1e-3},
    ),
    "neox": ("GPTNeoX", {"order": "pre", "position": "rotary", "activation": "gelu", "rope_fraction": 0.5}),
    "neox-untied": (
        "GPTNeoX",
        {"order": "pre", "position": "rotary", "tie_output": False, "rope_scaling": "linear", "rope_factor": 2.0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_language_models(tmp_path: Path, options: str) -> None:
    """Logits, greedy texts, and the way back."""
    name, settings = OPTIONS[options]
    config = TransformerLMConfig(**{**SIZES, "vocabulary": VOCABULARY, "end_ids": (3,), "barred_ids": (), **settings})
    model = random_model(tmp_path / "ours", config)
    out = export_model(tmp_path / "ours", tmp_path / "hf", to="hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert type(theirs).__name__.startswith(name)
    tokens = torch.randint(0, VOCABULARY, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, model(tokens), atol=1e-5, rtol=1e-5)
    prompt = [7, 30, 41]
    (best,) = generate_tokens(model, None, search=regard.Greedy(), prefixes=[prompt], max_tokens=12)[0]
    written = theirs.generate(torch.tensor([prompt]), max_new_tokens=12, pad_token_id=0)[0, 3:].tolist()
    assert written == best.tokens
    if name != "GPTNeoX":
        back = regard.load_model(import_model(out, tmp_path / "back"))
        with torch.no_grad():
            torch.testing.assert_close(back(tokens), model(tokens), atol=1e-5, rtol=1e-5)


def test_weights_come_back_bitwise(tmp_path: Path) -> None:
    config = TransformerLMConfig(**SIZES, vocabulary=VOCABULARY, **LLAMA, scale_embedding=False)
    model = random_model(tmp_path / "ours", config)
    imported = read(export_model(tmp_path / "ours", tmp_path / "hf", to="hf"))
    ours = model.state_dict()
    assert all(torch.equal(weight, ours[name]) for name, weight in imported.weights())


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_encoders(tmp_path: Path, pooling: str) -> None:
    settings = {"position": "learned", "input_norm": True, "max_length": 40, "pooling": pooling, "norm_eps": 1e-4}
    config = EncoderConfig(**SIZES, vocabulary=VOCABULARY, normalize=pooling != "max", **settings)
    model = random_model(tmp_path / "ours", config)
    out = export_model(tmp_path / "ours", tmp_path / "hf", to="hf")
    theirs = transformers.AutoModel.from_pretrained(out)
    tokens = torch.tensor([[2, 17, 100, 55, 3], [2, 40, 3, 0, 0]])
    with torch.no_grad():
        states = theirs(tokens, attention_mask=(tokens != 0).long()).last_hidden_state
        expected = model.encode(tokens).states
    torch.testing.assert_close(states[0], expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states[1, :3], expected[1, :3], atol=1e-5, rtol=0)
    back = regard.load_model(import_model(out, tmp_path / "back"))
    assert back.config.pooling == pooling


def test_a_shipped_language_model(tmp_path: Path) -> None:
    """Characters: the tokenizer, the logits to the last bit, and the text."""
    out = export_model(SHIPPED / "shakespeare", tmp_path / "hf", to="hf")
    theirs, ours = transformers.AutoModelForCausalLM.from_pretrained(out), regard.load_model(SHIPPED / "shakespeare")
    tokenizer, writer = transformers.AutoTokenizer.from_pretrained(out), regard.load("shakespeare", device="cpu")
    prompt = "ROMEO:\nWhat is it?"
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    assert ids[0].tolist() == [2, *writer.tokenizer.encode(prompt)]
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, ours(ids), atol=1e-5, rtol=0)
    written = tokenizer.decode(theirs.generate(ids, max_new_tokens=30)[0], skip_special_tokens=True)
    assert written == prompt + writer.write(prompt, search=regard.Greedy(), max_tokens=30)


@pytest.mark.parametrize("model", ["lecture", "fr-en", "demo-encoder"])
def test_subwords_in_the_tokenizers_library(model: str) -> None:
    """Texts that the models never saw, in three scripts, with blanks and the letters that regard escapes."""
    from regard.interop.exports.hub_tokenizer import _library_file, compare
    from regard.text.tokenizers.imported import ImportedTokenizer

    ours, _ = read_tokenizers(SHIPPED / model)
    theirs = ImportedTokenizer(_library_file(ours, ([], ["</s>"])))
    compare(ours, theirs)
    data = Path(__file__).parents[3] / "benchmarks/data"
    lines = [line for name in ("unseen.en.txt", "unseen.fr.txt") for line in (data / name).read_text().splitlines()]
    lines += ["", "  a  b\tc\n", "e\u0301te\u0301", "▁ \x1a0", "日本語 🙂", "x\u2009y\u2009"]
    for line in lines:
        assert theirs.encode(line) == ours.encode(line), line
        assert theirs.decode(ours.encode(line)) == ours.decode(ours.encode(line))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"position": "alibi", "order": "pre"}, "GPT-NeoX .* position = 'alibi'"),
        ({**LLAMA, "norm": "rms", "activation": "gelu"}, "Llama .* activation = 'gelu'"),
        ({**LLAMA, "qk_norm": True, "norm_eps": 1e-6, "window": 3}, "no class with this combination"),
        ({"position": "learned", "order": "post"}, "GPT-2 .* order = 'post'"),
        ({"position": "rotary", "order": "pre", "attention": "random-features"}, "attention = 'random-features'"),
        ({**LLAMA, "output_bias": True}, "output_bias = True"),
    ],
)
def test_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    random_model(tmp_path / "ours", TransformerLMConfig(**{**SIZES, "vocabulary": VOCABULARY, **settings}))
    with pytest.raises(UsageError, match=f"{message}.*--to ct2"):
        export_model(tmp_path / "ours", tmp_path / "hf", to="hf")
    assert not (tmp_path / "hf").exists()


def test_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no class for the kind 'rnn-lm'"):
        export_model(SHIPPED / "shakespeare-lstm", tmp_path / "hf", to="hf")
