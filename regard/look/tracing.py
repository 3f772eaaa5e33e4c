"""From a model and a text to a trace: every model, every way of searching, or led along a given text.

H4. A search is watched (decoding/observer.py), and then the model reads what was found once more, in one pass, which
gives its weights and what it thought of each token.

    m target tokens   n source tokens   V vocabulary
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.recording import record
from regard.decoding.beam import Beam
from regard.decoding.engine import generate_tokens, longest_text
from regard.decoding.ensemble import Ensemble
from regard.decoding.forced import forced_attention
from regard.decoding.phases import encode, evaluating, log_probabilities
from regard.decoding.sample import Sample
from regard.decoding.search import Search
from regard.errors import DataError, UsageError
from regard.look.recorded import causal_mask, group_layers
from regard.look.trace import Axis, Head, Map, Model, Token, Trace
from regard.look.trace_steps import Candidate, Step
from regard.look.watching import BeamWatcher, Drawn, SampleWatcher
from regard.text.special import END, PAD, SPECIAL_TOKENS, START, UNKNOWN
from regard.text.tokenizer import Tokenizer, Word

Face = Any  # a Translator, Writer or Embedder of regard.api, or whatever has their model, tokenizers and `read`
Watcher = BeamWatcher | SampleWatcher | None
TOP = 10
# How long a text may get when nobody says: a translation as in Translator.translate, others so that a map is legible.
TIMES, MORE, WRITTEN = 2, 20, 100


class Reading(NamedTuple):
    """A text on its way through a model that writes."""

    model: Any
    tokenizer: Tokenizer  # of what is written
    source: Sequence[int] | None
    given: list[int]  # what stands before the text that is searched for: a prompt, a prefix
    room: int  # for tokens after them
    places: int | None  # for all of them; None: any number


def trace_text(
    face: Face,
    text: str,
    *,
    search: Search | None = None,
    target: str | None = None,
    prefix: str | Sequence[int] = (),
    max_tokens: int | None = None,
    top: int = TOP,
    name: str | None = None,
) -> Trace:
    """What a model does with a text: a Translator translates it, a Writer goes on with it, an Embedder reads it.

    `search` is a translator's beam or a writer's sample when not given; with `target` the model is led along a given
    text instead. `prefix` is what the output shall begin with, as text or as tokens. Steps have the `top` likeliest
    tokens and the chosen one. The text is taken whole, and what the search finds is left as it is: this is
    `Translator.translate` with guard=False.
    """
    model = face.model
    if not hasattr(model, "project"):
        if any(option is not None for option in (search, target, max_tokens)) or prefix:
            raise UsageError("this model only reads, so search, target, prefix and max_tokens mean nothing to it")
        return _trace_encoder(face, text, name or model.config.kind)
    if target is not None and (search is not None or max_tokens is not None):
        raise UsageError("a model that is led along a target does not search: leave out search and max_tokens")
    if top < 1:
        raise UsageError(f"top must be at least 1, got {top}")
    source = _read_source(face, text) if hasattr(model, "encode") else None
    reading = _make_reading(face, text, None if source is None else source.ids, prefix, max_tokens)
    tokenizer = reading.tokenizer
    search = search or (Sample() if source is None else Beam())
    ids, watcher = _found(reading, search) if target is None else (_led(reading, target), None)
    axes = {"target": make_axis(tokenizer, ids), "read": make_axis(tokenizer, [START, *ids[:-1]])}
    if source is not None:
        axes = {"source": make_axis(face.source_tokenizer, source.ids, source.words), **axes}
    maps = _forced_maps(reading, ids)
    written = [token for token in ids if token != END]
    return Trace(
        model=describe_model(model.config, name or model.config.kind),
        axes=axes,
        maps=maps,
        steps=_steps(reading, ids, top, watcher, forced=target is not None),
        tree=watcher.tree(ids[len(reading.given) :]) if isinstance(watcher, BeamWatcher) else None,
        source=None if source is None else text,
        output=tokenizer.decode(written, unknown=[SPECIAL_TOKENS[UNKNOWN]] * len(written)),
        search=_settings(search) if target is None else {"name": "forced"},
        best_head=_best_head(face, maps),
        notes=_notes(model, maps),
    )


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


def _read_source(face: Face, text: str) -> Any:
    source = face.read(text)
    if not source.words:
        raise DataError("there is nothing to translate: the text holds no word")
    return source


def _make_reading(
    face: Face, text: str, source: Sequence[int] | None, prefix: str | Sequence[int], max_tokens: int | None
) -> Reading:
    tokenizer = face.tokenizer if source is None else face.target_tokenizer
    given = list(tokenizer.encode(prefix) if isinstance(prefix, str) else prefix)
    if wrong := [token for token in given if not 0 <= token < tokenizer.size]:
        raise UsageError(f"the prefix holds the token {wrong[0]}, and the model's are 0 to {tokenizer.size - 1}")
    if source is None:
        given = [*tokenizer.encode(text), *given]
        room = WRITTEN if max_tokens is None else max_tokens
        places = None if face.context is None else face.context - 1  # as Writer.write
    else:
        room = TIMES * len(source) + MORE if max_tokens is None else max_tokens
        places = longest_text(face.model)
    if max_tokens is not None and max_tokens < 1:
        raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
    if places is not None and len(given) >= places:
        raise DataError(f"{len(given)} tokens stand before the text, and the model has places for {places}: shorten it")
    room = room if places is None else min(room, places - len(given))
    return Reading(face.model, tokenizer, source, given, room, places)


def _found(reading: Reading, search: Search) -> tuple[list[int], Watcher]:
    """The tokens of the text that a search finds, given ones first, and who watched it."""
    watcher: Watcher = None
    if isinstance(search, Beam):
        watcher = BeamWatcher(search, reading.tokenizer)
    elif isinstance(search, Sample):
        watcher = SampleWatcher(reading.tokenizer.size)
    ((found, *_),) = generate_tokens(
        reading.model,
        None if reading.source is None else [reading.source],
        search=search,
        # What a translator reads first, START, is its own; a language model reads what it is given.
        prefixes=[reading.given if reading.source is not None else [START, *reading.given]],
        max_tokens=reading.room,
        observer=watcher,
    )
    return [*reading.given, *found.tokens], watcher


def _led(reading: Reading, target: str) -> list[int]:
    """The tokens of a text that is given."""
    ids = [*reading.given, *reading.tokenizer.encode(target), *([] if reading.source is None else [END])]
    if len(ids) == len(reading.given):
        raise UsageError("the target holds no token: there is nothing to lead the model along")
    if reading.places is not None and len(ids) > reading.places:
        raise DataError(f"a text of {len(ids)} tokens, and the model has places for {reading.places}: shorten it")
    return ids


def _forced_maps(reading: Reading, ids: Sequence[int]) -> dict[str, Map]:
    """All weights of the model led along the text."""
    model = reading.model
    prefix = [] if reading.source is not None else [START]
    made = {}
    for kind, weights in group_layers(forced_attention(model, reading.source, ids, prefix=prefix)).items():
        m, n = weights.shape[2:]
        query, key = {"enc_self": ("source", "source"), "dec_self": ("target", "read")}.get(kind, ("target", "source"))
        made[kind] = Map(query, key, weights, mask=causal_mask(m, n) if kind == "dec_self" else None)
    return made


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


def _trace_encoder(face: Face, text: str, name: str) -> Trace:
    """An encoder writes nothing: where it looks is all that there is."""
    model, tokenizer = face.model, face.tokenizer
    ids = [*tokenizer.encode(text), END]
    if (places := longest_text(model)) is not None and len(ids) > places:
        raise DataError(f"a text of {len(ids)} tokens, and the model has places for {places}: shorten it")
    with torch.no_grad(), evaluating(model), record(model) as maps:
        encode(model, [ids])
    layers = group_layers({layer: weights[0] for layer, weights in maps.items()})
    return Trace(
        model=describe_model(model.config, name),
        axes={"source": make_axis(tokenizer, ids)},
        maps={kind: Map("source", "source", weights) for kind, weights in layers.items()},
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
    return ()
