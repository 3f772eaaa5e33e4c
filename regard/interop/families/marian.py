"""Marian, as transformers stores it: the OPUS-MT models.

Junczys-Dowmunt et al. 2018; Tiedemann and Thottingal 2020. The Transformer of Vaswani et al. 2017: post-norm blocks,
sinusoidal positions, one table of vectors, and a bias of the output. The decoder starts with the padding token.
"""

from __future__ import annotations

from regard.errors import ModelError
from regard.interop.families.family import Plan, check_common, linear_rows
from regard.interop.files.settings_file import SettingsFile
from regard.interop.translator_tokens import TranslatorTokens
from regard.interop.weight_table import Part, Row
from regard.models.config import TransformerConfig

ARCHITECTURES = ("MarianMTModel", "MarianModel")
UNUSED = r"(encoder|decoder)\.embed_positions\.weight"  # sinusoids
ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
}
POSITIONS = ("hf", "original")


def original_base(dim: int) -> float:
    """Return the base of Marian's own sinusoids, whose last frequency is 1 / 10000."""
    pairs = dim // 2
    return 10000.0 ** (pairs / (pairs - 1)) if pairs > 1 else 10000.0


def make_plan(settings: SettingsFile, tokens: TranslatorTokens, *, positions: str = "hf") -> Plan:
    """Return the plan of a model with these settings, config.json.

    `positions` "hf" computes positions and normalizations as transformers does, "original" as Marian does.
    """
    settings.ignore("model_type")
    check_common(settings, ARCHITECTURES, encoder_decoder=True)
    dim, heads = settings.take("d_model", int), settings.take("encoder_attention_heads", int)
    layers, decoder_layers = settings.take("encoder_layers", int), settings.take("decoder_layers", int)
    hidden = settings.take("encoder_ffn_dim", int)
    settings.must_be("decoder_attention_heads", heads, why="regard has one number of heads in encoder and decoder")
    settings.must_be("decoder_ffn_dim", hidden, why="regard has one width of the feed-forward nets")
    settings.must_be("num_hidden_layers", layers, why="it differs from encoder_layers")
    settings.must_be("num_attention_heads", heads, why="it differs from encoder_attention_heads")
    settings.must_be("hidden_size", dim, why="it differs from d_model")
    activation = settings.take("activation_function", str, "gelu")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{settings.path}: activation_function is {activation!r}, known: {', '.join(ACTIVATIONS)}")
    settings.must_be("static_position_embeddings", True)
    settings.must_be("normalize_before", False)
    settings.must_be("normalize_embedding", False)
    settings.must_be("add_final_layer_norm", False)
    settings.must_be("add_bias_logits", False)
    settings.must_be("tie_word_embeddings", True)
    settings.ignore("encoder_layerdrop", "decoder_layerdrop", "dropout", "activation_dropout", "init_std")
    settings.ignore("classif_dropout", "classifier_dropout", "extra_pos_embeddings", "_num_labels", "tokenizer_class")
    context = settings.take("max_position_embeddings", int, 1024)
    shared = settings.take("share_encoder_decoder_embeddings", bool, True)
    source = settings.take("vocab_size", int)
    target = settings.take("decoder_vocab_size", int, source)
    if shared and target != source:
        raise ModelError(f"{settings.path}: decoder_vocab_size is {target}, and vocab_size, which it shares, {source}")
    if dim % 2:
        raise ModelError(f"{settings.path}: d_model is {dim}, and regard implements sinusoids of an even width")
    config = TransformerConfig.from_dict(
        {
            "source_vocabulary": source,
            "target_vocabulary": target,
            "layers": layers,
            "decoder_layers": decoder_layers,
            "dim": dim,
            "heads": heads,
            "hidden": hidden,
            "activation": ACTIVATIONS[activation],
            "norm_eps": None if positions == "hf" else 1e-6,
            "order": "post",
            "position": "sinusoidal",
            "position_layout": "halves",
            "position_base": 10000.0 if positions == "hf" else original_base(dim),
            "scale_embedding": settings.take("scale_embedding", bool, False),
            "share_embeddings": shared,
            "tie_output": True,
            "output_bias": True,
            "dropout": 0.0,
            **tokens.settings(min(source, target)),
        }
    )
    if shared:
        tables = [Row("source.embedding.weight", (Part("shared.weight", source),))]
        copies = {"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"}
        copies |= {"lm_head.weight": "shared.weight"}
    else:
        tables = [
            Row("source.embedding.weight", (Part("encoder.embed_tokens.weight", source),)),
            Row("target.embedding.weight", (Part("decoder.embed_tokens.weight", target),)),
        ]
        copies = {"lm_head.weight": "decoder.embed_tokens.weight"}
    rows = [*tables, Row("output_bias", (Part("final_logits_bias", target),), in_row=True)]
    return Plan(
        config, [*rows, *block_rows(config)], "model.", UNUSED, copies, context, tokens.notes,
        excluded=tokens.barred if tokens.renormalized else (),
    )  # fmt: skip


def block_rows(config: TransformerConfig) -> list[Row]:
    """Return the rows of all blocks, whose names are those of BART and what followed it."""
    rows = []
    for stack, layers in config.stacks.items():
        for i in range(layers):
            ours, theirs = f"{stack}.blocks.{i}", f"{stack}.layers.{i}"
            rows += _attention(f"{ours}.self_attention", f"{theirs}.self_attn", config.dim)
            rows += linear_rows(f"{ours}.self_norm", f"{theirs}.self_attn_layer_norm", config.dim)
            if stack == "decoder":
                rows += _attention(f"{ours}.cross_attention", f"{theirs}.encoder_attn", config.dim)
                rows += linear_rows(f"{ours}.cross_norm", f"{theirs}.encoder_attn_layer_norm", config.dim)
            rows += linear_rows(f"{ours}.feed_forward.up", f"{theirs}.fc1", config.hidden)
            rows += linear_rows(f"{ours}.feed_forward.down", f"{theirs}.fc2", config.dim)
            rows += linear_rows(f"{ours}.feed_norm", f"{theirs}.final_layer_norm", config.dim)
    return rows


def _attention(ours: str, theirs: str, dim: int) -> list[Row]:
    stacked = [
        Row(f"{ours}.input.{what}", tuple(Part(f"{theirs}.{name}_proj.{what}", dim) for name in "qkv"))
        for what in ("weight", "bias")
    ]
    return [*stacked, *linear_rows(f"{ours}.output", f"{theirs}.out_proj", dim)]
