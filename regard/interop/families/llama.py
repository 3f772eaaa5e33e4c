"""Llama, Mistral, Qwen2, Qwen3, and what shares their form, such as SmolLM2 and TinyLlama.

Touvron et al. 2023: pre-norm blocks with RMSNorm, SwiGLU and rotary positions, without biases. Qwen2 has biases of
queries, keys and values; Qwen3 normalizes queries and keys; Mistral attends to a window.
"""

from __future__ import annotations

import math
from typing import Any

from regard.errors import ModelError
from regard.interop.families.family import Plan, TokenIds, check_common
from regard.interop.files.settings_file import SettingsFile
from regard.interop.weight_table import Part, Row
from regard.models.config import TransformerLMConfig

ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "LlamaModel"),
    "mistral": ("MistralForCausalLM", "MistralModel"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Model"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Model"),
}
UNUSED = r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
ACTIVATIONS = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu-tanh", "gelu_new": "geglu-tanh"}
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def make_plan(settings: SettingsFile, tokens: TokenIds) -> Plan:
    """Return the plan of a model with these settings, config.json."""
    kind = settings.take("model_type", str)
    check_common(settings, ARCHITECTURES[kind])
    dim, heads = settings.take("hidden_size", int), settings.take("num_attention_heads", int)
    layers = settings.take("num_hidden_layers", int)
    if kind != "llama":  # where it is missing, transformers takes the number of the first published model
        settings.must_have("num_key_value_heads")
    groups = settings.take("num_key_value_heads", int, heads)
    positions = settings.take("max_position_embeddings", int)
    if heads < 1 or groups < 1:
        raise ModelError(f"{settings.path}: the number of heads must be positive")
    width = settings.take("head_dim", int, 128 if kind == "qwen3" else dim // heads)
    activation = settings.take("hidden_act", str, "silu")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{settings.path}: hidden_act is {activation!r}, known: {', '.join(ACTIVATIONS)}")
    attention_bias = settings.take("attention_bias", bool, False) if kind in ("llama", "qwen3") else False
    feed_bias = settings.take("mlp_bias", bool, False) if kind == "llama" else False
    vocabulary = settings.take("vocab_size", int)
    tied = settings.take("tie_word_embeddings", bool, False)
    settings.must_be("pretraining_tp", 1)
    settings.must_be("rope_interleaved", False)
    window = _window(settings, kind, layers)
    notes = []
    if window is not None and window >= positions:
        notes.append(f"The window of {window} tokens is not shorter than the context, so it is left out.")
        window = None
    config = TransformerLMConfig.from_dict(
        {
            "vocabulary": vocabulary,
            "layers": layers,
            "dim": dim,
            "heads": heads,
            "kv_heads": None if groups == heads else groups,
            "d_k": None if width * heads == dim else width,
            "d_v": None if width * heads == dim else width,
            "hidden": settings.take("intermediate_size", int),
            "activation": ACTIVATIONS[activation],
            "norm": "rms",
            "norm_eps": settings.take("rms_norm_eps", float, 1e-6),
            "order": "pre",
            "position": "rotary",
            "qk_norm": kind == "qwen3",
            "bias": attention_bias or feed_bias,
            "qkv_bias": True if kind == "qwen2" else None,
            "scale_embedding": False,
            "window": window,
            "tie_output": tied,
            "dropout": 0.0,
            **rotary_settings(settings, positions),
            **tokens.settings(vocabulary),
        }
    )
    rows = [*_ends(config), *(row for i in range(layers) for row in _layer(config, i, attention_bias, feed_bias))]
    copies = {"lm_head.weight": "embed_tokens.weight"} if tied else {}
    return Plan(config, rows, "model.", UNUSED, copies, positions, notes)


def rotary_settings(settings: SettingsFile, positions: int) -> dict[str, Any]:
    """Return the settings of rotary positions, from `rope_parameters` or the older `rope_theta` and `rope_scaling`."""
    base = settings.take("rope_theta", float, None)
    settings.must_be("partial_rotary_factor", 1.0)  # these classes of transformers do not read it
    trained = settings.take("original_max_position_embeddings", int, None)
    tables = [table for key in ("rope_parameters", "rope_scaling") if (table := settings.take_table(key)) is not None]
    if len(tables) > 1:
        raise ModelError(f"{settings.path}: there are both rope_parameters and rope_scaling")
    table = tables[0] if tables else SettingsFile(settings.path, {})
    kinds = {table.take(key, str, None) for key in ("rope_type", "type")} - {None}
    kind = kinds.pop() if kinds else "default"
    if kinds or kind not in ROPE_TYPES:
        raise ModelError(f"{table.path}: rope_type is {kind!r}, known: {', '.join(ROPE_TYPES)}")
    base = table.take("rope_theta", float, 10000.0 if base is None else base)
    table.must_be("partial_rotary_factor", 1.0)
    rope: dict[str, Any] = {"rope_base": base}
    if kind == "default":
        table.ignore("factor", "original_max_position_embeddings")  # which this type does not use
        table.finish()
        return rope
    rope |= {"rope_scaling": kind, "rope_factor": table.take("factor", float)}
    if kind == "linear":
        table.ignore("original_max_position_embeddings")
    else:
        trained = positions if trained is None else trained
        rope["rope_trained_length"] = table.take("original_max_position_embeddings", int, trained)
    if kind == "llama3":
        rope |= {"rope_low": table.take("low_freq_factor", float), "rope_high": table.take("high_freq_factor", float)}
    if kind == "yarn":
        rope |= {
            "rope_beta_fast": table.take("beta_fast", float, 32.0),
            "rope_beta_slow": table.take("beta_slow", float, 1.0),
            "rope_truncate": table.take("truncate", bool, True),
            "rope_attention_factor": _attention_factor(table, rope["rope_factor"]),
        }
    table.finish()
    return rope


def _attention_factor(table: SettingsFile, factor: float) -> float:
    """Return YaRN's factor of sines and cosines: as given, or from the factor of the context (Peng et al. 2024)."""
    stored = table.take("attention_factor", float, None)
    scale, scale_all = table.take("mscale", float, None), table.take("mscale_all_dim", float, None)
    if stored is not None:
        return stored

    def sharpening(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    return sharpening(scale) / sharpening(scale_all) if scale and scale_all else sharpening(1.0)


def _window(settings: SettingsFile, kind: str, layers: int) -> int | None:
    """Return the window of all layers; ModelError if only some layers have one."""
    window = settings.take("sliding_window", int, None)
    types = settings.take("layer_types", list, None)
    switched = settings.take("use_sliding_window", bool, False) if kind.startswith("qwen") else True
    first = settings.take("max_window_layers", int, 28) if kind.startswith("qwen") else 0
    if kind == "llama":
        settings.must_be("sliding_window", why="a Llama has no window")
    elif switched:
        settings.must_have("sliding_window")
    if types is not None:
        if len(types) != layers or not {*map(str, types)} <= {"full_attention", "sliding_attention"}:
            raise ModelError(f"{settings.path}: layer_types must name the attention of each of the {layers} layers")
        have = [name == "sliding_attention" for name in types]
        if any(have) and (window is None or not switched):
            raise ModelError(f"{settings.path}: layer_types has layers with a window, but there is no sliding_window")
    else:
        have = [switched and number >= first for number in range(layers)]
    if window is None or not switched or not any(have):
        return None
    if not all(have):
        raise ModelError(
            f"{settings.path}: only some layers have a window (layer_types), which regard does not implement"
        )
    return window


def _ends(config: TransformerLMConfig) -> list[Row]:
    rows = [
        Row("input.embedding.weight", (Part("embed_tokens.weight", config.vocabulary),)),
        Row("decoder.norm.weight", (Part("norm.weight", config.dim),)),
    ]
    return rows if config.tie_output else [*rows, Row("output.weight", (Part("lm_head.weight", config.vocabulary),))]


def _layer(config: TransformerLMConfig, i: int, attention_bias: bool, feed_bias: bool) -> list[Row]:
    ours, theirs = f"decoder.blocks.{i}", f"layers.{i}"
    attention, feed = f"{theirs}.self_attn", f"{theirs}.mlp"
    heads, groups, d = config.heads, config.kv_heads or config.heads, config.key_width
    stacked = {"q_proj": heads * d, "k_proj": groups * d, "v_proj": groups * d}

    def parts(what: str, present: bool = True) -> tuple[Part, ...]:
        return tuple(Part(f"{attention}.{name}.{what}" if present else None, rows) for name, rows in stacked.items())

    def gated(what: str, present: bool = True) -> tuple[Part, ...]:
        return tuple(
            Part(f"{feed}.{name}.{what}" if present else None, config.hidden) for name in ("gate_proj", "up_proj")
        )

    def one(name: str, rows: int, present: bool = True) -> tuple[Part, ...]:
        return (Part(name if present else None, rows),)

    rows = [
        Row(f"{ours}.self_attention.input.weight", parts("weight")),
        Row(f"{ours}.self_attention.output.weight", one(f"{attention}.o_proj.weight", config.dim)),
        Row(f"{ours}.self_norm.weight", one(f"{theirs}.input_layernorm.weight", config.dim)),
        Row(f"{ours}.feed_norm.weight", one(f"{theirs}.post_attention_layernorm.weight", config.dim)),
        Row(f"{ours}.feed_forward.up.weight", gated("weight")),
        Row(f"{ours}.feed_forward.down.weight", one(f"{feed}.down_proj.weight", config.dim)),
    ]
    if config.qk_norm:
        rows += [Row(f"{ours}.self_attention.{x}_norm.weight", one(f"{attention}.{x}_norm.weight", d)) for x in "qk"]
    if config.bias or config.qkv_bias:
        rows.append(Row(f"{ours}.self_attention.input.bias", parts("bias", attention_bias or bool(config.qkv_bias))))
    if config.bias:
        rows += [
            Row(f"{ours}.self_attention.output.bias", one(f"{attention}.o_proj.bias", config.dim, attention_bias)),
            Row(f"{ours}.feed_forward.up.bias", gated("bias", feed_bias)),
            Row(f"{ours}.feed_forward.down.bias", one(f"{feed}.down_proj.bias", config.dim, feed_bias)),
        ]
    return rows
