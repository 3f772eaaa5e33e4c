"""The classes of transformers that compute a translation model of regard, and the config.json of each.

Post-norm blocks with sinusoids are Marian's, pre-norm blocks with sinusoids those of Pegasus or M2M100, with learned
positions those of mBART, and T5 has positions of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import torch

from regard.interop.exports.hub_model import HubModel, Weights
from regard.interop.exports.model_source import ModelSource
from regard.interop.families import bart, marian, t5
from regard.interop.families.family import Plan, linear_rows
from regard.interop.files.settings_file import SettingsFile
from regard.interop.supported_settings import unsupported
from regard.interop.translator_tokens import TranslatorTokens
from regard.interop.weight_table import EXCLUDED, Part, Row
from regard.models.config import TransformerConfig

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "silu": "swish"}
T5_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "geglu-tanh": "gated-gelu"}
LAYER_EPS = (None, 1e-5)  # of these classes, but for T5
POSITIONS = 1024  # of sinusoids, unless the model says how long its texts may be
COMMON = ("scale_embedding", "output_bias")  # what the settings of these classes have, but for M2M100 and T5


def translator(source: ModelSource) -> HubModel | str:
    """Return the translation model for the class that computes it, or why none does."""
    config: TransformerConfig = source.config
    if source.around_source() != ([], [source.special.end]):
        return "the encoder-decoders of transformers have an end token after a source, and nothing else around it"
    if config.position == "t5":
        return _t5(source)
    if config.position == "learned":
        return _mbart(source)
    if config.position != "sinusoidal":
        return f"transformers has no encoder-decoder with position = {config.position!r}"
    if config.order == "post":
        return _marian(source)
    return _m2m100(source) if config.position_start == bart.OFFSET else _pegasus(source)


def tokens_of(source: ModelSource, search: dict[str, Any] | None = None) -> TranslatorTokens:
    """Return the special tokens of a model, as an import reads them."""
    special = source.special
    imported = "imported" in source.info
    barred = special.barred if imported else special.never_chosen(allow_unknown=False)
    size = min(tokenizer.size for tokenizer in source.tokenizers)
    return TranslatorTokens(
        special.start, special.ends, special.pad, special.unknown, tuple(barred), False, None, search or {}, (), size
    )


def generation_settings(source: ModelSource) -> dict[str, Any]:
    """Return the content of generation_config.json: the special tokens, and the usual search."""
    tokens, search = tokens_of(source), source.info.get("search") or {}
    languages = source.info.get("language_codes") or {}
    settings: dict[str, Any] = {
        "decoder_start_token_id": tokens.start,
        "eos_token_id": tokens.ends[0] if len(tokens.ends) == 1 else list(tokens.ends),
        "pad_token_id": tokens.pad,
        "num_beams": search.get("beam", 1),
        "length_penalty": search.get("length_penalty", 1.0),
        "max_length": max_positions(source),
    }
    if tokens.barred:
        settings["bad_words_ids"] = [[token] for token in tokens.barred]
    if excluded_tokens(source):
        settings["renormalize_logits"] = True
    if languages.get("target") == "target" and languages.get("default_target"):
        settings["forced_bos_token_id"] = languages["tokens"][languages["default_target"]]
    return settings


def excluded_tokens(source: ModelSource) -> list[int]:
    """Return the tokens whose probability the output bias makes 0."""
    bias = source.weights().get("output_bias")
    return [] if bias is None else (bias == EXCLUDED).nonzero()[:, 0].tolist()


def max_positions(source: ModelSource) -> int:
    """Return the number of tokens of the longest text."""
    longest = source.info.get("max_tokens")
    return int(source.config.max_positions or (POSITIONS if longest is None else longest + 1))


def _marian(source: ModelSource) -> HubModel | str:
    config = source.config
    free = (*COMMON, "share_embeddings", "position_layout")
    if reason := _why_not("MarianMTModel", config, free=free, values={"order": ("post",), "norm_eps": LAYER_EPS}):
        return reason
    settings = _settings(source, "marian") | {
        "vocab_size": config.source_vocabulary,
        "decoder_vocab_size": config.target_vocabulary,
        "share_encoder_decoder_embeddings": config.share_embeddings,
        "static_position_embeddings": True,
    }
    return _planned(source, "MarianMTModel", settings, marian.make_plan)


def _pegasus(source: ModelSource) -> HubModel | str:
    """Return a model with pre-norm blocks, which have the names of Marian's, and a norm after each stack."""
    config = source.config
    values: dict[str, Collection[Any]] = {"order": ("pre",), "norm_eps": LAYER_EPS, "share_embeddings": (True,)}
    name = "PegasusForConditionalGeneration"
    if reason := _why_not(name, config, free=(*COMMON, "position_layout"), values=values):
        return reason
    vocabulary = config.target_vocabulary
    rows = [
        Row("source.embedding.weight", (Part("shared.weight", vocabulary),)),
        Row("output_bias", (Part("final_logits_bias", vocabulary),), in_row=True),
        *marian.block_rows(config),
        *(row for stack in config.stacks for row in linear_rows(f"{stack}.norm", f"{stack}.layer_norm", config.dim)),
    ]
    settings = _settings(source, "pegasus") | {"vocab_size": vocabulary}
    return HubModel(name, settings, _weights(source), rows, "model.", excluded=excluded_tokens(source))


