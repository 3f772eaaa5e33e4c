"""Inside a block: every number of the computation for one token, and how it is computed.

H4, E3, E4, D14. `worksheet.py` defines the boxes; `transformer_block.py` and `recurrent_step.py` fill them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.ensemble import Ensemble
from regard.decoding.model_step import encode, evaluating
from regard.decoding.searches.search import Search
from regard.errors import UsageError, unknown_name
from regard.look.inside.recurrent_step import write_step
from regard.look.inside.transformer_block import Put, Selection, write_block
from regard.look.inside.worksheet import Sheet
from regard.look.trace.model_run import Face, make_reading, write_text
from regard.look.trace.tracing import make_axis
from regard.models.config import StackConfig
from regard.models.protocols import Decoder
from regard.models.recurrent.translator import RecurrentTranslator
from regard.models.stack import TokenInput
from regard.positions.learned import Learned
from regard.positions.sinusoids import Sinusoidal
from regard.text.tokenizers.special_tokens import SpecialTokens, special_tokens_of
from regard.text.tokenizers.tokenizer import Tokenizer

EXACT = (torch.float32, torch.float64)


@torch.no_grad()
def inside_block(
    face: Face,
    text: str,
    *,
    stack: str,
    layer: int,
    token: int,
    head: int,
    target: str | None = None,
    search: Search | None = None,
) -> dict[str, Any]:
    """Return every number of one block for one token, as JSON data: the `boxes` in order and their `parameters`.

    `stack` is encoder or decoder. The input of a decoder is the output of a search, or `target`, after the start token;
    `token` is an index of that input. The last box is the output of the block. A recurrent translator with attention
    has a single block, its decoder.
    """
    model = _check_model(face.model)
    with evaluating(model):
        if stack == "encoder":
            if target is not None or search is not None:
                raise UsageError("an encoder generates no text: leave out target and search")
            sheet, tokens, source = _encoder(face, model, text, layer, token, head)
        elif stack == "decoder":
            sheet, tokens, source = _decoder(face, model, text, layer, token, head, target, search)
        else:
            raise UsageError(unknown_name("stack", stack, ("encoder", "decoder")))
    blocks = getattr(getattr(model, stack), "blocks", [None])
    return {
        "stack": stack, "layer": layer, "token": token, "head": head, "tokens": tokens, "source_tokens": source,
        "layers": len(blocks), "heads": getattr(model.config, "heads", 1), **sheet.to_dict(),
    }  # fmt: skip


def read_parameter(face: Face, name: str) -> NDArray[np.float32]:
    """Return a parameter of the model by its name."""
    parameters = dict(face.model.named_parameters())
    if name not in parameters:
        raise UsageError(unknown_name("parameter", name, tuple(parameters)))
    numbers: NDArray[np.float32] = parameters[name].detach().float().cpu().numpy()
    return numbers


def _check_model(model: Any) -> Any:
    """Return the model; UsageError if its numbers cannot be shown."""
    if isinstance(model, Ensemble):
        raise UsageError("an ensemble has several models: look inside one of them")
    if any(parameter.dtype not in EXACT for parameter in model.parameters()) or hasattr(model, "c_decoder"):
        raise UsageError("the weights of this model are rounded or packed: load it with dtype='float32' to look inside")
    return model


def _encoder(
    face: Face, model: Any, text: str, layer: int, token: int, head: int
) -> tuple[Sheet, list[Any], list[Any]]:
    if not (isinstance(model.config, StackConfig) and "encoder" in model.config.stacks):
        raise UsageError(f"a model of kind {model.config.kind!r} has no encoder made of blocks")
    if isinstance(model, Decoder):
        reading = make_reading(face, text)
        ids, tokenizer = list(reading.source or ()), face.source_tokenizer
        entry = face.model.source
    else:
        tokenizer, entry = face.tokenizer, model.input
        ids = (
            face.token_ids(text)
            if hasattr(face, "token_ids")
            else [*tokenizer.encode(text), special_tokens_of(model).end]
        )
    texts = _texts(tokenizer, ids)
    _check_indices(model.encoder.blocks, ids, model.config.heads, layer, token, head)
    sheet = Sheet(model)
    tokens = _row(model, ids)
    states = entry(tokens)
    for block in model.encoder.blocks[:layer]:
        states = block(states)
    x = _write_input(sheet, entry, tokens, states, layer, texts)
    write_block(sheet, model.encoder.blocks[layer], x, Selection(token, head, texts), causal=False)
    return sheet, _token_entries(tokenizer, ids, special_tokens_of(model)), []


def _decoder(
    face: Face, model: Any, text: str, layer: int, token: int, head: int, target: str | None, search: Search | None
) -> tuple[Sheet, list[Any], list[Any]]:
    recurrent = isinstance(model, RecurrentTranslator) and model.decoder.cross_attention is not None
    if not recurrent and not (isinstance(model.config, StackConfig) and "decoder" in model.config.stacks):
        raise UsageError(f"a model of kind {model.config.kind!r} has no block with attention to look inside")
    reading = make_reading(face, text)
    _, ids, _ = write_text(reading, search, target)
    read, source = [reading.start, *ids[:-1]], list(reading.source or ())
    texts = _texts(reading.tokenizer, read)
    special = special_tokens_of(model)
    axes = (
        _token_entries(reading.tokenizer, read, special),
        _token_entries(face.source_tokenizer, source, special) if source else [],
    )
    sheet, tokens = Sheet(model), _row(model, read)
    if recurrent:
        _check_indices([model.decoder], read, 1, layer, token, head)
        write_step(sheet, model, _row(model, source), tokens, token, _texts(face.source_tokenizer, source))
        return sheet, *axes
    _check_indices(model.decoder.blocks, read, model.config.heads, layer, token, head)
    entry = model.target if source else model.input
    encoded = encode(model, [source]) if source else None
    states = entry(tokens)
    for block in model.decoder.blocks[:layer]:
        states = block(states, causal=True, memory=None if encoded is None else encoded.states)
    x = _write_input(sheet, entry, tokens, states, layer, texts)
    memory, source_texts = None, _texts(face.source_tokenizer, source) if source else ()
    if encoded is not None:
        how = "output of the encoder"
        box = sheet.put("memory", "encoder output", encoded.states[0], how, {"op": "given"}, rows=source_texts)
        memory = Put(box, encoded.states[0])
    selection = Selection(token, head, texts, source_texts)
    write_block(sheet, model.decoder.blocks[layer], x, selection, causal=True, memory=memory)
    return sheet, *axes


def _write_input(
    sheet: Sheet, entry: TokenInput, tokens: Tensor, states: Tensor, layer: int, names: Sequence[str]
) -> Put:
    """Write the input of a block (n, p): embeddings plus positions, or the output of the block below."""
    x = states[0]
    if entry.norm is not None:
        raise UsageError("this model normalizes its input, which cannot be written out; the maps of a trace show it")
    if layer:
        return Put(sheet.put("x", "input", x, f"output of block {layer - 1}", {"op": "given"}, rows=names), x)
    table: Any = entry.embedding
    looked_up = table(tokens)[0]
    rule = {"op": "rows", "weight": sheet.name(table.weight), "rows": tokens[0].tolist(), "scale": table.factor}
    how = "E[token]" if table.factor == 1 else "E[token] · √p"
    if entry.position is None:
        return Put(sheet.put("x", "embeddings", looked_up, how, rule, rows=names), x)
    embeddings = sheet.put("embedding", "embeddings", looked_up, how, rule, rows=names)
    at = torch.arange(tokens.shape[1], device=tokens.device)
    appended = isinstance(entry.position, Learned) and entry.position.mode == "concat"
    # Concatenated positions are the columns after the token's.
    rows = x[:, looked_up.shape[1] :] if appended else entry.position.embed(torch.zeros_like(states), at)[0]
    how, rule = "PE[position]", {"op": "given"}
    if isinstance(entry.position, Learned):
        rule = {"op": "rows", "weight": sheet.name(entry.position.table), "rows": at.tolist(), "scale": 1.0}
    elif isinstance(entry.position, Sinusoidal):
        scheme = entry.position
        how = "sin, cos(position / base^(2i/p))"
        rule = {
            "op": "sinusoidal",
            "start": scheme.start,
            "base": scheme.base,
            "layout": scheme.layout,
            "first": scheme.first,
        }
    positions = sheet.put("position", "positions", rows, how, rule, rows=names)
    if appended:
        return Put(sheet.put("x", "input", x, "[E; PE], one behind the other", {"op": "given"}, rows=names), x)
    return Put(sheet.put("x", "input", x, "E + PE", {"op": "add", "of": [embeddings, positions]}, rows=names), x)


def _check_indices(blocks: Sequence[Any], ids: Sequence[int], heads: int, layer: int, token: int, head: int) -> None:
    for name, value, size in (("layer", layer, len(blocks)), ("token", token, len(ids)), ("head", head, heads)):
        if not 0 <= value < size:
            raise UsageError(f"{name} must be from 0 to {size - 1}, got {value}")


def _row(model: Any, ids: Sequence[int]) -> Tensor:
    return torch.tensor([ids], device=next(model.parameters()).device)


def _texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return list(tokenizer.pieces(ids))


def _token_entries(tokenizer: Tokenizer, ids: Sequence[int], special: SpecialTokens) -> list[dict[str, Any]]:
    axis = make_axis(tokenizer, ids, special=special)
    return [{"text": token.text, "special": token.special} for token in axis.tokens]
