"""T5, T5 1.1 and Flan-T5: text to text.

Raffel et al. 2020: pre-norm blocks with RMSNorm and without biases; the distance of two tokens chooses a number that is
added to their score, the same numbers in all layers of a stack. Scores are not divided by the root of the width, which
is put into W_Q here.
"""

from __future__ import annotations

import math

from regard.errors import ModelError
from regard.interop.families.family import Plan, check_common
from regard.interop.files.settings_file import SettingsFile
from regard.interop.translator_tokens import TranslatorTokens
from regard.interop.weight_table import Part, Row, Shapes
from regard.models.config import TransformerConfig

ARCHITECTURES = ("T5ForConditionalGeneration", "T5WithLMHeadModel")
UNUSED = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"  # of old files
ACTIVATIONS = {"relu": "relu", "gated-gelu": "geglu-tanh", "gelu_new": "gelu-tanh", "gelu": "gelu"}
BUCKETS, MAX_DISTANCE = 32, 128


def make_plan(settings: SettingsFile, tokens: TranslatorTokens, theirs: Shapes) -> Plan:
    """Return the plan of a model with these settings, config.json, and weights: they show what the settings do not.

    transformers writes `tie_word_embeddings: true` even where the output has a matrix of its own.
    """
    settings.ignore("model_type")
    check_common(settings, ARCHITECTURES, encoder_decoder=True)
    dim, heads, width = settings.take("d_model", int), settings.take("num_heads", int), settings.take("d_kv", int)
    layers, hidden = settings.take("num_layers", int), settings.take("d_ff", int)
    feed = settings.take("feed_forward_proj", str, "relu")
    if feed not in ACTIVATIONS:
        raise ModelError(f"{settings.path}: feed_forward_proj is {feed!r}, known: {', '.join(ACTIVATIONS)}")
    gated = feed.startswith("gated-")
    settings.must_be("is_gated_act", gated, why="it contradicts feed_forward_proj")
    settings.must_be(
        "dense_act_fn", *(("gelu_new", "gelu") if gated else (feed,)), why="it contradicts feed_forward_proj"
    )
    settings.must_be("relative_attention_num_buckets", BUCKETS)
    settings.must_be("relative_attention_max_distance", MAX_DISTANCE)
    settings.ignore("dropout_rate", "initializer_factor", "classifier_dropout", "n_positions", "output_past")
    vocabulary = settings.take("vocab_size", int)
    tie = settings.take("tie_word_embeddings", bool, True)
    tied = "lm_head.weight" not in theirs
    scaled = settings.take("scale_decoder_outputs", bool, tie)
    if heads < 1 or width < 1:
        raise ModelError(f"{settings.path}: num_heads and d_kv must be positive")
    config = TransformerConfig.from_dict(
        {
            "source_vocabulary": vocabulary,
            "target_vocabulary": vocabulary,
            "layers": layers,
            "decoder_layers": settings.take("num_decoder_layers", int, layers),
            "dim": dim,
            "heads": heads,
            "d_k": None if width * heads == dim else width,
            "d_v": None if width * heads == dim else width,
            "hidden": hidden,
            "activation": ACTIVATIONS[feed],
            "norm": "rms",
            "norm_eps": settings.take("layer_norm_epsilon", float, 1e-6),
            "order": "pre",
            "position": "t5",
            "bias": False,
            "scale_embedding": False,
            "share_embeddings": True,
            "tie_output": tied,
            "dropout": 0.0,
            **tokens.settings(vocabulary),
        }
    )
    last = 1 / math.sqrt(dim) if scaled else 1.0  # of the decoder's output: folded into its norm
    rows = [
        Row("source.embedding.weight", (Part("shared.weight", vocabulary),)),
        Row("encoder.norm.weight", (Part("encoder.final_layer_norm.weight", dim),)),
        Row("decoder.norm.weight", (Part("decoder.final_layer_norm.weight", dim, scale=last),)),
        *(row for stack in config.stacks for row in _stack(config, stack, gated)),
    ]
    if not tied:
        rows.append(Row("output.weight", (Part("lm_head.weight", vocabulary),)))
    copies = dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), "shared.weight")
    return Plan(config, rows, "", UNUSED, copies, None, tokens.notes)


def _stack(config: TransformerConfig, stack: str, gated: bool) -> list[Row]:
    table = Part(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", BUCKETS)
    rows = [Row(f"{stack}.blocks.0.self_attention.position.table", (table,))]
    for i in range(config.stacks[stack]):
        ours, theirs = f"{stack}.blocks.{i}", f"{stack}.block.{i}.layer"
        rows += _attention(config, f"{ours}.self_attention", f"{theirs}.0.SelfAttention")
        rows.append(_norm(config, f"{ours}.self_norm", f"{theirs}.0"))
        if stack == "decoder":
            rows += _attention(config, f"{ours}.cross_attention", f"{theirs}.1.EncDecAttention")
            rows.append(_norm(config, f"{ours}.cross_norm", f"{theirs}.1"))
        feed = f"{theirs}.{2 if stack == 'decoder' else 1}"
        names = ("wi_0", "wi_1") if gated else ("wi",)
        up = tuple(Part(f"{feed}.DenseReluDense.{name}.weight", config.hidden) for name in names)
        rows.append(Row(f"{ours}.feed_forward.up.weight", up))
        down = Part(f"{feed}.DenseReluDense.wo.weight", config.dim)
        rows += [Row(f"{ours}.feed_forward.down.weight", (down,)), _norm(config, f"{ours}.feed_norm", feed)]
    return rows


def _attention(config: TransformerConfig, ours: str, theirs: str) -> list[Row]:
    rows = config.heads * config.key_width
    scales = {"q": math.sqrt(config.key_width), "k": 1.0, "v": 1.0}
    parts = tuple(Part(f"{theirs}.{name}.weight", rows, scale=scale) for name, scale in scales.items())
    output = Part(f"{theirs}.o.weight", config.dim)
    return [Row(f"{ours}.input.weight", parts), Row(f"{ours}.output.weight", (output,))]


def _norm(config: TransformerConfig, ours: str, theirs: str) -> Row:
    return Row(f"{ours}.weight", (Part(f"{theirs}.layer_norm.weight", config.dim),))
