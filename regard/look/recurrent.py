"""What a recurrent net computes along a text: its gates and states, its predictions, how far back its gradients reach.

C1, C2, C3, C4. The gates come from the equations of the cell (`regard.layers.cells`), step by step.

    T tokens   D input width   H hidden width   k distance back from the last token
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.decoding.model_step import evaluating
from regard.errors import DataError, UsageError
from regard.layers.cells import Weights, gru_gates, lstm_gates
from regard.layers.recurrent import GRU, LSTM, RNN
from regard.layers.time_loop import State, layer_weights
from regard.models.language_model import RecurrentLM
from regard.models.recurrent.translator import RecurrentTranslator
from regard.text.tokenizers.special_tokens import START

MAX_GRADIENT_STEPS = 80
TOP = 6  # predictions for each step
QUANTITIES = {"lstm": ("i", "f", "g", "o", "c", "h"), "gru": ("r", "z", "n", "h"), "rnn": ("h",)}


@dataclass(frozen=True)
class LayerValues:
    """The gates and states of one layer in one direction, each (T, H), by their letters in the equations."""

    layer: int
    backwards: bool
    values: dict[str, Tensor]


@dataclass(frozen=True)
class RecurrentStates:
    """What a recurrent model computed for a text."""

    cell: str  # "rnn", "gru" or "lstm"
    tokens: list[str]  # T
    layers: list[LayerValues]
    predictions: list[list[tuple[str, float]]]  # of a language model: after each token, the most probable next ones
    gradients: list[float]  # norm of d h_T / d x_{T-k} by k; empty if the net also reads backwards
    vector: Tensor | None  # of an encoder-decoder: the last state (H,), with which its decoder starts
    output: str | None  # of an encoder-decoder: its translation


def cell_values(layer: RNN | GRU | LSTM, x: Tensor) -> list[LayerValues]:
    """Return the gates and states of all layers for one sequence x (T, D), from the zero state; C1."""
    directions = ("", "_reverse") if layer.bidirectional else ("",)
    recorded = []
    for depth in range(layer.num_layers):
        outputs = []
        for suffix in directions:
            values = _direction_values(layer, x, layer_weights(layer, f"l{depth}{suffix}"), bool(suffix))
            recorded.append(LayerValues(depth, bool(suffix), values))
            outputs.append(values["h"])
        x = torch.cat(outputs, dim=-1)  # (T, R·H), the input of the next layer
    return recorded


def recurrent_states(face: Any, text: str) -> RecurrentStates:
    """Run a recurrent language model or translator on a text; the first token of a language model is the start token.

    `face` is what `regard.load` returns: a Writer with a model of kind "rnn-lm", or a Translator with a recurrent one.
    """
    model = face.model
    if isinstance(model, RecurrentLM):
        tokenizer, ids = face.tokenizer, [START, *face.tokenizer.encode(text)]
    elif isinstance(model, RecurrentTranslator):
        tokenizer, ids = face.source_tokenizer, list(face.read(text).ids)
    else:
        raise UsageError(f"a model of kind {model.config.kind!r} has no recurrent layers to look into")
    if not text.strip():
        raise DataError("there is nothing to read: the text is empty")
    reader = model if isinstance(model, RecurrentLM) else model.encoder
    tokens = torch.tensor(ids, device=next(model.parameters()).device)
    with evaluating(model), torch.no_grad():
        x = reader.embedding(tokens)  # (T, D)
        layers = cell_values(reader.rnn, x)
        gradients = [] if reader.rnn.bidirectional else _gradient_norms(reader.rnn, x)
        predictions, vector, output = [], None, None
        if isinstance(model, RecurrentLM):
            predictions = _predictions(tokenizer, model.project(layers[-1].values["h"]))
        else:
            vector = _last_state(layers, model.config.layers - 1)
            output = face.translate(text, beam=1).text
    pieces = tokenizer.pieces(ids)
    return RecurrentStates(model.config.cell, pieces, layers, predictions, gradients, vector, output)


def _direction_values(layer: RNN | GRU | LSTM, x: Tensor, weights: Weights, backwards: bool) -> dict[str, Tensor]:
    """Return the gates and states of one layer in one direction, each (T, H)."""
    zeros = x.new_zeros(layer.hidden_size)
    state: State = (zeros, zeros) if isinstance(layer, LSTM) else (zeros,)
    steps: dict[int, dict[str, Tensor]] = {}
    for t in reversed(range(len(x))) if backwards else range(len(x)):
        gates = _gates(layer, x[t], state[0], weights)
        _, state = layer.step(x[t], state, weights)
        steps[t] = {**gates, **dict(zip(("h", "c"), state, strict=False))}
    names = QUANTITIES["rnn" if isinstance(layer, RNN) else layer.mode.lower()]
    return {name: torch.stack([steps[t][name] for t in range(len(x))]) for name in names}


def _gates(layer: RNN | GRU | LSTM, x: Tensor, h: Tensor, weights: Weights) -> dict[str, Tensor]:
    if isinstance(layer, LSTM):
        return dict(zip("ifgo", lstm_gates(x, h, weights), strict=True))
    return dict(zip("rzn", gru_gates(x, h, weights), strict=True)) if isinstance(layer, GRU) else {}


def _predictions(tokenizer: Any, logits: Tensor) -> list[list[tuple[str, float]]]:
    """Return the most probable next tokens of each step from logits (T, V); C2."""
    probabilities, tokens = logits.double().softmax(-1).topk(min(TOP, logits.shape[-1]))
    return [
        list(zip(tokenizer.pieces(row), p, strict=True))
        for row, p in zip(tokens.tolist(), probabilities.tolist(), strict=True)
    ]


def _last_state(layers: list[LayerValues], depth: int) -> Tensor:
    """Return the state after the last token; a backward direction ends at the first token. C4."""
    return torch.cat([one.values["h"][0 if one.backwards else -1] for one in layers if one.layer == depth])


def _gradient_norms(layer: RNN | GRU | LSTM, x: Tensor) -> list[float]:
    """Return the norms of d h_T / d x_{T-k} over the last tokens of a text; C3."""
    from regard.look.pictures.gradients import gradient_norms

    near, rest = x[-MAX_GRADIENT_STEPS:], x[:-MAX_GRADIENT_STEPS]
    start = layer(rest[None])[1] if len(rest) else None

    def network(copies: Tensor) -> Tensor:
        rows = len(copies)
        state = None if start is None else _expand(start, rows)
        return layer(copies, state)[0]

    with torch.enable_grad():
        return gradient_norms(network, near, outputs=layer.hidden_size).tolist()


def _expand(state: Any, rows: int) -> Any:
    """Repeat a state (L, 1, H), or a pair of them, for so many rows."""
    if isinstance(state, tuple):
        return tuple(_expand(part, rows) for part in state)
    return state.expand(-1, rows, -1).contiguous()
