"""`regard.trace` on tiny random models of the real classes of transformers: weights, probabilities and tokens."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)

import regard
from regard.errors import DataError, UsageError
from regard.look import Trace, merge_words

TEXT = "the black cat sleeps"
TEXTS = ["the black cat sleeps well", "le chat noir dort bien"] * 3
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def make_tokenizer(kind: str) -> Any:
    """A tokenizer as Marian and Llama (SentencePiece marks), GPT-2 (bytes) or BERT (WordPiece) have it."""
    library = Tokenizer(models.WordPiece(unk_token="<unk>") if kind == "pieces" else models.BPE(unk_token="<unk>"))
    trainer: Any = trainers.WordPieceTrainer if kind == "pieces" else trainers.BpeTrainer
    before, decoder = {
        "marks": (pre_tokenizers.Metaspace(), decoders.Metaspace()),
        "bytes": (pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),
        "pieces": (pre_tokenizers.Whitespace(), decoders.WordPiece()),
    }[kind]
    library.pre_tokenizer, library.decoder = before, decoder  # type: ignore[assignment]
    library.train_from_iterator(TEXTS, trainer(vocab_size=56, special_tokens=SPECIAL))
    if kind != "bytes":
        template = "<s> $A </s>" if kind == "pieces" else "$A </s>"
        special = [("<s>", 1), ("</s>", 2)]
        library.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=library, **names)


def make_model(name: str) -> tuple[Any, Any]:
    """A random model with its tokenizer."""
    torch.manual_seed(1)
    if name == "marian":
        sizes = {f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in (
            ("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))}  # fmt: skip
        config: Any = MarianConfig(
            vocab_size=60, d_model=16, max_position_embeddings=64, decoder_start_token_id=0, **sizes, **IDS
        )
        return MarianMTModel(config), make_tokenizer("marks")
    if name == "gpt2":
        config = GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=2, n_positions=64, **IDS)
        return GPT2LMHeadModel(config), make_tokenizer("bytes")
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}
    if name == "llama":
        config = LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes, **IDS)
        return LlamaForCausalLM(config), make_tokenizer("marks")
    kind = BertModel if name == "bert" else BertForSequenceClassification
    return kind(BertConfig(num_attention_heads=2, **sizes)), make_tokenizer("pieces")


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_language_model_continues_the_text(name: str) -> None:
    """Its weights are those that the model itself returns, and its probabilities those of its logits."""
    model, tokenizer = make_model(name)
    model.train()
    trace = regard.trace(model, tokenizer, TEXT, max_tokens=5)
    assert (model.training, model.config._attn_implementation) == (True, "sdpa"), "the model is as it was"
    model.eval()
    given = tokenizer(TEXT)["input_ids"]
    ids = [*given, *(step.chosen for step in trace.steps[len(given) - 1 :])]
    assert [step.given for step in trace.steps] == [True] * (len(given) - 1) + [False] * 5
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(torch.tensor([ids[:-1]]), output_attentions=True)
    maps = torch.stack([layer[0] for layer in expected.attentions]).numpy()
    np.testing.assert_allclose(trace.maps["dec_self"].weights, maps, atol=1e-6)
    logps = expected.logits[0].double().log_softmax(-1)
    for i, step in enumerate(trace.steps):
        (chosen,) = [candidate for candidate in step.candidates if candidate.token == step.chosen]
        assert math.isclose(chosen.logp, logps[i, step.chosen].item(), abs_tol=1e-6)
        assert step.given or step.chosen == int(logps[i].argmax()), "greedy"
    assert trace.output.startswith(TEXT) and trace.model.kind == name
    assert len(trace.axes["target"]) == len(trace.axes["read"]) == len(trace.steps)


def test_an_encoder_decoder_translates_or_is_forced(tmp_path: Path) -> None:
    model, tokenizer = make_model("marian")
    trace = regard.trace(model, tokenizer, TEXT, max_tokens=6)
    assert set(trace.maps) == {"enc_self", "dec_self", "cross"} and trace.search == {"name": "greedy"}
    source = tokenizer(TEXT)["input_ids"]
    forced = regard.trace(model, tokenizer, TEXT, target="le chat noir", name="mine")
    written = tokenizer("le chat noir")["input_ids"]
    assert [step.chosen for step in forced.steps] == written and all(step.given for step in forced.steps)
    assert (forced.output, forced.model.name) == ("le chat noir", "mine")
    model.eval().set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(
            torch.tensor([source]), decoder_input_ids=torch.tensor([[0, *written[:-1]]]), output_attentions=True
        )
    for name, layers in (
        ("enc_self", expected.encoder_attentions),
        ("dec_self", expected.decoder_attentions),
        ("cross", expected.cross_attentions),
    ):
        np.testing.assert_allclose(forced.maps[name].weights, torch.stack([x[0] for x in layers]).numpy(), atol=1e-6)
    assert [token.text for token in merge_words(forced).axes["target"].tokens][:3] == ["le", "chat", "noir"]
    loaded = Trace.load(forced.save(tmp_path / "marian.json"))
    assert loaded.axes == forced.axes
    for shown in (forced.explore(tmp_path / "marian.html", show=False).read_text("utf-8"), forced._repr_html_()):
        assert "le chat noir" in shown and "<script" in shown.replace("&lt;", "<")
    assert forced.plot(tmp_path / "marian.png").is_file()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["bert", "bert-classifier"])
def test_an_encoder_reads_the_text(name: str) -> None:
    model, tokenizer = make_model(name)
    trace = regard.trace(model, tokenizer, TEXT)
    tokens = trace.axes["source"].tokens
    assert (tokens[0].text, tokens[-1].text, trace.steps) == ("<s>", "</s>", ())
    assert trace.axes["source"].words == tuple(TEXT.split()) and all(t.special for t in (tokens[0], tokens[-1]))
    model.eval().set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(torch.tensor([tokenizer(TEXT)["input_ids"]]), output_attentions=True).attentions
    np.testing.assert_allclose(trace.maps["enc_self"].weights, torch.stack([x[0] for x in expected]).numpy(), atol=1e-6)


def test_words_and_letters_of_every_tokenizer() -> None:
    """Spaces are ▁ whatever the tokenizer's mark is, and letters beyond ASCII are letters again."""
    model, tokenizer = make_model("gpt2")
    trace = regard.trace(model, tokenizer, "the café", max_tokens=0)
    assert trace.axes["read"].tokens[0].text == "the"
    assert any(token.text.startswith("▁c") for token in trace.axes["target"].tokens)
    assert "Ġ" not in "".join(token.text for token in trace.axes["target"].tokens)
    assert trace.output.startswith("the c") and not any(not step.given for step in trace.steps)


def test_what_cannot_be_traced_is_refused() -> None:
    model, tokenizer = make_model("gpt2")
    with pytest.raises(UsageError, match="trace_text"):
        regard.trace(regard.load("fr-en"), None, "le chat")
    with pytest.raises(DataError, match="no tokens"):
        regard.trace(model, tokenizer, "")
    with pytest.raises(DataError, match="single token"):
        regard.trace(model, tokenizer, "the", max_tokens=0)
    with pytest.raises(UsageError, match="max_tokens"):
        regard.trace(model, tokenizer, "the", max_tokens=-1)
