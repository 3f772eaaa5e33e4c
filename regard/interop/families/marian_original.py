"""Marian's own models: `.npz` files of a training, and the small `.bin` models of Firefox Translations (Bergamot).

Junczys-Dowmunt et al. 2018; Kim et al. 2019 (the decoders of the small models). The decoder starts with a zero vector,
for which the tables get one more row; it is padding, too, and is never chosen.
"""

from __future__ import annotations

from typing import NamedTuple

from regard.errors import ModelError
from regard.interop.families.family import Plan
from regard.interop.families.marian import original_base
from regard.interop.files.settings_file import SettingsFile
from regard.interop.weight_table import Part, Row, Shapes
from regard.models.config import TransformerConfig
from regard.models.folder.config_file import shortened

UNUSED = r".*_QuantMultA"  # the scales of inputs that are quantized with fixed ranges, which regard measures itself
ACTIVATIONS = {"relu": "relu", "swish": "silu"}
# Of other architectures than the Transformer, of the training, and what has an effect only with other options.
HARMLESS = (
    *("bert-train-type-embeddings", "bert-type-vocab-size", "bert-class-symbol", "bert-mask-symbol", "bert-sep-symbol"),
    *("dec-cell-base-depth", "dec-cell-high-depth", "dim-rnn", "enc-cell", "enc-cell-depth", "enc-type", "version"),
    *("bert-masking-fraction", "char-conv-filters-num", "char-conv-filters-widths", "char-highway", "char-stride"),
    *("transformer-aan-activation", "transformer-aan-depth", "transformer-aan-nogate", "transformer-dim-aan"),
    *("transformer-guided-alignment-layer", "ulr-dim-emb", "ulr-trainable-transformation", "separator-symbol"),
    *("factors-combine", "transformer-alibi-trainable", "transformer-train-position-embeddings", "skip"),
    *("ulr-keys-vectors", "ulr-query-vectors", "ulr-softmax-temperature", "ulr-dropout", "ulr-tunable"),
)


class Tokens(NamedTuple):
    """The special tokens of the vocabularies, which both sides number alike."""

    end: int
    unknown: int
    sizes: tuple[int, int]  # of the tables of vectors
    pad: int  # the row that is added, behind the larger table


def make_plan(settings: SettingsFile, tokens: Tokens, theirs: Shapes) -> Plan:
    """Return the plan of a model with these settings and weights."""
    settings.must_be("type", "transformer")
    dim, depth = settings.take("dim-emb", int), settings.take("enc-depth", int)
    hidden = settings.take("transformer-dim-ffn", int)
    activation = settings.take("transformer-ffn-activation", str, "swish")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{settings.path}: transformer-ffn-activation is {activation!r}, known: {list(ACTIVATIONS)}")
    decoder = settings.take("transformer-decoder-autoreg", str, "self-attention")
    if decoder not in ("self-attention", "rnn"):
        raise ModelError(f"{settings.path}: transformer-decoder-autoreg is {decoder!r}; regard has self-attention, rnn")
    cell = settings.take("dec-cell", str, "gru")
    if decoder == "rnn" and cell != "ssru":
        raise ModelError(f"{settings.path}: dec-cell is {cell!r}; of recurrent decoders, regard has ssru")
    settings.ignore("dim-vocabs")  # which says the sizes in `tokens`
    order, norms = _order(settings)
    _check_unused(settings, hidden)
    tied_all = settings.take("tied-embeddings-all", bool, False)
    shared = settings.take("tied-embeddings-src", bool, False) or tied_all
    tied = settings.take("tied-embeddings", bool, False) or tied_all
    biased = not settings.take("output-omit-bias", bool, False)
    if "Wpos" in theirs:
        raise ModelError(f"{settings.path}: the model has trained positions, which regard does not read of Marian")
    config = TransformerConfig.from_dict(
        {
            "source_vocabulary": tokens.pad + 1,
            "target_vocabulary": tokens.pad + 1,
            "layers": depth,
            "decoder_layers": settings.take("dec-depth", int),
            "dim": dim,
            "heads": settings.take("transformer-heads", int),
            "hidden": hidden,
            "activation": ACTIVATIONS[activation],
            "norm_eps": 1e-6,
            "order": order,
            "position": "sinusoidal",
            "position_layout": "halves",
            "position_base": original_base(dim),
            "input_norm": norms,
            "share_embeddings": shared,
            "tie_output": tied,
            "output_bias": biased,
            "decoder_self": "ssru" if decoder == "rnn" else "attention",
            "dropout": 0.0,
            "pad_id": tokens.pad,
            "unknown_id": tokens.unknown,
            "start_id": tokens.pad,
            "end_ids": (tokens.end,),
            "barred_ids": (tokens.pad, tokens.unknown),  # Marian writes no unknown token unless it is allowed
        }
    )
    if dim % 2:
        raise ModelError(f"{settings.path}: dim-emb is {dim}, and regard implements sinusoids of an even width")
    rows = [*_ends(config, tokens, theirs), *(row for stack in config.stacks for row in _stack(config, stack))]
    return Plan(config, rows, "", UNUSED, excluded=range(tokens.sizes[1], tokens.pad + 1) if biased else ())


def _order(settings: SettingsFile) -> tuple[str, bool]:
    """Return the order of the norms, and whether the input has one; dropout, `d`, acts only in training."""
    letters = {
        key: settings.take(f"transformer-{key}", str, usual).replace("d", "")
        for key, usual in (
            *(("preprocess", ""), ("postprocess", "dan")),
            *(("postprocess-emb", "d"), ("postprocess-top", "")),
        )
    }
    orders = {("", "an", ""): "post", ("n", "a", "n"): "pre"}
    order = orders.get((letters["preprocess"], letters["postprocess"], letters["postprocess-top"]))
    if order is None or letters["postprocess-emb"] not in ("", "n"):
        raise ModelError(
            f"{settings.path}: transformer-preprocess, -postprocess, -postprocess-top and -postprocess-emb are "
            f"{shortened(list(letters.values()))} without dropout; regard has ['', 'an', ''] (post-norm) and "
            "['n', 'a', 'n'] (pre-norm), with '' or 'n' for the input"
        )
    return order, letters["postprocess-emb"] == "n"


