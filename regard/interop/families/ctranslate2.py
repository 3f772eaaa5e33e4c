"""The names and attributes of a Transformer in model.bin of CTranslate2; one table serves import and export.

Names of theirs are paths, such as encoder/layer_0/self_attention/linear_0/weight. A number beside them, an attribute,
says how the layer computes.
"""

from __future__ import annotations

from regard.errors import UsageError
from regard.interop.supported_settings import unsupported
from regard.interop.weight_table import Part, Row
from regard.models.config import Config, EncoderConfig, TransformerConfig, TransformerLMConfig
from regard.models.config.stack import StackConfig

# The model's kind in the file, and the revision of its names.
KINDS: dict[type[Config], tuple[str, int]] = {
    TransformerConfig: ("TransformerSpec", 7),
    TransformerLMConfig: ("TransformerDecoderSpec", 8),
    EncoderConfig: ("TransformerEncoderSpec", 1),
}
ACTIVATIONS = {"relu": 0, "gelu-tanh": 1, "silu": 2, "gelu": 3, "swiglu": 2, "geglu-tanh": 1}
GATED = ("swiglu", "geglu-tanh")
ENCODINGS = "position_encodings/encodings"

Number = tuple[int | float, str]  # a value and its type


FREE = (
    *("kv_heads", "d_k", "d_v", "norm_eps", "position_start", "position_base", "position_layout", "frequency_start"),
    *("qk_norm", "bias", "qkv_bias", "input_norm", "scale_embedding", "rope_base", "rope_layout", "rope_fraction"),
    *("share_embeddings", "tie_output", "output_bias", "source_start", "pooling", "normalize"),
)
VALUES = {
    "activation": (*ACTIVATIONS,),
    "norm": ("layer", "rms"),
    "order": ("post", "pre"),
    "position": ("none", "sinusoidal", "learned", "rotary"),
}


def why_not(config: Config) -> str | None:
    """Return why CTranslate2 cannot compute a model with these settings; None if it can."""
    if type(config) not in KINDS or not isinstance(config, StackConfig):
        return f"CTranslate2 has no model of the kind {config.kind!r}"
    if setting := unsupported(config, free=FREE, values=VALUES):
        return f"CTranslate2 does not compute {setting}"
    if config.key_width != config.value_width:
        return "CTranslate2 has one width for the queries, keys and values of a head"
    if config.kv_heads not in (None, config.heads) and "encoder" in config.stacks:
        return "CTranslate2 shares keys between heads (kv_heads) in language models only"
    return None


def attributes(config: StackConfig) -> dict[str, Number]:
    """Return the attributes of a model, by name."""
    numbers: dict[str, Number] = {}
    for stack, layers in config.stacks.items():
        numbers |= {
            f"{stack}/num_heads": (config.heads, "int16"),
            f"{stack}/pre_norm": (int(config.order == "pre"), "int8"),
            f"{stack}/activation": (ACTIVATIONS[config.activation], "int8"),
            f"{stack}/scale_embeddings": (int(config.scale_embedding), "int8"),
        }
        if stack == "encoder":
            numbers["encoder/embeddings_merge"] = (0, "int8")
        else:
            numbers |= {f"decoder/{name}": (0, "int8") for name in DECODER_ZEROS}
            numbers |= {"decoder/alignment_layer": (-1, "int16"), "decoder/alignment_heads": (1, "int16")}
        for i in range(layers):
            layer = f"{stack}/layer_{i}"
            numbers |= _attention_attributes(config, f"{layer}/self_attention", rotary=config.position == "rotary")
            if stack == "decoder" and "encoder" in config.stacks:
                numbers |= _attention_attributes(config, f"{layer}/attention", rotary=False)
    return numbers


DECODER_ZEROS = ("alibi", "alibi_use_positive_positions", "scale_alibi", "start_from_zero_embedding")


def _attention_attributes(config: StackConfig, name: str, *, rotary: bool) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    if rotary:
        rotated = int(config.key_width * config.rope_fraction)
        numbers[f"{name}/rotary_dim"] = (rotated, "int32")
        numbers[f"{name}/rotary_interleave"] = (int(config.rope_layout == "interleaved"), "int8")
        numbers[f"{name}/rotary_base"] = (config.rope_base, "float32")
    if config.kv_heads not in (None, config.heads):
        numbers[f"{name}/num_heads_kv"] = (config.kv_heads or config.heads, "int32")
    if config.key_width * config.heads != config.dim:
        numbers[f"{name}/head_dim"] = (config.key_width, "int32")
    return numbers


def aliases(config: StackConfig) -> dict[str, str]:
    """Return the weights that are another weight."""
    names = {}
    if isinstance(config, TransformerConfig) and config.share_embeddings:
        names["decoder/embeddings/weight"] = "encoder/embeddings_0/weight"
    if getattr(config, "tie_output", False):
        table = "decoder/embeddings/weight"
        names["decoder/projection/weight"] = names.get(table, table)
    return names


