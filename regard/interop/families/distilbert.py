"""DistilBERT: BERT with half the layers and without segment vectors.

Sanh et al. 2019.
"""

from __future__ import annotations

from regard.errors import ModelError
from regard.interop.families.bert import ACTIVATIONS
from regard.interop.families.family import Plan, TokenIds, check_common
from regard.interop.files.settings_file import SettingsFile
from regard.interop.weight_table import Part, Row
from regard.models.config import EncoderConfig

ARCHITECTURES = ("DistilBertModel", "DistilBertForMaskedLM")
UNUSED = r"vocab_(transform|layer_norm|projector)\..*|embeddings\.position_ids"  # the head of the training, a buffer


def make_plan(settings: SettingsFile, tokens: TokenIds) -> Plan:
    """Return the plan of an encoder with these settings, config.json."""
    settings.ignore("model_type")
    settings.must_be("is_decoder", False, why="it would attend to earlier tokens only")
    check_common(settings, ARCHITECTURES)
    dim, layers, hidden = settings.take("dim", int), settings.take("n_layers", int), settings.take("hidden_dim", int)
    vocabulary, positions = settings.take("vocab_size", int), settings.take("max_position_embeddings", int)
    activation = settings.take("activation", str, "gelu")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{settings.path}: activation is {activation!r}, known: {', '.join(ACTIVATIONS)}")
    if tokens.pad is None:
        raise ModelError(f"{settings.path}: there is no pad_token_id, which an encoder needs")
    settings.ignore("dropout", "qa_dropout", "seq_classif_dropout", "tie_weights_", "tie_word_embeddings")
    settings.ignore("sinusoidal_pos_embds")  # positions are stored as weights, also if they were sinusoids
    config = EncoderConfig.from_dict(
        {
            "vocabulary": vocabulary,
            "layers": layers,
            "dim": dim,
            "heads": settings.take("n_heads", int),
            "hidden": hidden,
            "activation": ACTIVATIONS[activation],
            "norm_eps": 1e-12,
            "order": "post",
            "position": "learned",
            "max_length": positions,
            "input_norm": True,
            "scale_embedding": False,
            "dropout": 0.0,
            **tokens.settings(vocabulary),
        }
    )
    rows = [
        Row("input.embedding.weight", (Part("embeddings.word_embeddings.weight", vocabulary),)),
        Row("input.position.table", (Part("embeddings.position_embeddings.weight", positions),)),
        *_both("input.norm", "embeddings.LayerNorm", dim),
    ]
    for i in range(layers):
        ours, theirs = f"encoder.blocks.{i}", f"transformer.layer.{i}"
        stacked = [f"{theirs}.attention.{name}_lin" for name in "qkv"]
        rows += [
            *(
                Row(f"{ours}.self_attention.input.{what}", tuple(Part(f"{name}.{what}", dim) for name in stacked))
                for what in ("weight", "bias")
            ),
            *_both(f"{ours}.self_attention.output", f"{theirs}.attention.out_lin", dim),
            *_both(f"{ours}.self_norm", f"{theirs}.sa_layer_norm", dim),
            *_both(f"{ours}.feed_forward.up", f"{theirs}.ffn.lin1", hidden),
            *_both(f"{ours}.feed_forward.down", f"{theirs}.ffn.lin2", dim),
            *_both(f"{ours}.feed_norm", f"{theirs}.output_layer_norm", dim),
        ]
    return Plan(config, rows, "distilbert.", UNUSED, context=positions)


def _both(ours: str, theirs: str, rows: int) -> list[Row]:
    return [Row(f"{ours}.{what}", (Part(f"{theirs}.{what}", rows),)) for what in ("weight", "bias")]