def _m2m100(source: ModelSource) -> HubModel | str:
    config = source.config
    values: dict[str, Collection[Any]] = {
        "order": ("pre",),
        "norm_eps": LAYER_EPS,
        "share_embeddings": (True,),
        "position_start": (bart.OFFSET,),
        "position_base": (marian.original_base(config.dim),),
        "pad_id": (1,),
    }
    name = "M2M100ForConditionalGeneration"
    if reason := _why_not(name, config, free=("scale_embedding", "position_layout"), values=values):
        return reason
    settings = _settings(source, "m2m_100") | {"vocab_size": config.target_vocabulary}
    return _planned(source, name, settings, bart.make_plan)


def _mbart(source: ModelSource) -> HubModel | str:
    config = source.config
    values: dict[str, Collection[Any]] = {
        "order": ("pre",),
        "position": ("learned",),
        "input_norm": (True,),
        "norm_eps": LAYER_EPS,
        "share_embeddings": (True,),
        "pad_id": (1,),
    }
    name = "MBartForConditionalGeneration"
    if reason := _why_not(name, config, free=COMMON, values=values):
        return reason
    settings = _settings(source, "mbart") | {"vocab_size": config.target_vocabulary}
    return _planned(source, name, settings, bart.make_plan)


def _t5(source: ModelSource) -> HubModel | str:
    config = source.config
    values: dict[str, Collection[Any]] = {
        "order": ("pre",),
        "position": ("t5",),
        "norm": ("rms",),
        "bias": (False,),
        "share_embeddings": (True,),
        "activation": (*T5_ACTIVATIONS,),
    }
    free = ("norm_eps", "scale_embedding", "tie_output", "d_k", "d_v")
    if setting := unsupported(config, free=free, values=values):
        return f"T5ForConditionalGeneration does not compute {setting}"
    if config.key_width != config.value_width:
        return "T5ForConditionalGeneration has one width for the queries, keys and values of a head"
    tied = config.tie_output and not config.scale_embedding
    settings: dict[str, Any] = {
        "model_type": "t5",
        "vocab_size": config.target_vocabulary,
        "d_model": config.dim,
        "d_kv": config.key_width,
        "d_ff": config.hidden,
        "num_heads": config.heads,
        "num_layers": config.stacks["encoder"],
        "num_decoder_layers": config.stacks["decoder"],
        "feed_forward_proj": T5_ACTIVATIONS[config.activation],
        "relative_attention_num_buckets": t5.BUCKETS,
        "relative_attention_max_distance": t5.MAX_DISTANCE,
        "layer_norm_epsilon": 1e-6 if config.norm_eps is None else config.norm_eps,
        "is_encoder_decoder": True,
        "tie_word_embeddings": tied,
        "scale_decoder_outputs": tied,
        **_token_settings(source),
    }
    weights = source.weights()
    table = weights["source.embedding.weight"]
    if config.tie_output and not tied:
        weights["output.weight"] = table.clone()
    if config.scale_embedding:
        weights["source.embedding.weight"] = table * math.sqrt(config.dim)
    shapes = {} if tied else {"lm_head.weight": tuple(table.shape)}
    plan = t5.make_plan(SettingsFile("config.json", dict(settings)), tokens_of(source), shapes)
    return HubModel("T5ForConditionalGeneration", settings, weights, plan.rows, "")