def zeros(config: StackConfig) -> dict[str, int]:
    """Return the weights of theirs that ours lacks, which are zero, and their width.

    A normalization without a shift would be RMSNorm there.
    """
    if config.norm != "layer" or config.bias:
        return {}
    scales = [str(row.parts[0].name) for row in rows(config) if str(row.parts[0].name).endswith("/gamma")]
    return {name.removesuffix("gamma") + "beta": config.dim for name in scales}


def rows(config: StackConfig) -> list[Row]:
    """Return the table of weights."""
    table: list[Row] = []
    if isinstance(config, TransformerConfig):
        sides = {"encoder": ("source", config.source_vocabulary), "decoder": ("target", config.target_vocabulary)}
        if config.share_embeddings:
            del sides["decoder"]
    else:
        assert isinstance(config, TransformerLMConfig | EncoderConfig)
        sides = {next(iter(config.stacks)): ("input", config.vocabulary)}
    for stack, (ours, vocabulary) in sides.items():
        table.append(Row(f"{ours}.embedding.weight", (Part(embeddings(stack), vocabulary),)))
    for stack, layers in config.stacks.items():
        side = ("source" if stack == "encoder" else "target") if isinstance(config, TransformerConfig) else "input"
        if config.position == "learned":
            table.append(Row(f"{side}.position.table", (Part(f"{stack}/{ENCODINGS}", config.max_length),)))
        if config.input_norm:
            table += _norm(config, f"{side}.norm", f"{stack}/layernorm_embedding")
        if config.order == "pre":
            table += _norm(config, f"{stack}.norm", f"{stack}/layer_norm")
        for i in range(layers):
            table += _layer(config, stack, i)
    if "decoder" in config.stacks:
        assert isinstance(config, TransformerConfig | TransformerLMConfig)
        vocabulary = config.vocabularies[-1]
        if not config.tie_output:
            table.append(Row("output.weight", (Part("decoder/projection/weight", vocabulary),)))
        if config.output_bias:
            table.append(Row("output_bias", (Part("decoder/projection/bias", vocabulary),)))
    return table


def embeddings(stack: str) -> str:
    """Return the name of the table of token vectors."""
    return "encoder/embeddings_0/weight" if stack == "encoder" else "decoder/embeddings/weight"


def _layer(config: StackConfig, stack: str, i: int) -> list[Row]:
    ours, theirs = f"{stack}.blocks.{i}", f"{stack}/layer_{i}"
    d, groups = config.key_width, config.kv_heads or config.heads
    table = _attention(config, f"{ours}.self_attention", f"{theirs}/self_attention", [(config.heads + 2 * groups) * d])
    table += _norm(config, f"{ours}.self_norm", f"{theirs}/self_attention/layer_norm")
    if stack == "decoder" and "encoder" in config.stacks:
        parts = [config.heads * d, 2 * groups * d]
        table += _attention(config, f"{ours}.cross_attention", f"{theirs}/attention", parts)
        table += _norm(config, f"{ours}.cross_norm", f"{theirs}/attention/layer_norm")
    ups = ["linear_0", "linear_0_noact"] if config.activation in GATED else ["linear_0"]
    for what in ("weight", "bias") if config.bias else ("weight",):
        halves = tuple(Part(f"{theirs}/ffn/{name}/{what}", config.hidden) for name in ups)
        table.append(Row(f"{ours}.feed_forward.up.{what}", halves))
        table.append(Row(f"{ours}.feed_forward.down.{what}", (Part(f"{theirs}/ffn/linear_1/{what}", config.dim),)))
    return table + _norm(config, f"{ours}.feed_norm", f"{theirs}/ffn/layer_norm")


def _attention(config: StackConfig, ours: str, theirs: str, inputs: list[int]) -> list[Row]:
    """Return the rows of an attention layer whose input matrices have these numbers of rows."""
    input_bias = config.bias if config.qkv_bias is None else config.qkv_bias
    table = []
    for what in ("weight", "bias") if input_bias else ("weight",):
        parts = tuple(Part(f"{theirs}/linear_{number}/{what}", size) for number, size in enumerate(inputs))
        table.append(Row(f"{ours}.input.{what}", parts))
    for what in ("weight", "bias") if config.bias else ("weight",):
        table.append(Row(f"{ours}.output.{what}", (Part(f"{theirs}/linear_{len(inputs)}/{what}", config.dim),)))
    if config.qk_norm:
        table += [Row(f"{ours}.{x}_norm.weight", (Part(f"{theirs}/{x}_norm/gamma", config.key_width),)) for x in "qk"]
    return table


def _norm(config: StackConfig, ours: str, theirs: str) -> list[Row]:
    table = [Row(f"{ours}.weight", (Part(f"{theirs}/gamma", config.dim),))]
    if config.norm == "layer" and config.bias:
        table.append(Row(f"{ours}.bias", (Part(f"{theirs}/beta", config.dim),)))
    return table


def check(config: Config) -> StackConfig:
    """Return the config; UsageError if CTranslate2 cannot compute the model."""
    if reason := why_not(config):
        raise UsageError(f"{reason}; --to onnx takes every Transformer")
    assert isinstance(config, StackConfig)
    return config
