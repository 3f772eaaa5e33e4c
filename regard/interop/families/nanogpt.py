"""nanoGPT: GPT-2 with linear layers, the exact GELU, and biases only if wanted.

Karpathy 2022. Its settings are the `model_args` of ckpt.pt.
"""

from __future__ import annotations

from regard.interop.families.family import Plan, TokenIds
from regard.interop.files.settings_file import SettingsFile
from regard.interop.weight_table import Part, Row
from regard.models.config import TransformerLMConfig

PREFIX = "transformer."
COMPILED = "_orig_mod."  # that torch.compile puts before the names
UNUSED = r"h\.\d+\.attn\.bias"  # the causal mask
# The output of a token without a row of theirs: no text can end, and none ever does.
NEVER = -6e4


def make_plan(settings: SettingsFile, tokens: TokenIds, *, extra: int = 0) -> Plan:
    """Return the plan of a model; `extra` tokens follow its vocabulary, and the model never writes them."""
    dim, layers, heads = (settings.take(key, int) for key in ("n_embd", "n_layer", "n_head"))
    context, vocabulary = settings.take("block_size", int), settings.take("vocab_size", int)
    bias = settings.take("bias", bool, True)
    settings.ignore("dropout")
    settings.finish()
    config = TransformerLMConfig.from_dict(
        {
            "vocabulary": vocabulary + extra,
            "layers": layers,
            "dim": dim,
            "heads": heads,
            "hidden": 4 * dim,
            "activation": "gelu",
            "norm_eps": 1e-5,
            "order": "pre",
            "position": "learned",
            "max_length": context,
            "bias": bias,
            "scale_embedding": False,
            "tie_output": True,
            "output_bias": bool(extra),
            "dropout": 0.0,
            **tokens.settings(vocabulary + extra),
        }
    )
    more = (Part(None, extra),) if extra else ()
    rows = [
        Row("input.embedding.weight", (Part("wte.weight", vocabulary), *more)),
        Row("input.position.table", (Part("wpe.weight", context),)),
        *_both("decoder.norm", "ln_f", dim, bias),
    ]
    if extra:
        rows.append(Row("output_bias", (Part(None, vocabulary), Part(None, extra, value=NEVER))))
    for i in range(layers):
        ours, theirs = f"decoder.blocks.{i}", f"h.{i}"
        rows += [
            *_both(f"{ours}.self_norm", f"{theirs}.ln_1", dim, bias),
            *_both(f"{ours}.feed_norm", f"{theirs}.ln_2", dim, bias),
            *_both(f"{ours}.self_attention.input", f"{theirs}.attn.c_attn", 3 * dim, bias),
            *_both(f"{ours}.self_attention.output", f"{theirs}.attn.c_proj", dim, bias),
            *_both(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", 4 * dim, bias),
            *_both(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", dim, bias),
        ]
    return Plan(config, rows, PREFIX, UNUSED, {"lm_head.weight": "wte.weight"}, context)


def _both(ours: str, theirs: str, rows: int, bias: bool) -> list[Row]:
    return [Row(f"{ours}.{what}", (Part(f"{theirs}.{what}", rows),)) for what in ("weight", "bias")[: 1 + bias]]