def _check_unused(settings: SettingsFile, hidden: int) -> None:
    """Refuse the options that regard does not implement."""
    for key in (
        *("transformer-no-projection", "transformer-pool", "transformer-rnn-projection", "layer-normalization"),
        *("transformer-no-affine", "transformer-no-bias", "transformer-disable-position-embeddings", "right-left"),
        *("ulr", "transformer-alibi-shift", "transformer-depth-scaling", "transformer-train-positions"),
    ):
        settings.must_be(key, False)
    settings.must_be("transformer-tied-layers", [])
    settings.must_be("input-types", [])
    settings.must_be("transformer-ffn-depth", 2)
    settings.must_be("transformer-decoder-ffn-depth", 0, 2)
    settings.must_be("transformer-decoder-dim-ffn", 0, hidden)
    settings.must_be("transformer-attention-mask", "default")
    settings.must_be("lemma-dim-emb", 0)
    settings.must_be("lemma-dependency", "")
    settings.must_be("factors-dim-emb", 0)
    settings.must_be("original-type", "transformer")
    settings.ignore(*HARMLESS)


def _ends(config: TransformerConfig, tokens: Tokens, theirs: Shapes) -> list[Row]:
    """Return the rows of the tables, of their norms, and of the output."""
    source, target = tokens.sizes

    def parts(name: str, rows: int) -> tuple[Part, Part]:
        return Part(name, rows), Part(None, tokens.pad + 1 - rows)

    def table(ours: str, name: str, rows: int) -> Row:
        return Row(ours, parts(name, rows))

    rows = [table("source.embedding.weight", "Wemb" if config.share_embeddings else "encoder_Wemb", source)]
    if not config.share_embeddings:
        rows.append(table("target.embedding.weight", "decoder_Wemb", target))
    if not config.tie_output:
        whole = "decoder_ff_logit_out_Wt" in theirs
        name = "decoder_ff_logit_out_Wt" if whole else "decoder_ff_logit_out_W"
        rows.append(Row("output.weight", parts(name, target), transposed=not whole))
    if config.output_bias:
        rows.append(Row("output_bias", parts("decoder_ff_logit_out_b", target), in_row=True))
    for ours, stack in (("source", "encoder"), ("target", "decoder")):
        if config.input_norm:
            rows += _norm(f"{ours}.norm", f"{stack}_emb_ln", config.dim, "_pre")
        if config.order == "pre":
            rows += _norm(f"{stack}.norm", f"{stack}_top_ln", config.dim, "")
    return rows


def _stack(config: TransformerConfig, stack: str) -> list[Row]:
    rows: list[Row] = []
    norm_suffix = "_pre" if config.order == "pre" else ""
    dim, hidden = config.dim, config.hidden
    for i in range(config.stacks[stack]):
        ours, theirs = f"{stack}.blocks.{i}", f"{stack}_l{i + 1}"
        if stack == "decoder" and config.decoder_self == "ssru":
            rows.append(Row(f"{ours}.self_attention.input.weight", (Part(f"{theirs}_rnn_W", dim),), transposed=True))
            rows += _linear(f"{ours}.self_attention.forget", f"{theirs}_rnn_", "f", dim)
            rows += _norm(f"{ours}.self_norm", f"{theirs}_rnn_ffn_ln", dim, norm_suffix)
        else:
            rows += _attention(f"{ours}.self_attention", f"{theirs}_self", dim)
            rows += _norm(f"{ours}.self_norm", f"{theirs}_self_Wo_ln", dim, norm_suffix)
        if stack == "decoder":
            rows += _attention(f"{ours}.cross_attention", f"{theirs}_context", dim)
            rows += _norm(f"{ours}.cross_norm", f"{theirs}_context_Wo_ln", dim, norm_suffix)
        rows += _linear(f"{ours}.feed_forward.up", f"{theirs}_ffn_", "1", hidden)
        rows += _linear(f"{ours}.feed_forward.down", f"{theirs}_ffn_", "2", dim)
        rows += _norm(f"{ours}.feed_norm", f"{theirs}_ffn_ffn_ln", dim, norm_suffix)
    return rows


def _attention(ours: str, theirs: str, dim: int) -> list[Row]:
    matrices, biases = (tuple(Part(f"{theirs}_{kind}{x}", dim) for x in "qkv") for kind in "Wb")
    return [
        Row(f"{ours}.input.weight", matrices, transposed=True),
        Row(f"{ours}.input.bias", biases, in_row=True),
        *_linear(f"{ours}.output", f"{theirs}_", "o", dim),
    ]


def _linear(ours: str, theirs: str, name: str, rows: int) -> list[Row]:
    return [
        Row(f"{ours}.weight", (Part(f"{theirs}W{name}", rows),), transposed=True),
        Row(f"{ours}.bias", (Part(f"{theirs}b{name}", rows),), in_row=True),
    ]


def _norm(ours: str, theirs: str, dim: int, suffix: str) -> list[Row]:
    return [
        Row(f"{ours}.weight", (Part(f"{theirs}_scale{suffix}", dim),), in_row=True),
        Row(f"{ours}.bias", (Part(f"{theirs}_bias{suffix}", dim),), in_row=True),
    ]
