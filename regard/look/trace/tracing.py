"""Trace a model on a text: any model, with any search or forced to write a given text.

H4. An observer records the search (decoding/searches/observer.py). Then the model processes the output once more, in
one forced pass that gives the attention weights and the probability of each token.

    m target tokens   n source tokens   V vocabulary
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.attention.recording.recorder import record
from regard.decoding.ensemble import Ensemble
from regard.decoding.forced import forced_attention
from regard.decoding.model_step import encode, evaluating, log_probabilities
from regard.decoding.requests import longest_text
from regard.decoding.searches.search import Search
from regard.errors import DataError, UsageError
from regard.look.heads.interventions import Off, heads_off
from regard.look.trace.attention_map import Map, unit_rows
from regard.look.trace.from_weights import causal_mask, group_layers, map_of
from regard.look.trace.model_run import Face, Reading, Watcher, make_reading, write_text
from regard.look.trace.queries_keys_values import group_vectors, record_vectors
from regard.look.trace.search_observers import BeamWatcher, Draw, SampleWatcher
from regard.look.trace.search_steps import Candidate, Step
from regard.look.trace.trace import Axis, Head, Model, Token, Trace
from regard.models.config import StackConfig
from regard.models.protocols import Decoder
from regard.text.tokenizers.special_tokens import DEFAULT, SPECIAL_TOKENS, UNKNOWN, SpecialTokens, special_tokens_of
from regard.text.tokenizers.tokenizer import Tokenizer, Word

TOP = 10


def trace_text(
    face: Face,
    text: str,
    *,
    search: Search | None = None,
    target: str | Sequence[int] | None = None,
    prefix: str | Sequence[int] = (),
    max_tokens: int | None = None,
    top: int = TOP,
    name: str | None = None,
    off: Sequence[Off] = (),
    vectors: bool = False,
) -> Trace:
    """Trace what a model does with a text: a Translator translates it, a Writer continues it, an Embedder encodes it.

    `search` defaults to beam search for a translator and to sampling for a writer; with `target` the model is forced to
    write that text instead. `prefix` is the beginning of the output. Both may be text or token ids. Each step has the
    `top` most probable tokens and the chosen one. The heads in `off`, each (map, layer, head), are switched off
    (`heads_off`). `vectors` adds the queries, keys and values. The text is not split and the output is not repaired, as
    in `Translator.translate` with guard=False.
    """
    with heads_off(face.model, off):
        trace = _make_trace(face, text, search, target, prefix, max_tokens, top, name, vectors)
    notes = tuple(f"Head {head} of layer {layer} of {which} is switched off." for which, layer, head in off)
    return replace(trace, notes=(*trace.notes, *notes))


def _make_trace(
    face: Face, text: str, search: Search | None, target: str | Sequence[int] | None, prefix: str | Sequence[int],
    max_tokens: int | None, top: int, name: str | None, vectors: bool,
) -> Trace:  # fmt: skip
    model = face.model
    if not isinstance(model, Decoder):
        if any(option is not None for option in (search, target, max_tokens)) or prefix:
            raise UsageError("this model generates no text: leave out search, target, prefix and max_tokens")
        return _trace_encoder(face, text, name or model.config.kind, vectors)
    if top < 1:
        raise UsageError(f"top must be at least 1, got {top}")
    reading = make_reading(face, text, prefix, max_tokens)
    source, tokenizer = reading.source, reading.tokenizer
    search, ids, watcher = write_text(reading, search, target, max_tokens)
    output, words = _output_text(face, text, tokenizer, ids)
    # The input of the decoder is its output, shifted by one.
    read = None if words is None else [Word(word.text, word.start + 1, word.end + 1) for word in words]
    special = special_tokens_of(model)
    axes = {
        "target": make_axis(tokenizer, ids, words, special),
        "read": make_axis(tokenizer, [reading.start, *ids[:-1]], read, special),
    }
    if source is not None:
        axes = {"source": make_axis(face.source_tokenizer, source, reading.words, special), **axes}
    layers, maps = _forced_maps(reading, ids, vectors)
    return Trace(
        model=describe_model(face.model.config, name or face.model.config.kind),
        axes=axes,
        maps=maps,
        steps=_steps(reading, ids, top, watcher, forced=target is not None),
        tree=watcher.tree(ids[len(reading.prefix) :]) if isinstance(watcher, BeamWatcher) else None,
        source=None if source is None else text,
        output=output,
        search={"name": "forced"} if search is None else _settings(search),
        best_head=_best_head(face, maps),
        alignment=_alignment(face, layers, ids, maps),
        notes=_notes(model, maps),
        sentences=tuple(reading.sentences),
    )


def _output_text(face: Face, text: str, tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[Word] | None]:
    """Return the text of the tokens, and its words if a translator has replaced unknown tokens by source words."""
    if hasattr(face, "name_words"):
        source = face.read(text)
        if special_tokens_of(face.model).unknown in ids or source.carried:
            output, words = face.name_words(source, ids)
            return output, words
    ends = special_tokens_of(face.model).ends
    tokens = [token for token in ids if token not in ends]
    return tokenizer.decode(tokens, unknown=[SPECIAL_TOKENS[UNKNOWN]] * len(tokens)), None


def make_axis(
    tokenizer: Tokenizer, ids: Sequence[int], words: Sequence[Word] | None = None, special: SpecialTokens = DEFAULT
) -> Axis:
    """Return the tokens and the words that they form; `words` overrides those of the tokenizer."""
    marks = {special.pad, special.start, *special.ends}
    words = tokenizer.words(ids) if words is None else words
    owner = {i: number for number, word in enumerate(words) for i in range(word.start, word.end)}
    return Axis(
        tuple(
            Token(piece, owner.get(i), special=token in marks, pad=token == special.pad)
            for i, (token, piece) in enumerate(zip(ids, tokenizer.pieces(ids), strict=True))
        ),
        tuple(word.text for word in words),
    )


def describe_model(config: Any, name: str) -> Model:
    """Return the description of a model for a trace, from its config."""
    layers = config.stacks
    if isinstance(config, StackConfig):
        width = config.key_width
        widths = {"model": config.dim, "head": width, "hidden": config.hidden}
        scale = {"dot": 1.0, "scaled": 1 / math.sqrt(width)}.get(config.score)
        return Model(name, config.kind, layers, config.heads, widths, config.score, scale)
    score = getattr(config, "attention", "none")
    embedding = {"embedding": config.embedding} if hasattr(config, "embedding") else {}
    widths = {**embedding, "hidden": config.width}
    if score == "none":
        return Model(name, config.kind, layers, 1 if config.cross_layers else 0, widths)
    scale = {"dot": 1.0, "bilinear": 1.0, "scaled": 1 / math.sqrt(config.hidden)}.get(score)
    return Model(name, config.kind, layers, 1, widths, score, scale)


def _forced_maps(reading: Reading, ids: Sequence[int], vectors: bool) -> tuple[dict[str, Tensor], dict[str, Map]]:
    """Return all weights of the model while it is forced to write the tokens: by layer, and as maps.

    The maps have vectors if requested.
    """
    model = reading.model
    prefix = [] if reading.source is not None else [reading.start]
    with record_vectors(model, vectors) as seen:
        layers = forced_attention(model, reading.source, ids, prefix=prefix)
    maps = {}
    for kind, weights in group_layers(layers).items():
        m, n = weights.shape[2:]
        query, key = {"enc_self": ("source", "source"), "dec_self": ("target", "read")}.get(kind, ("target", "source"))
        mask = causal_mask(m, n) if kind == "dec_self" else None
        estimated = has_features(model, kind)
        maps[kind] = Map(query, key, weights, mask=mask, random_features=estimated, **group_vectors(seen, kind))
    return layers, maps


def has_features(model: Any, kind: str) -> bool:
    """Return whether at least one head of a map uses random features, so that its weights are estimates."""
    config: Any = (model.models[0] if isinstance(model, Ensemble) else model).config
    layers = [layer for layer in getattr(config, "attention_layers", ()) if map_of(layer) == kind]
    return any(len(config.exact_heads_of(layer)) < config.heads for layer in layers)


@torch.inference_mode()
def _steps(reading: Reading, ids: Sequence[int], top: int, watcher: Watcher, *, forced: bool) -> tuple[Step, ...]:
    """Return the probabilities of the model at each token of the text."""
    model, prefix_length = reading.model, len(reading.prefix)
    read = torch.tensor([[reading.start, *ids[:-1]]], device=next(model.parameters()).device)  # (1, m)
    steps = []
    with evaluating(model):
        hidden = model.decode(read) if reading.source is None else model.decode(read, encode(model, [reading.source]))
        for i, chosen in enumerate(ids):  # one position at a time, because (m, V) may be large
            logps = log_probabilities(model.project(hidden[:, i : i + 1]))[0, 0].double().log_softmax(-1).cpu()  # (V,)
            is_forced = forced or i < prefix_length
            draw = watcher.draws[i - prefix_length] if isinstance(watcher, SampleWatcher) and not is_forced else None
            steps.append(_step(reading.tokenizer, logps, chosen, top, is_forced, draw))
    return tuple(steps)


def _step(tokenizer: Tokenizer, logps: Tensor, chosen: int, top: int, forced: bool, draw: Draw | None) -> Step:
    """Return the step of one token, with its candidates."""
    tokens = logps.topk(min(top, len(logps))).indices.tolist()
    tokens += [] if chosen in tokens else [chosen]
    intervals = {} if draw is None else {t: (draw.low[t].item(), draw.high[t].item()) for t in tokens}
    candidates = tuple(
        Candidate(token, text, logps[token].item(), *intervals.get(token, ()))
        for token, text in zip(tokens, tokenizer.pieces(tokens), strict=True)
    )
    rest = max(0.0, 1.0 - logps[tokens].exp().sum().item())
    entropy = max(0.0, -torch.xlogy(logps.exp(), logps.exp()).sum().item())
    return Step(chosen, candidates, rest, entropy, forced, None if draw is None else draw.number)


def _trace_encoder(face: Face, text: str, name: str, vectors: bool) -> Trace:
    """Trace an encoder, which has attention weights but generates no text."""
    model, tokenizer = face.model, face.tokenizer
    special = special_tokens_of(model)
    ids = face.token_ids(text) if hasattr(face, "token_ids") else [*tokenizer.encode(text), special.end]
    if (limit := longest_text(model)) is not None and len(ids) > limit:
        raise DataError(f"the text has {len(ids)} tokens, but the model has only {limit} positions: shorten it")
    with torch.no_grad(), evaluating(model), record(model) as maps, record_vectors(model, vectors) as seen:
        encode(model, [ids])
    layers = group_layers({layer: weights[0] for layer, weights in maps.items()})
    return Trace(
        model=describe_model(model.config, name),
        axes={"source": make_axis(tokenizer, ids, special=special)},
        maps={
            kind: Map(
                "source", "source", weights, random_features=has_features(model, kind), **group_vectors(seen, kind)
            )
            for kind, weights in layers.items()
        },
        source=text,
        notes=("This model generates no text, so there are no steps.",),
    )


def _settings(search: Any) -> dict[str, str | int | float | bool | None]:
    """Return the name of the search and its settings that are plain values."""
    settings = vars(search) if dataclasses.is_dataclass(search) else {}
    plain = {name: value for name, value in settings.items() if isinstance(value, str | int | float | None)}
    return {"name": type(search).__name__.lower(), **plain}


def _best_head(face: Face, maps: Mapping[str, Map]) -> Head | None:
    if not maps.keys() & {"cross", "rnn"} or "pointer" in maps:
        return None
    layer, head = face.alignment_head
    number = [int(part) for part in layer.split(".") if part.isdigit()]
    return Head(number[0] if number else 0, head)


def _alignment(face: Face, layers: Mapping[str, Tensor], ids: Sequence[int], maps: Mapping[str, Map]) -> Map | None:
    kind = next((kind for kind in ("cross", "rnn") if kind in maps), None)
    if kind is None or "pointer" in maps:
        return None
    estimated = maps[kind].random_features
    weights = face.alignment_weights(layers, ids).float().cpu().numpy()[None, None]  # [1, 1, m, n]
    # Rows of half precision sum to one only roughly; rows of random features need not sum to one.
    return Map("target", "source", weights if estimated else unit_rows(weights), random_features=estimated)


def _notes(model: Any, maps: Mapping[str, Map]) -> tuple[str, ...]:
    if not maps:
        return (f"A model of kind {model.config.kind!r} has no attention, so there are steps but no maps.",)
    if isinstance(model, Ensemble):
        return ("The steps are those of the whole ensemble, the maps those of its first model.",)
    if any(attention.random_features for attention in maps.values()):
        return (
            "Weights of random features are estimates: the model sums over the keys and never computes single weights.",
        )
    return ()
