"""The classes of transformers that compute a language model or an encoder of regard, and the config.json of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.interop.exports.hub_model import HubModel, Weights
from regard.interop.exports.model_source import ModelSource
from regard.interop.families import bert, gpt2, llama
from regard.interop.families.family import Plan, TokenIds
from regard.interop.files.settings_file import SettingsFile
from regard.interop.rotary_order import to_halves
from regard.interop.supported_settings import unsupported
from regard.interop.weight_table import Part, Row
from regard.models.config import EncoderConfig, TransformerLMConfig

GPT2_ACTIVATIONS = {"gelu-tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}
LLAMA_ACTIVATIONS = {"swiglu": "silu", "geglu-tanh": "gelu_pytorch_tanh"}
ROPE_KEYS = {
    "linear": {"factor": "rope_factor"},
    "llama3": {
        "factor": "rope_factor",
        "low_freq_factor": "rope_low",
        "high_freq_factor": "rope_high",
        "original_max_position_embeddings": "rope_trained_length",
    },
    "yarn": {
        "factor": "rope_factor",
        "beta_fast": "rope_beta_fast",
        "beta_slow": "rope_beta_slow",
        "truncate": "rope_truncate",
        "attention_factor": "rope_attention_factor",
        "original_max_position_embeddings": "rope_trained_length",
    },
}


def language_model(source: ModelSource) -> HubModel | str:
    """Return the language model for the first class that computes it, or why none does."""
    config: TransformerLMConfig = source.config
    if config.norm == "rms":
        return _llama(source)
    return _gpt2(source) if config.position == "learned" else _gpt_neox(source)


def context_of(source: ModelSource) -> int:
    """Return the number of tokens of the longest text."""
    recipe = source.info.get("recipe") or {}
    trained = recipe.get("data", {}).get("context")
    return int(source.config.max_positions or source.info.get("context") or trained or 1024)


def token_settings(source: ModelSource) -> dict[str, Any]:
    """Return the special tokens, as every config.json has them."""
    special = source.special
    ends = special.ends[0] if len(special.ends) == 1 else list(special.ends)
    before = source.before_target()
    return {"bos_token_id": before[0] if before else None, "eos_token_id": ends, "pad_token_id": special.pad}


def _llama(source: ModelSource) -> HubModel | str:
    config = source.config
    values = {
        "norm": ("rms",),
        "order": ("pre",),
        "position": ("rotary",),
        "activation": (*LLAMA_ACTIVATIONS,),
        "rope_scaling": ("none", *ROPE_KEYS),
        "qkv_bias": (None, True),
    }
    rope = ("rope_base", "rope_layout", *(name for keys in ROPE_KEYS.values() for name in keys.values()))
    free = ("kv_heads", "d_k", "d_v", "norm_eps", "qk_norm", "bias", "scale_embedding", "window", "tie_output", *rope)
    if setting := unsupported(config, free=free, values=values):
        return f"Llama and its successors in transformers do not compute {setting}"
    used = [bool(option) for option in (config.qk_norm, config.qkv_bias and not config.bias, config.window)]
    if sum(used) > 1 or (config.bias and (used[0] or used[2])):
        return "transformers has no class with this combination of qk_norm, biases and a window"
    if config.key_width != config.value_width:
        return "transformers has one width for the queries, keys and values of a head"
    kind = ("qwen3", "qwen2", "mistral", "llama")[[*used, True].index(True)]
    settings: dict[str, Any] = {
        "model_type": kind,
        "vocab_size": config.vocabulary,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads or config.heads,
        "head_dim": config.key_width,
        "hidden_act": LLAMA_ACTIVATIONS[config.activation],
        "rms_norm_eps": 1e-6 if config.norm_eps is None else config.norm_eps,
        "max_position_embeddings": context_of(source),
        "rope_parameters": _rope(config),
        "tie_word_embeddings": config.tie_output and not config.scale_embedding,
        **token_settings(source),
    }
    if kind == "llama":
        settings |= {"attention_bias": config.bias, "mlp_bias": config.bias}
    if config.window is not None:
        settings |= {
            "sliding_window": config.window,
            "max_position_embeddings": max(context_of(source), 1 + config.window),
        }
    weights = unscaled(source)
    if config.rope_layout == "interleaved":
        weights = {name: _halves(config, name, weight) for name, weight in weights.items()}
    names = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    return _planned(source, f"{names[kind]}ForCausalLM", settings, weights, llama.make_plan)


def _rope(config: TransformerLMConfig) -> dict[str, Any]:
    if config.rope_scaling == "none":
        return {"rope_type": "default", "rope_theta": config.rope_base}
    scaling = {theirs: getattr(config, ours) for theirs, ours in ROPE_KEYS[config.rope_scaling].items()}
    return {"rope_type": config.rope_scaling, "rope_theta": config.rope_base, **scaling}


def _halves(config: TransformerLMConfig, name: str, weight: Tensor) -> Tensor:
    """Reorder the queries and keys of a weight or bias."""
    if ".self_attention." not in name or not name.endswith((".input.weight", ".input.bias", "_norm.weight")):
        return weight
    groups, d = config.kv_heads or config.heads, config.key_width
    if name.endswith("_norm.weight"):
        return to_halves(weight, 1)
    queries, keys, values = weight.split([config.heads * d, groups * d, groups * d])
    return torch.cat([to_halves(queries, config.heads), to_halves(keys, groups), values])


def _gpt2(source: ModelSource) -> HubModel | str:
    config = source.config
    values = {"order": ("pre",), "position": ("learned",), "activation": (*GPT2_ACTIVATIONS,)}
    if setting := unsupported(config, free=("norm_eps", "scale_embedding", "tie_output"), values=values):
        return f"GPT-2 in transformers does not compute {setting}"
    settings = {
        "model_type": "gpt2",
        "vocab_size": config.vocabulary,
        "n_embd": config.dim,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.hidden,
        "n_positions": config.max_length,
        "activation_function": GPT2_ACTIVATIONS[config.activation],
        "layer_norm_epsilon": _layer_eps(config.norm_eps),
        "tie_word_embeddings": config.tie_output and not config.scale_embedding,
        **token_settings(source),
    }
    return _planned(source, "GPT2LMHeadModel", settings, unscaled(source), gpt2.make_plan)


def _gpt_neox(source: ModelSource) -> HubModel | str:
    config = source.config
    values = {
        "order": ("pre",),
        "position": ("rotary",),
        "activation": (*GPT2_ACTIVATIONS,),
        "rope_scaling": ("none", "linear"),
    }
    free = ("norm_eps", "scale_embedding", "tie_output", "rope_base", "rope_fraction", "rope_factor")
    if setting := unsupported(config, free=free, values=values):
        return f"GPT-NeoX in transformers does not compute {setting}"
    settings = {
        "model_type": "gpt_neox",
        "vocab_size": config.vocabulary,
        "hidden_size": config.dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": GPT2_ACTIVATIONS[config.activation],
        "layer_norm_eps": _layer_eps(config.norm_eps),
        "max_position_embeddings": context_of(source),
        "rope_parameters": {**_rope(config), "partial_rotary_factor": config.rope_fraction},
        "use_parallel_residual": False,
        "attention_bias": True,
        "tie_word_embeddings": False,
        **token_settings(source),
    }
    table = [
        Row("input.embedding.weight", (Part("gpt_neox.embed_in.weight", config.vocabulary),)),
        Row("output.weight", (Part("embed_out.weight", config.vocabulary),)),
        *_both("decoder.norm", "gpt_neox.final_layer_norm", config.dim),
    ]
    for i in range(config.layers):
        ours, theirs = f"decoder.blocks.{i}", f"gpt_neox.layers.{i}"
        table += [
            *_both(f"{ours}.self_attention.input", f"{theirs}.attention.query_key_value", 3 * config.dim),
            *_both(f"{ours}.self_attention.output", f"{theirs}.attention.dense", config.dim),
            *_both(f"{ours}.self_norm", f"{theirs}.input_layernorm", config.dim),
            *_both(f"{ours}.feed_norm", f"{theirs}.post_attention_layernorm", config.dim),
            *_both(f"{ours}.feed_forward.up", f"{theirs}.mlp.dense_h_to_4h", config.hidden),
            *_both(f"{ours}.feed_forward.down", f"{theirs}.mlp.dense_4h_to_h", config.dim),
        ]

    def by_head(weights: Weights) -> Weights:
        """Stack queries, keys and values of one head after the other, as GPT-NeoX does."""
        for name, weight in weights.items():
            if ".query_key_value." in name:
                heads = weight.reshape(3, config.heads, config.key_width, -1).transpose(0, 1)
                weights[name] = heads.reshape(weight.shape).contiguous()
        return weights

    return HubModel("GPTNeoXForCausalLM", settings, unscaled(source, untied=True), table, "", by_head)


def encoder(source: ModelSource) -> HubModel | str:
    """Return the sentence encoder as a BertModel, or why it is none."""
    config: EncoderConfig = source.config
    activations = {ours: theirs for theirs, ours in reversed(bert.ACTIVATIONS.items())}
    values = {
        "position": ("learned",),
        "input_norm": (True,),
        "activation": (*activations,),
        "pooling": ("mean", "max", "first"),
    }
    if setting := unsupported(config, free=("norm_eps", "scale_embedding", "normalize"), values=values):
        return f"BERT in transformers does not compute {setting}"
    settings = {
        "model_type": "bert",
        "vocab_size": config.vocabulary,
        "hidden_size": config.dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": activations[config.activation],
        "layer_norm_eps": _layer_eps(config.norm_eps),
        "max_position_embeddings": config.max_length,
        "type_vocab_size": 1,
        **token_settings(source),
    }
    return _planned(source, "BertModel", settings, unscaled(source), bert.make_plan)


def unscaled(source: ModelSource, *, untied: bool = False) -> Weights:
    """Return the weights for a class that does not scale token vectors, and perhaps has an output layer of its own."""
    config, weights = source.config, source.weights()
    name = "input.embedding.weight"
    table = weights[name]
    if config.scale_embedding:
        weights[name] = table * math.sqrt(config.dim)
    if getattr(config, "tie_output", False) and (config.scale_embedding or untied):
        weights["output.weight"] = table.clone()
    return weights


def _planned(
    source: ModelSource,
    architecture: str,
    settings: dict[str, Any],
    weights: Weights,
    make_plan: Callable[[SettingsFile, TokenIds], Plan],
) -> HubModel:
    """Return the model with the table of weights that an import of these settings has."""
    special = source.special
    before, after = source.around_source() if isinstance(source.config, EncoderConfig) else (source.before_target(), [])
    size = source.tokenizers[1].size
    tokens = TokenIds(
        special.start, special.ends, special.pad, special.unknown, size, before=tuple(before), after=tuple(after)
    )
    plan = make_plan(SettingsFile("config.json", settings), tokens)
    return HubModel(architecture, settings, weights, plan.rows, "" if architecture == "BertModel" else plan.prefix)


def _layer_eps(eps: float | None) -> float:
    return 1e-5 if eps is None else eps


def _both(ours: str, theirs: str, rows: int) -> list[Row]:
    return [Row(f"{ours}.{what}", (Part(f"{theirs}.{what}", rows),)) for what in ("weight", "bias")]
