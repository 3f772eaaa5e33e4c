"""BERT, RoBERTa and XLM-RoBERTa, as encoders of sentences: MiniLM, BGE and other models of sentence-transformers.

Devlin et al. 2019: post-norm blocks with LayerNorm and GELU; token, position and segment vectors are added and
normalized. A single text is segment 0, so its vector becomes part of the positions.
"""

from __future__ import annotations

from regard.errors import ModelError
from regard.interop.families.family import Plan, TokenIds, check_common, linear_rows
from regard.interop.files.settings_file import SettingsFile
from regard.interop.weight_table import Part, Row
from regard.models.config import EncoderConfig

ARCHITECTURES = {
    "bert": ("BertModel", "BertForMaskedLM", "BertForPreTraining"),
    "roberta": ("RobertaModel", "RobertaForMaskedLM"),
    "xlm-roberta": ("XLMRobertaModel", "XLMRobertaForMaskedLM"),
}
UNUSED = r"pooler\..*|cls\..*|lm_head\..*|embeddings\.position_ids"  # heads of the training, and a buffer
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}


def make_plan(settings: SettingsFile, tokens: TokenIds) -> Plan:
    """Return the plan of an encoder with these settings, config.json."""
    kind = settings.take("model_type", str)
    settings.must_be("is_decoder", False, why="it would attend to earlier tokens only")
    check_common(settings, ARCHITECTURES[kind])
    dim, layers = settings.take("hidden_size", int), settings.take("num_hidden_layers", int)
    vocabulary, positions = settings.take("vocab_size", int), settings.take("max_position_embeddings", int)
    segments = settings.take("type_vocab_size", int, 2)
    activation = settings.take("hidden_act", str, "gelu")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{settings.path}: hidden_act is {activation!r}, known: {', '.join(ACTIVATIONS)}")
    if tokens.pad is None:
        raise ModelError(f"{settings.path}: there is no pad_token_id, which an encoder needs")
    settings.must_be("position_embedding_type", "absolute")
    settings.ignore("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "tie_word_embeddings")
    skipped = 0 if kind == "bert" else tokens.pad + 1  # RoBERTa's first position
    config = EncoderConfig.from_dict(
        {
            "vocabulary": vocabulary,
            "layers": layers,
            "dim": dim,
            "heads": settings.take("num_attention_heads", int),
            "hidden": settings.take("intermediate_size", int),
            "activation": ACTIVATIONS[activation],
            "norm_eps": settings.take("layer_norm_eps", float, 1e-12),
            "order": "post",
            "position": "learned",
            "max_length": positions - skipped,
            "input_norm": True,
            "scale_embedding": False,
            "dropout": 0.0,
            **tokens.settings(vocabulary),
        }
    )
    segment = Part("embeddings.token_type_embeddings.weight", segments)
    rows = [
        Row("input.embedding.weight", (Part("embeddings.word_embeddings.weight", vocabulary),)),
        Row(
            "input.position.table",
            (Part("embeddings.position_embeddings.weight", positions - skipped, skipped),),
            first_row_of=segment,
        ),
        *linear_rows("input.norm", "embeddings.LayerNorm", dim),
        *(row for i in range(layers) for row in _layer(config, i)),
    ]
    return Plan(config, rows, "bert." if kind == "bert" else "roberta.", UNUSED, context=positions - skipped)


def _layer(config: EncoderConfig, i: int) -> list[Row]:
    ours, theirs, dim = f"encoder.blocks.{i}", f"encoder.layer.{i}", config.dim
    stacked = ("query", "key", "value")
    return [
        *(
            Row(
                f"{ours}.self_attention.input.{what}",
                tuple(Part(f"{theirs}.attention.self.{name}.{what}", dim) for name in stacked),
            )
            for what in ("weight", "bias")
        ),
        *linear_rows(f"{ours}.self_attention.output", f"{theirs}.attention.output.dense", dim),
        *linear_rows(f"{ours}.self_norm", f"{theirs}.attention.output.LayerNorm", dim),
        *linear_rows(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense", config.hidden),
        *linear_rows(f"{ours}.feed_forward.down", f"{theirs}.output.dense", dim),
        *linear_rows(f"{ours}.feed_norm", f"{theirs}.output.LayerNorm", dim),
    ]
