"""From a model and a text to a trace: every model, every way of searching, or led along a given text.

H4. A search is watched (decoding/observer.py), and then the model reads what was found once more, in one pass, which
gives its weights and what it thought of each token.

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
from regard.decoding.engine import longest_text
from regard.decoding.ensemble import Ensemble
from regard.decoding.forced import forced_attention
from regard.decoding.model_step import encode, evaluating, log_probabilities
from regard.decoding.searches.search import Search
from regard.errors import DataError, UsageError
from regard.look.heads.interventions import Off, heads_off
from regard.look.trace.from_weights import causal_mask, group_layers, map_of
from regard.look.trace.model_run import Face, Reading, Watcher, make_reading, write_text
from regard.look.trace.queries_keys_values import group_vectors, record_vectors
from regard.look.trace.search_observers import BeamWatcher, Drawn, SampleWatcher
from regard.look.trace.search_steps import Candidate, Step
from regard.look.trace.trace import Axis, Head, Map, Model, Token, Trace
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START, UNKNOWN
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
    """What a model does with a text: a Translator translates it, a Writer goes on with it, an Embedder reads it.

    `search` is a translator's beam or a writer's sample when not given; with `target` the model is led along a given
    text instead. `prefix` is what the output shall begin with. Both are given as text or as tokens. Steps have the
    `top` likeliest tokens and the chosen one. The heads of `off`, (map, layer, head) each, are switched off
    (`heads_off`); `vectors` brings the queries, keys and values along. The text is taken whole, and what the search
    finds is left as it is: this is `Translator.translate` with guard=False.
    """
    with heads_off(face.model, off):
        trace = _traced(face, text, search, target, prefix, max_tokens, top, name, vectors)
    notes = tuple(f"Head {head} of layer {layer} of {which} is switched off." for which, layer, head in off)
    return replace(trace, notes=(*trace.notes, *notes))


def _traced(
    face: Face, text: str, search: Search | None, target: str | Sequence[int] | None, prefix: str | Sequence[int],
    max_tokens: int | None, top: int, name: str | None, vectors: bool,
) -> Trace:  # fmt: skip
    model = face.model
    if not hasattr(model, "project"):
        if any(option is not None for option in (search, target, max_tokens)) or prefix:
            raise UsageError("this model only reads, so search, target, prefix and max_tokens mean nothing to it")
        return _trace_encoder(face, text, name or model.config.kind, vectors)
    if top < 1:
        raise UsageError(f"top must be at least 1, got {top}")
    reading = make_reading(face, text, prefix, max_tokens)
    source, tokenizer = reading.source, reading.tokenizer
    search, ids, watcher = write_text(reading, search, target, max_tokens)
    output, words = _written(face, text, tokenizer, ids)
    # What the decoder has read is one behind what it writes.
    read = None if words is None else [Word(one.text, one.start + 1, one.end + 1) for one in words]
    axes = {"target": make_axis(tokenizer, ids, words), "read": make_axis(tokenizer, [START, *ids[:-1]], read)}
    if source is not None:
        axes = {"source": make_axis(face.source_tokenizer, source, reading.words), **axes}
    maps = _forced_maps(reading, ids, vectors)
    return Trace(
        model=describe_model(model.config, name or model.config.kind),
        axes=axes,
        maps=maps,
        steps=_steps(reading, ids, top, watcher, forced=target is not None),
        tree=watcher.tree(ids[len(reading.given) :]) if isinstance(watcher, BeamWatcher) else None,
        source=None if source is None else text,
        output=output,
        search={"name": "forced"} if search is None else _settings(search),
        best_head=_best_head(face, maps),
        notes=_notes(model, maps),
    )


def _written(face: Face, text: str, tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[Word] | None]:
    """The text of the tokens; and its words, where a translator put names in the place of unknown ones."""
    if UNKNOWN in ids and hasattr(face, "name_words"):
        output, words = face.name_words(face.read(text), ids)
        return output, words
    written = [token for token in ids if token != END]
    return tokenizer.decode(written, unknown=[SPECIAL_TOKENS[UNKNOWN]] * len(written)), None


def make_axis(tokenizer: Tokenizer, ids: Sequence[int], words: Sequence[Word] | None = None) -> Axis:
    """The tokens with the words that they make; `words` where their texts are known better."""
    words = tokenizer.words(ids) if words is None else words
    owner = {i: number for number, word in enumerate(words) for i in range(word.start, word.end)}
    return Axis(
        tuple(
            Token(piece, owner.get(i), special=token in (PAD, START, END), pad=token == PAD)
            for i, (token, piece) in enumerate(zip(ids, tokenizer.pieces(ids), strict=True))
        ),
        tuple(word.text for word in words),
    )


def describe_model(config: Any, name: str) -> Model:
    """What a trace says of a model with these settings."""
    stacks = {"transformer-lm": ["decoder"], "rnn-lm": ["decoder"], "encoder": ["encoder"]}
    layers = dict.fromkeys(stacks.get(config.kind, ["encoder", "decoder"]), config.layers)
    if getattr(config, "decoder_layers", None):
        layers["decoder"] = config.decoder_layers
    if not hasattr(config, "cell"):
        width = config.dim // config.heads
        widths = {"model": config.dim, "head": width, "hidden": config.hidden}
        return Model(name, config.kind, layers, config.heads, widths, "scaled", 1 / math.sqrt(width))
    score = getattr(config, "attention", "none")
    widths = {"embedding": config.embedding, "hidden": config.hidden}
    if score == "none":
        return Model(name, config.kind, layers, 0, widths)
    scale = {"dot": 1.0, "bilinear": 1.0, "scaled": 1 / math.sqrt(config.hidden)}.get(score)
    return Model(name, config.kind, layers, 1, widths, score, scale)


def _forced_maps(reading: Reading, ids: Sequence[int], vectors: bool) -> dict[str, Map]:
    """All weights of the model led along the text, with queries, keys and values if wanted."""
    model = reading.model
    prefix = [] if reading.source is not None else [START]
    with record_vectors(model, vectors) as seen:
        layers = forced_attention(model, reading.source, ids, prefix=prefix)
    made = {}
    for kind, weights in group_layers(layers).items():
        m, n = weights.shape[2:]
        query, key = {"enc_self": ("source", "source"), "dec_self": ("target", "read")}.get(kind, ("target", "source"))
        mask = causal_mask(m, n) if kind == "dec_self" else None
        estimated = has_features(model, kind)
        made[kind] = Map(query, key, weights, mask=mask, random_features=estimated, **group_vectors(seen, kind))
    return made


def has_features(model: Any, kind: str) -> bool:
    """Whether weights of that map are estimates by random features, of some heads at least."""
    config: Any = (model.models[0] if isinstance(model, Ensemble) else model).config
    layers = [layer for layer in getattr(config, "attention_layers", ()) if map_of(layer) == kind]
    return any(len(config.exact_heads_of(layer)) < config.heads for layer in layers)


@torch.inference_mode()
def _steps(reading: Reading, ids: Sequence[int], top: int, watcher: Watcher, *, forced: bool) -> tuple[Step, ...]:
    """What the model thought of each token of the text."""
    model, before = reading.model, len(reading.given)
    read = torch.tensor([[START, *ids[:-1]]], device=next(model.parameters()).device)  # (1, m)
    steps = []
    with evaluating(model):
        hidden = model.decode(read) if reading.source is None else model.decode(read, encode(model, [reading.source]))
        for i, chosen in enumerate(ids):  # one by one: all of (m, V) can be a lot
            logps = log_probabilities(model.project(hidden[:, i : i + 1]))[0, 0].double().log_softmax(-1).cpu()  # (V,)
            given = forced or i < before
            drawn = watcher.drawn[i - before] if isinstance(watcher, SampleWatcher) and not given else None
            steps.append(_step(reading.tokenizer, logps, chosen, top, given, drawn))
    return tuple(steps)


def _step(tokenizer: Tokenizer, logps: Tensor, chosen: int, top: int, given: bool, drawn: Drawn | None) -> Step:
    tokens = logps.topk(min(top, len(logps))).indices.tolist()
    tokens += [] if chosen in tokens else [chosen]
    parts = {} if drawn is None else {t: (drawn.low[t].item(), drawn.high[t].item()) for t in tokens}
    candidates = tuple(
        Candidate(token, text, logps[token].item(), *parts.get(token, ()))
        for token, text in zip(tokens, tokenizer.pieces(tokens), strict=True)
    )
    rest = max(0.0, 1.0 - logps[tokens].exp().sum().item())
    entropy = max(0.0, -torch.xlogy(logps.exp(), logps.exp()).sum().item())
    return Step(chosen, candidates, rest, entropy, given, None if drawn is None else drawn.draw)


def _trace_encoder(face: Face, text: str, name: str, vectors: bool) -> Trace:
    """An encoder writes nothing: where it looks is all that there is."""
    model, tokenizer = face.model, face.tokenizer
    ids = [*tokenizer.encode(text), END]
    if (places := longest_text(model)) is not None and len(ids) > places:
        raise DataError(f"a text of {len(ids)} tokens, and the model has places for {places}: shorten it")
    with torch.no_grad(), evaluating(model), record(model) as maps, record_vectors(model, vectors) as seen:
        encode(model, [ids])
    layers = group_layers({layer: weights[0] for layer, weights in maps.items()})
    return Trace(
        model=describe_model(model.config, name),
        axes={"source": make_axis(tokenizer, ids)},
        maps={
            kind: Map(
                "source", "source", weights, random_features=has_features(model, kind), **group_vectors(seen, kind)
            )
            for kind, weights in layers.items()
        },
        source=text,
        notes=("This model writes no text, so there are no steps.",),
    )


def _settings(search: Any) -> dict[str, str | int | float | bool | None]:
    """The search by name, with those of its settings that are plain values."""
    settings = vars(search) if dataclasses.is_dataclass(search) else {}
    plain = {name: value for name, value in settings.items() if isinstance(value, str | int | float | None)}
    return {"name": type(search).__name__.lower(), **plain}


def _best_head(face: Face, maps: Mapping[str, Map]) -> Head | None:
    if not maps.keys() & {"cross", "rnn"}:
        return None
    layer, head = face.alignment_head
    number = [int(part) for part in layer.split(".") if part.isdigit()]
    return Head(number[0] if number else 0, head)


def _notes(model: Any, maps: Mapping[str, Map]) -> tuple[str, ...]:
    if not maps:
        return (f"A model of kind {model.config.kind!r} has no attention, so there are steps but no maps.",)
    if isinstance(model, Ensemble):
        return ("The steps are those of all models of the ensemble, the maps those of the first.",)
    if any(one.random_features for one in maps.values()):
        return ("Weights by random features are estimates: the model sums keys up and never computes single ones.",)
    return ()
