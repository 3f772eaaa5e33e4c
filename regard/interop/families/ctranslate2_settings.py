"""The settings of a model in model.bin of CTranslate2, from its attributes and the shapes of its weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.errors import ModelError, UsageError
from regard.interop.families import ctranslate2 as names
from regard.interop.files.ctranslate2_file import CTranslate2File
from regard.interop.weight_table import Part, Row
from regard.machine.lazy_torch import torch
from regard.models.config import TransformerConfig, TransformerLMConfig
from regard.models.folder.config_file import shortened
from regard.positions.sinusoids import sinusoidal

NEVER = -6e4  # the output of a token that the model never writes; float16 can store it


def with_zero_start(rows: list[Row], biased: bool) -> list[Row]:
    """Return the rows with a start token of zeros behind the tokens of the file; the model never writes it."""
    changed = []
    for row in rows:
        if row.ours == "output_bias":
            count = row.parts[0].rows - 1
            first = row.parts[0]._replace(rows=count) if biased else Part(None, count)
            row = replace(row, parts=(first, Part(None, 1, value=NEVER)))
        elif row.ours in ("source.embedding.weight", "target.embedding.weight", "output.weight"):
            row = replace(row, parts=(row.parts[0]._replace(rows=row.parts[0].rows - 1), Part(None, 1)))
        changed.append(row)
    return changed


def read_config(
    file: CTranslate2File, vocabularies: list[list[str]], special: dict[str, Any], eps: float | None, crossed: bool
) -> Any:
    """Return the config whose attributes and weights are those of the file."""
    attributes = {name: file.scalar(name) for name, array in file.arrays.items() if not array.shape}
    stack = "encoder" if crossed else "decoder"
    table = file.arrays.get(file.resolve(names.embeddings(stack)))
    first = f"{stack}/layer_0"
    needed = (
        f"{first}/ffn/linear_0/weight",
        f"{first}/ffn/layer_norm/gamma",
        f"{first}/self_attention/linear_1/weight",
    )
    known = file.arrays.keys() | file.aliases.keys()
    if table is None or len(table.shape) != 2 or not known.issuperset(needed):
        raise ModelError(f"{file.path}: the weights of the first layer, or the table of token vectors, are missing")
    unsupported = [name for name in known if name.endswith(UNSUPPORTED)]
    if unsupported:
        raise ModelError(f"{file.path}: regard does not import {shortened(min(unsupported))}")
    layers = {
        side: sum(f"{side}/layer_{i}/ffn/linear_0/weight" in known for i in range(1024))
        for side in ("encoder", "decoder")
    }
    gated = f"{first}/ffn/linear_0_noact/weight" in known
    activation = next(
        (ours for ours, code in names.ACTIVATIONS.items()
         if code == attributes.get(f"{stack}/activation", 0) and (ours in names.GATED) == gated), None,
    )  # fmt: skip
    if activation is None:
        raise ModelError(f"{file.path}: the activation {attributes.get(f'{stack}/activation')} is none that regard has")
    attention = f"{first}/self_attention"
    rms = f"{first}/ffn/layer_norm/beta" not in known
    heads, dim = int(attributes.get(f"{stack}/num_heads", 8)), table.shape[1]
    width = attributes.get(f"{attention}/head_dim")
    usual_eps = 1e-6 if rms else 1e-5
    bias = f"{first}/ffn/linear_1/bias" in known
    input_bias = f"{attention}/linear_0/bias" in known
    normalized = f"{attention}/q_norm/gamma" in known
    zero_start = bool(attributes.get("decoder/start_from_zero_embedding", 0))
    order = "pre" if attributes.get(f"{stack}/pre_norm", 1) else "post"
    settings: dict[str, Any] = {
        "layers": layers[stack],
        "dim": dim,
        "heads": heads,
        "kv_heads": attributes.get(f"{attention}/num_heads_kv"),
        "d_k": width,
        "d_v": width,
        "hidden": file.arrays[f"{first}/ffn/linear_0/weight"].shape[0],
        "activation": activation,
        "norm": "rms" if rms else "layer",
        "norm_eps": None if eps in (None, usual_eps) and not normalized else usual_eps if eps is None else eps,
        "order": order,
        "bias": bias,
        "qkv_bias": None if input_bias == bias else input_bias,
        "qk_norm": normalized,
        "input_norm": f"{stack}/layernorm_embedding/gamma" in known,
        "scale_embedding": _is_scaled(file, stack, dim),
        "tie_output": file.same("decoder/projection/weight", "decoder/embeddings/weight"),
        "output_bias": "decoder/projection/bias" in known or zero_start,
        "dropout": 0.0,
        **special,
        **_positions(file, stack, attributes),
    }
    if crossed:
        shared = file.same("decoder/embeddings/weight", "encoder/embeddings_0/weight")
        sizes = {"source_vocabulary": len(vocabularies[0]), "target_vocabulary": len(vocabularies[-1])}
        more = {"decoder_layers": layers["decoder"], "share_embeddings": shared, **sizes}
    else:
        more = {"vocabulary": len(vocabularies[0])}
    try:
        config = (TransformerConfig if crossed else TransformerLMConfig).from_dict({**settings, **more})
    except UsageError as error:
        raise ModelError(f"{file.path}: {shortened(error)}") from error
    _check_attributes(file, attributes, config)
    return config


UNSUPPORTED = (
    *("relative_position_keys", "relative_attention_bias", "relative_asymmetric_position_keys", "queries_scale"),
    *("weight_zero", "v_norm/gamma", "project_in/weight", "input_layer_norm/gamma", "memory_kv/weight"),
)
HARMLESS = (
    "start_from_zero_embedding",
    "alignment_layer",
    "alignment_heads",
    "max_position_embeddings",
    "original_max_position_embeddings",
)


def _is_scaled(file: CTranslate2File, stack: str, dim: int) -> bool:
    """Whether token vectors are multiplied by sqrt(dim); the file has a flag, or the factor itself."""
    name = f"{stack}/scale_embeddings"
    if name not in file.arrays:
        return True
    value = file.scalar(name)
    if file.arrays[name].dtype == "int8":
        return bool(value)
    if value != 1 and abs(value - dim**0.5) > 1e-4:
        raise ModelError(f"{file.path}: {name} is {value}, and regard multiplies by 1 or by {dim**0.5:.4f}")
    return value != 1


def _check_attributes(file: CTranslate2File, attributes: dict[str, Any], config: Any) -> None:
    """Raise ModelError if an attribute of the file is another one than the config has."""
    expected = names.attributes(config)
    for name, value in attributes.items():
        if name.endswith(HARMLESS):
            continue
        if name.endswith("/scale_embeddings"):
            value = int(_is_scaled(file, name.split("/")[0], config.dim))
        wanted = expected.get(name, (0, ""))[0]
        if abs(value - wanted) > 1e-6 * abs(wanted):
            raise ModelError(f"{file.path}: {shortened(name)} is {value}, and regard can import {wanted} only")


def _positions(file: CTranslate2File, stack: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the positions: rotary, sinusoids that the file has as a table, or learned."""
    attention = f"{stack}/layer_0/self_attention"
    table_name = f"{stack}/{names.ENCODINGS}"
    if f"{attention}/rotary_dim" in attributes:
        dim = file.arrays[file.resolve(names.embeddings(stack))].shape[1]
        width = attributes.get(f"{attention}/head_dim") or dim // int(attributes.get(f"{stack}/num_heads", 8))
        rotated = attributes[f"{attention}/rotary_dim"] or width
        layout = "interleaved" if attributes.get(f"{attention}/rotary_interleave", 1) else "halves"
        base = float(attributes.get(f"{attention}/rotary_base", 10000.0))
        return {"position": "rotary", "rope_layout": layout, "rope_base": base, "rope_fraction": rotated / width}
    if file.resolve(table_name) not in file.arrays:
        raise ModelError(f"{file.path}: the positions are missing: neither {table_name} nor rotary_dim is there")
    table = file.get(table_name).float()
    if not bool(table.any()):
        return {"position": "none"}
    rows, dim = table.shape
    pairs = dim // 2
    for exact in (10000.0, 10000.0 ** (pairs / max(pairs - 1, 1))):  # or the last frequency is 1 / 10000
        for layout in ("interleaved", "halves"):
            for start in (0, 1, 2):
                waves = sinusoidal(rows, dim, start=start, base=exact, layout=layout)  # type: ignore[arg-type]
                if torch.allclose(waves, table, atol=1e-3, rtol=0):
                    return {
                        "position": "sinusoidal",
                        "position_start": start,
                        "position_base": exact,
                        "position_layout": layout,
                    }
    return {"position": "learned", "max_length": rows}
