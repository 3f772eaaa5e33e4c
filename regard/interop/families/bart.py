"""M2M100, NLLB, mBART and mBART-50: translators between many languages.

Fan et al. 2021 (M2M100); NLLB Team 2022; Liu et al. 2020 (mBART); Tang et al. 2021 (mBART-50). Pre-norm blocks and one
table of vectors. M2M100 and NLLB have sinusoids that count from 2, mBART learned positions and a norm of the input.
"""

from __future__ import annotations

from regard.errors import ModelError
from regard.interop.families.family import Plan, check_common, linear_rows
from regard.interop.families.marian import ACTIVATIONS, block_rows, original_base
from regard.interop.files.settings_file import SettingsFile
from regard.interop.translator_tokens import TranslatorTokens
from regard.interop.weight_table import Part, Row
from regard.models.config import TransformerConfig

ARCHITECTURES = {
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Model"),
    "mbart": ("MBartForConditionalGeneration", "MBartModel"),
}
UNUSED = {"m2m_100": r"(encoder|decoder)\.embed_positions\.weights?", "mbart": ""}  # sinusoids
OFFSET = 2  # rows of learned positions, and numbers of sinusoids, before the first position


def make_plan(settings: SettingsFile, tokens: TranslatorTokens) -> Plan:
    """Return the plan of a model with these settings, config.json."""
    kind = settings.take("model_type", str)
    check_common(settings, ARCHITECTURES[kind], encoder_decoder=True)
    dim, heads = settings.take("d_model", int), settings.take("encoder_attention_heads", int)
    layers, hidden = settings.take("encoder_layers", int), settings.take("encoder_ffn_dim", int)
    settings.must_be("decoder_attention_heads", heads, why="regard has one number of heads in encoder and decoder")
    settings.must_be("decoder_ffn_dim", hidden, why="regard has one width of the feed-forward nets")
    for key, same in (("num_hidden_layers", layers), ("num_attention_heads", heads), ("hidden_size", dim)):
        settings.must_be(key, same, why="it differs from the same number under another name")
    activation = settings.take("activation_function", str, "relu" if kind == "m2m_100" else "gelu")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{settings.path}: activation_function is {activation!r}, known: {', '.join(ACTIVATIONS)}")
    learned = kind == "mbart"
    settings.must_be("static_position_embeddings", not learned)
    settings.must_be("normalize_before", True)
    settings.must_be("normalize_embedding", learned)
    settings.must_be("add_final_layer_norm", True)
    settings.must_be("add_bias_logits", False)
    settings.must_be("extra_pos_embeddings", OFFSET)
    settings.must_be("tie_word_embeddings", True)
    settings.must_be("pad_token_id", 1)  # on which their positions depend
    settings.ignore("encoder_layerdrop", "decoder_layerdrop", "dropout", "activation_dropout", "init_std")
    settings.ignore("classif_dropout", "classifier_dropout", "_num_labels")
    positions, vocabulary = settings.take("max_position_embeddings", int), settings.take("vocab_size", int)
    config = TransformerConfig.from_dict(
        {
            "source_vocabulary": vocabulary,
            "target_vocabulary": vocabulary,
            "layers": layers,
            "decoder_layers": settings.take("decoder_layers", int),
            "dim": dim,
            "heads": heads,
            "hidden": hidden,
            "activation": ACTIVATIONS[activation],
            "order": "pre",
            **(
                {"position": "learned", "max_length": positions, "input_norm": True, "output_bias": True}
                if learned
                else {
                    "position": "sinusoidal",
                    "position_layout": "halves",
                    "position_base": original_base(dim),
                    "position_start": OFFSET,
                }
            ),
            "scale_embedding": settings.take("scale_embedding", bool, not learned),
            "share_embeddings": True,
            "tie_output": True,
            "dropout": 0.0,
            **tokens.settings(vocabulary),
        }
    )
    rows = [Row("source.embedding.weight", (Part("shared.weight", vocabulary),)), *block_rows(config)]
    for ours, stack in (("source", "encoder"), ("target", "decoder")):
        rows += linear_rows(f"{stack}.norm", f"{stack}.layer_norm", dim)
        if learned:
            table = Part(f"{stack}.embed_positions.weight", positions, skipped=OFFSET)
            rows += [Row(f"{ours}.position.table", (table,))]
            rows += linear_rows(f"{ours}.norm", f"{stack}.layernorm_embedding", dim)
    if learned:
        rows.append(Row("output_bias", (Part("final_logits_bias", vocabulary),), in_row=True))
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    excluded = tokens.barred if tokens.renormalized and learned else ()
    copies = dict.fromkeys(names, "shared.weight")
    return Plan(config, rows, "model.", UNUSED[kind], copies, positions, tokens.notes, excluded)
