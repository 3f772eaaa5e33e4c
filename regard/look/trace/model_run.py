"""A text on its way through a model that writes: what it reads, and what a search or a given target makes it write.

E7, E8, E10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from regard.decoding.engine import generate_tokens, longest_text
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Search
from regard.errors import DataError, UsageError
from regard.look.trace.search_observers import BeamWatcher, SampleWatcher
from regard.models.protocols import Encoder
from regard.text.tokenizers.special_tokens import END, START
from regard.text.tokenizers.tokenizer import Tokenizer, Word

Face = Any  # a Translator, Writer or Embedder of regard.api, or whatever has their model, tokenizers and `read`
Watcher = BeamWatcher | SampleWatcher | None
# How long a text may get when nobody says: a translation as in Translator.translate, others so that a map is legible.
TIMES, MORE, WRITTEN = 2, 20, 100


class Reading(NamedTuple):
    """What is there before a model writes."""

    model: Any
    tokenizer: Tokenizer  # of what is written
    source: Sequence[int] | None
    words: Sequence[Word] | None  # of the source
    given: list[int]  # what stands before the text that is searched for: a prompt, a prefix
    room: int  # for tokens after them
    places: int | None  # for all of them; None: any number


def make_reading(face: Face, text: str, prefix: str | Sequence[int] = (), max_tokens: int | None = None) -> Reading:
    """A translator reads the text as its source, a language model as the beginning of what it writes."""
    if max_tokens is not None and max_tokens < 1:
        raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
    source = _read_source(face, text) if isinstance(face.model, Encoder) else None
    tokenizer = face.tokenizer if source is None else face.target_tokenizer
    given = list(tokenizer.encode(prefix) if isinstance(prefix, str) else prefix)
    _check_tokens("prefix", given, tokenizer)
    if END in given[:-1]:
        raise UsageError("the prefix goes on after the end token: leave out what follows it")
    if source is None:
        given = [*tokenizer.encode(text), *given]
        room = WRITTEN if max_tokens is None else max_tokens
        places = None if face.context is None else face.context - 1  # as Writer.write
    else:
        room = TIMES * len(source.ids) + MORE if max_tokens is None else max_tokens
        places = longest_text(face.model)
    if places is not None and len(given) >= places:
        raise DataError(f"{len(given)} tokens stand before the text, and the model has places for {places}: shorten it")
    room = room if places is None else min(room, places - len(given))
    ids, words = (None, None) if source is None else (source.ids, source.words)
    return Reading(face.model, tokenizer, ids, words, given, room, places)


def write_text(
    reading: Reading, search: Search | None, target: str | Sequence[int] | None, max_tokens: int | None = None
) -> tuple[Search | None, list[int], Watcher]:
    """The tokens of the text, given ones first, with the search that found them, if any, and who watched it.

    Without a target it is searched for: by a translator's beam or a writer's sample when no search is given.
    """
    if target is not None:
        if search is not None or max_tokens is not None:
            raise UsageError("a model that is led along a target does not search: leave out search and max_tokens")
        return None, _led(reading, target), None
    search = search or (Sample() if reading.source is None else Beam())
    if reading.given[-1:] == [END]:  # it is written already
        return search, reading.given, None
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
    return search, [*reading.given, *found.tokens], watcher


def _read_source(face: Face, text: str) -> Any:
    source = face.read(text)
    if not source.words or not text.strip():
        raise DataError("there is nothing to translate: the text holds no word")
    return source


def _led(reading: Reading, target: str | Sequence[int]) -> list[int]:
    """The tokens of a text that is given; tokens are taken as they are."""
    if isinstance(target, str):
        target = [*reading.tokenizer.encode(target), *([] if reading.source is None else [END])]
    _check_tokens("target", target, reading.tokenizer)
    ids = [*reading.given, *target]
    if not target:
        raise UsageError("the target holds no token: there is nothing to lead the model along")
    if reading.places is not None and len(ids) > reading.places:
        raise DataError(f"a text of {len(ids)} tokens, and the model has places for {reading.places}: shorten it")
    return ids


def _check_tokens(name: str, tokens: Sequence[int], tokenizer: Tokenizer) -> None:
    if wrong := [token for token in tokens if not 0 <= token < tokenizer.size]:
        raise UsageError(f"the {name} holds the token {wrong[0]}, and the model's are 0 to {tokenizer.size - 1}")
