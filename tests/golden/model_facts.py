"""Small untrained models with many combinations of settings: outputs, gradients and searches.

A model is drawn from a seed, run with dropout and backwards, run without dropout, and searched with token by token.
"""

from __future__ import annotations

from typing import Any

import torch
from attention_facts import attention_facts
from comparison import exact, tensor_checksum

import regard

CHARACTERS = b'{"characters": "abcdefgh"}'
SMALL = {"layers": 2, "dim": 16, "heads": 4, "hidden": 24, "dropout": 0.2}
SCHEMES = ("none", "sinusoidal", "learned", "rotary", "relative", "t5", "alibi", "fraction", "index")
TRANSFORMERS: dict[str, dict[str, Any]] = {
    **{f"position {name}": {"position": name, "max_length": 64} for name in SCHEMES if name != "fraction"},
    "pre-norm": {"order": "pre", "position": "rotary"},
    "rms, swiglu, no bias": {"order": "pre", "norm": "rms", "activation": "swiglu", "bias": False},
    "gelu, dropout everywhere": {"activation": "gelu", "attention_dropout": 0.2, "hidden_dropout": 0.2},
    "gelu-tanh, unscaled embedding": {"activation": "gelu-tanh", "scale_embedding": False},
    "grouped keys, normalised": {"kv_heads": 2, "qk_norm": True, "position": "rotary"},
    "one head of keys, window": {"kv_heads": 1, "window": 3},
    "sliced": {"form": "slice"},
}
OF_TRANSLATION: dict[str, dict[str, Any]] = {
    "one table": {"share_embeddings": True},
    "free output, deep encoder": {"tie_output": False, "layers": 3, "decoder_layers": 1},
}
RECURRENT = {"embedding": 12, "hidden": 16, "dropout": 0.2}
SCORES = ("none", "dot", "scaled", "bilinear", "additive", "concat")
TRANSLATORS: dict[str, dict[str, Any]] = {
    **{f"bahdanau, {score}": {"attention": score, "cell": "gru"} for score in SCORES},
    **{f"luong, {score}": {"attention": score, "style": "luong", "cell": "lstm"} for score in SCORES[1:]},
    "input feeding": {"attention": "bilinear", "style": "luong", "input_feeding": True, "layers": 2},
    "plain cells, one direction": {"cell": "rnn", "bidirectional": False, "attention_hidden": 10},
    "tied, wide encoder": {"embedding": 16, "tie_output": True, "encoder_hidden": 14},
}
SOURCE = [[5, 6, 7, 4, 9, 3], [8, 4, 11, 3, 0, 0]]
TARGET = [[2, 5, 10, 7, 7], [2, 8, 9, 6, 0]]
TEXTS = ("abc", "hgfed")


def model_facts() -> dict[str, Any]:
    tokenizer = regard.CharacterTokenizer(CHARACTERS)
    sides = {"source_vocabulary": tokenizer.size, "target_vocabulary": tokenizer.size}
    one = {"vocabulary": tokenizer.size}
    facts: dict[str, Any] = {"attention": attention_facts()}
    for name, settings in {**TRANSFORMERS, **OF_TRANSLATION}.items():
        config = regard.TransformerConfig(**{**SMALL, **sides, **settings})
        facts[f"transformer, {name}"] = facts_of(config, tokenizer)
    for name, settings in TRANSFORMERS.items():
        config = regard.TransformerLMConfig(**{**SMALL, **one, **settings})
        facts[f"transformer-lm, {name}"] = facts_of(config, tokenizer)
    for name, settings in TRANSLATORS.items():
        config = regard.RecurrentTranslatorConfig(**{**RECURRENT, **sides, **settings})
        facts[f"recurrent translator, {name}"] = facts_of(config, tokenizer)
    for cell in ("rnn", "gru", "lstm"):
        config = regard.RecurrentLMConfig(**RECURRENT, **one, cell=cell, layers=2)
        facts[f"rnn-lm, {cell}"] = facts_of(config, tokenizer)
    for pooling in ("mean", "max", "first", "learned"):
        config = regard.EncoderConfig(**SMALL, **one, pooling=pooling, normalize=pooling != "max")
        facts[f"encoder, {pooling}"] = facts_of(config, tokenizer)
    return facts


def facts_of(config: Any, tokenizer: regard.CharacterTokenizer) -> dict[str, Any]:
    translates, embeds = hasattr(config, "target_vocabulary"), config.kind == "encoder"
    torch.manual_seed(11)
    model = regard.make_model(config)
    facts: dict[str, Any] = {"drawn weights": tensor_checksum(model.state_dict())}
    source, target = torch.tensor(SOURCE), torch.tensor(TARGET)
    inputs = (source, target) if translates else (source,) if embeds else (target,)
    outputs = model.train()(*inputs)
    weights = torch.arange(outputs.numel(), dtype=torch.float32).cos().view_as(outputs)
    loss = (outputs * weights).sum()
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    facts["loss with dropout"] = exact(loss)
    facts["gradient norm"] = exact(torch.stack([gradient.norm() for gradient in gradients.values()]).norm())
    facts["gradients"] = tensor_checksum(gradients)
    outputs = model.eval()(*inputs)
    facts["loss"], facts["outputs"] = exact((outputs * weights).sum()), tensor_checksum({"outputs": outputs})
    if translates:
        translator = regard.Translator(model, tokenizer, tokenizer)
        found = translator.translate(list(TEXTS), beam=3, alternatives=2, max_tokens=6, guard=False)
        facts["beam"] = [[[best.text, exact(best.score)] for best in each.alternatives] for each in found]
        found = translator.translate(list(TEXTS), search=regard.Sample(seed=4), max_tokens=6, guard=False)
        facts["sample"] = [[each.text, exact(each.score)] for each in found]
    elif not embeds:
        writer = regard.Writer(model, tokenizer)
        facts["greedy"] = writer.write(TEXTS[0], search=regard.Greedy(), max_tokens=12)
        facts["sample"] = writer.write(TEXTS[1], search=regard.Sample(seed=4), max_tokens=12)
        facts["forced"] = exact(writer.score(TEXTS[1]).score)
    return facts
