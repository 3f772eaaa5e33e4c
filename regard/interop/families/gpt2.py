"""GPT-2 and what shares its form, such as DistilGPT-2.

Radford et al. 2019: pre-norm blocks with LayerNorm, GELU and learned positions; the output layer is the table.
"""

from __future__ import annotations

from regard.errors import ModelError
from regard.interop.families.family import Plan, TokenIds, check_common
from regard.interop.files.settings_file import SettingsFile
from regard.interop.weight_table import Part, Row
from regard.models.config import TransformerLMConfig

ARCHITECTURES = ("GPT2LMHeadModel", "GPT2Model")
UNUSED = r"h\.\d+\.attn\.(bias|masked_bias)"  # the causal mask
ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def make_plan(settings: SettingsFile, tokens: TokenIds) -> Plan:
    """Return the plan of a model with these settings, config.json."""
    settings.ignore("model_type")
    check_common(settings, ARCHITECTURES)
    dim, layers = settings.take("n_embd", int), settings.take("n_layer", int)
    positions, vocabulary = settings.take("n_positions", int), settings.take("vocab_size", int)
    settings.must_be("n_ctx", positions, why="it differs from n_positions")
    activation = settings.take("activation_function", str, "gelu_new")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{settings.path}: activation_function is {activation!r}, known: {', '.join(ACTIVATIONS)}")
    settings.must_be("scale_attn_weights", True)
    settings.must_be("scale_attn_by_inverse_layer_idx", False)
    settings.must_be("reorder_and_upcast_attn", False)
    settings.ignore(
        *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout")
    )
    tied = settings.take("tie_word_embeddings", bool, True)
    config = TransformerLMConfig.from_dict(
        {
            "vocabulary": vocabulary,
            "layers": layers,
            "dim": dim,
            "heads": settings.take("n_head", int),
            "hidden": settings.take("n_inner", int, 4 * dim),
            "activation": ACTIVATIONS[activation],
            "norm_eps": settings.take("layer_norm_epsilon", float, 1e-5),
            "order": "pre",
            "position": "learned",
            "max_length": positions,
            "scale_embedding": False,
            "tie_output": tied,
            "dropout": 0.0,
            **tokens.settings(vocabulary),
        }
    )
    rows = [
        Row("input.embedding.weight", (Part("wte.weight", vocabulary),)),
        Row("input.position.table", (Part("wpe.weight", positions),)),
        *_both("decoder.norm", "ln_f", dim),
        *(row for i in range(layers) for row in _layer(config, i)),
    ]
    if not tied:
        rows.append(Row("output.weight", (Part("lm_head.weight", vocabulary),)))
    return Plan(
        config, rows, "transformer.", UNUSED, {"lm_head.weight": "wte.weight"} if tied else {}, positions
    )  # fmt: skip


def _layer(config: TransformerLMConfig, i: int) -> list[Row]:
    ours, theirs, dim = f"decoder.blocks.{i}", f"h.{i}", config.dim
    return [
        *_both(f"{ours}.self_norm", f"{theirs}.ln_1", dim),
        *_both(f"{ours}.feed_norm", f"{theirs}.ln_2", dim),
        *_both(f"{ours}.self_attention.input", f"{theirs}.attn.c_attn", 3 * dim, transposed=True),
        *_both(f"{ours}.self_attention.output", f"{theirs}.attn.c_proj", dim, transposed=True),
        *_both(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", config.hidden, transposed=True),
        *_both(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", dim, transposed=True),
    ]


def _both(ours: str, theirs: str, rows: int, *, transposed: bool = False) -> list[Row]:
    """Return the rows of a weight and a bias; GPT-2 stores its matrices as (i, o)."""
    return [
        Row(f"{ours}.weight", (Part(f"{theirs}.weight", rows),), transposed),
        Row(f"{ours}.bias", (Part(f"{theirs}.bias", rows),)),
    ]
