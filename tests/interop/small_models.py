"""Tiny models of the real classes of transformers, saved as their users save them, with a byte-level tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

ENDS = [0, *range(11, 270, 20)]  # so many that random models end their texts
TEXTS = ["The cat sat on the mat.", "Les élèves 🙂 sont allés à l'école.", "one two three", "a\n\n  b", ""]


class Original(NamedTuple):
    """A model of transformers, and the folder that it was saved in."""

    model: Any
    folder: Path


def make_tokenizer() -> Any:
    """Return a byte-level BPE tokenizer, as GPT-2 and its successors have it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=270, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


# What each family adds to the sizes below: between them, every option.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "mistral": {"sliding_window": 5, "head_dim": 6, "num_key_value_heads": 1},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 6},
    "gpt2": {},
}


def make_original(family: str, folder: Path, *, vocabulary_margin: int = 3, **settings: Any) -> Original:
    """Make a random model of a family, and save it with its tokenizer."""
    import transformers

    tokenizer = make_tokenizer()
    vocabulary = tokenizer.get_vocab_size() + vocabulary_margin
    tokens = {"bos_token_id": 0, "eos_token_id": ENDS, "pad_token_id": None}
    if family == "gpt2":
        sizes = {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 64}
        made = transformers.GPT2Config, transformers.GPT2LMHeadModel
    else:
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
        sizes |= {"num_key_value_heads": 2, "max_position_embeddings": 64}
        name = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family]
        made = getattr(transformers, f"{name}Config"), getattr(transformers, f"{name}ForCausalLM")
    config = made[0](vocab_size=vocabulary, **{**sizes, **tokens, **FAMILIES[family], **settings})
    torch.manual_seed(hash_of(family))
    model = made[1](config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.dim() > 1 else 0.2) + ("norm" in name))
        model.get_output_embeddings().weight[ENDS] *= 3.0  # texts end soon
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return Original(model, folder)


def hash_of(family: str) -> int:
    return sum(map(ord, family))


def in_float64(model: Any) -> Any:
    """Return the model in float64 throughout: RMSNorm of transformers rounds to float32 otherwise."""
    for module in model.double().modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, norm=module: (
                norm.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.variance_epsilon)
            )
    return model


def mutations(value: Any) -> Iterator[Any]:
    """Other values of the same kind, and of another."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in mutations(inner))
        yield {**value, "unheard_of": 1}
        return
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, -1)
    elif isinstance(value, float):
        yield from (value * 2 + 0.125, -1.0)
    elif isinstance(value, str):
        yield f"{value}x"
    elif isinstance(value, list):
        yield value[:-1] if len(value) > 1 else [*value, *value, 1]
        yield [7] if isinstance(value[0], int) else ["sliding_attention"] * len(value)
    yield "nonsense" if value is None or not isinstance(value, str) else 3