def _why_not(
    name: str, config: TransformerConfig, *, free: Collection[str], values: dict[str, Collection[Any]]
) -> str | None:
    setting = unsupported(config, free=free, values={"activation": (*ACTIVATIONS,), **values, "tie_output": (True,)})
    if setting is None and config.dim % 2:
        setting = f"dim = {config.dim}, which is odd"
    return None if setting is None else f"{name} does not compute {setting}"


def _settings(source: ModelSource, kind: str) -> dict[str, Any]:
    """Return the settings that all of these classes have, but for T5."""
    config: TransformerConfig = source.config
    sides = {
        f"{stack}_{name}": value
        for stack in config.stacks
        for name, value in (("attention_heads", config.heads), ("ffn_dim", config.hidden))
    }
    return {
        "model_type": kind,
        "d_model": config.dim,
        "encoder_layers": config.stacks["encoder"],
        "decoder_layers": config.stacks["decoder"],
        **sides,
        "activation_function": ACTIVATIONS[config.activation],
        "scale_embedding": config.scale_embedding,
        "max_position_embeddings": max_positions(source),
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "forced_eos_token_id": None,
        **_token_settings(source),
    }


def _token_settings(source: ModelSource) -> dict[str, Any]:
    tokens = tokens_of(source)
    return {
        "pad_token_id": tokens.pad,
        "eos_token_id": tokens.ends[0],
        "bos_token_id": tokens.start,
        "decoder_start_token_id": tokens.start,
    }


def _planned(
    source: ModelSource,
    architecture: str,
    settings: dict[str, Any],
    make_plan: Callable[[SettingsFile, TranslatorTokens], Plan],
) -> HubModel:
    """Return the model with the table of weights that an import of these settings has."""
    plan = make_plan(SettingsFile("config.json", dict(settings)), tokens_of(source))
    weights = _weights(source, bias=any(row.ours == "output_bias" for row in plan.rows))
    return HubModel(architecture, settings, weights, plan.rows, plan.prefix, excluded=excluded_tokens(source))


def _weights(source: ModelSource, *, bias: bool = True) -> Weights:
    """Return the weights with sines before cosines, and with an output bias if the class has one."""
    weights = source.weights()
    if bias and "output_bias" not in weights:
        weights["output_bias"] = torch.zeros(source.config.target_vocabulary)
    if source.config.position == "sinusoidal" and source.config.position_layout == "interleaved":
        weights = {name: _halves(name, weight) for name, weight in weights.items()}
    return weights


def _halves(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Reorder the features of the residual stream: those with sines first, then those with cosines.

    The features are the columns of what reads them, and the rows of what adds to them and of its norms.
    """
    if name == "output_bias":
        return weight
    reads = name.endswith(("embedding.weight", ".input.weight", ".up.weight"))
    adds = name.endswith((".output.weight", ".output.bias", ".down.weight", ".down.bias")) or "norm." in name
    features = weight.shape[1 if reads else 0]
    order = [*range(0, features, 2), *range(1, features, 2)]
    if reads:
        return weight[:, order]
    return weight[order] if adds else weight
