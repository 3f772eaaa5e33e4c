"""Run a model that generates text: prepare its input, then search for the output or force a target.

E7, E8, E10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from regard.decoding.engine import generate_tokens
from regard.decoding.requests import longest_text
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Search
from regard.errors import DataError, UsageError
from regard.look.trace.search_observers import BeamWatcher, SampleWatcher
from regard.look.trace.trace import Sentence
from regard.models.protocols import Encoder
from regard.text.tokenizers.special_tokens import special_tokens_of
from regard.text.tokenizers.tokenizer import Tokenizer, Word

Face = Any  # a Translator, Writer or Embedder of regard.api, or whatever has their model, tokenizers and `read`
Watcher = BeamWatcher | SampleWatcher | None
# Default max_tokens: for a translation as in Translator.translate, otherwise few enough that a map is legible.
SOURCE_FACTOR, EXTRA_TOKENS, WRITER_TOKENS = 2, 20, 100


class CopiedSource(NamedTuple):
    """The source of a model that copies, as tokens."""

    ids: Sequence[int]
    words: Sequence[Word]
    sentences: Sequence[Sentence]


class Reading(NamedTuple):
    """The input of a model, before it generates text."""

    model: Any
    tokenizer: Tokenizer  # of the output
    source: Sequence[int] | None
    words: Sequence[Word] | None  # of the source
    start: int  # the token before all others that the decoder reads
    prefix: list[int]  # tokens between that and the generated ones: the prompt and the requested prefix
    max_tokens: int  # most tokens after the prefix
    positions: int | None  # most tokens in all; None: unlimited
    restrict: Callable[[Search], Search] = lambda search: search  # the search that carries over the source's numbers
    default: Search | None = None  # None: beam search with a source, sampling without
    allow_unknown: bool = True
    sentences: Sequence[Sentence] = ()  # of the source of a model that copies


def make_reading(face: Face, text: str, prefix: str | Sequence[int] = (), max_tokens: int | None = None) -> Reading:
    """Prepare the input: the text is the source of a translator, or the prompt of a language model."""
    if max_tokens is not None and max_tokens < 1:
        raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
    source = _read_source(face, text) if isinstance(face.model, Encoder) else None
    tokenizer = face.tokenizer if source is None else face.target_tokenizer
    fixed = list(tokenizer.encode(prefix) if isinstance(prefix, str) else prefix)
    _check_tokens("prefix", fixed, tokenizer)
    if hasattr(face, "frame"):
        fixed = [*face.frame.before_target(), *fixed]
    special = special_tokens_of(face.model)
    start = special.start
    if any(token in special.ends for token in fixed[:-1]):
        raise UsageError("the prefix continues after the end token: remove what follows it")
    if source is None:
        start, *text_tokens = face.begin(text)
        fixed = [*text_tokens, *fixed]
        room = WRITER_TOKENS if max_tokens is None else max_tokens
        positions = None if face.context is None else face.context - 1  # as Writer.write
    else:
        room = SOURCE_FACTOR * len(source.ids) + EXTRA_TOKENS if max_tokens is None else max_tokens
        positions = longest_text(face.model)
    if positions is not None and len(fixed) >= positions:
        raise DataError(
            f"the prompt or prefix has {len(fixed)} tokens, but the model has only {positions} positions: shorten it"
        )
    room = room if positions is None else min(room, positions - len(fixed))
    ids, words = (None, None) if source is None else (source.ids, source.words)
    reading = Reading(face.model, tokenizer, ids, words, start, fixed, room, positions)
    if isinstance(source, CopiedSource):
        return reading._replace(default=Greedy(), allow_unknown=False, sentences=source.sentences)
    if source is None or not getattr(source, "carried", None):
        return reading
    return reading._replace(restrict=partial(face.search_for, source))


def write_text(
    reading: Reading, search: Search | None, target: str | Sequence[int] | None, max_tokens: int | None = None
) -> tuple[Search | None, list[int], Watcher]:
    """Return the search (None for a target), the tokens of the output including the prefix, and the observer.

    Without a target, the output is searched for, by default with beam search for a translator and by sampling for a
    writer.
    """
    if target is not None:
        if search is not None or max_tokens is not None:
            raise UsageError("with a target there is no search: leave out search and max_tokens")
        return None, _forced_tokens(reading, target), None
    search = search or reading.default or (Sample() if reading.source is None else Beam())
    special = special_tokens_of(reading.model)
    if reading.prefix and reading.prefix[-1] in special.ends:  # the output is already complete
        return search, reading.prefix, None
    watcher: Watcher = None
    if isinstance(search, Beam):
        watcher = BeamWatcher(search, reading.tokenizer)
    elif isinstance(search, Sample):
        watcher = SampleWatcher(reading.tokenizer.size)
    ((hypothesis, *_),) = generate_tokens(
        reading.model,
        None if reading.source is None else [reading.source],
        search=reading.restrict(search),
        # A translator adds START itself; a language model needs the first token in the prefix.
        prefixes=[reading.prefix if reading.source is not None else [reading.start, *reading.prefix]],
        max_tokens=reading.max_tokens,
        allow_unknown=reading.allow_unknown,
        observer=watcher,
    )
    return search, [*reading.prefix, *hypothesis.tokens], watcher


def _read_source(face: Face, text: str) -> Any:
    if hasattr(face, "read_whole"):
        return _read_sentences(face, text)
    source = face.read(text)
    if not source.words or not text.strip():
        raise DataError("there is nothing to translate: the text has no words")
    return source


def _read_sentences(face: Face, text: str) -> CopiedSource:
    source, sentences = face.read_whole(text), []
    start = source.first
    for sentence, length in zip(source.sentences, source.lengths, strict=True):
        sentences.append(Sentence(sentence, start, start + length))
        start += length
    return CopiedSource(source.ids, face.tokenizer.words(source.ids), sentences)


def _forced_tokens(reading: Reading, target: str | Sequence[int]) -> list[int]:
    """Return the tokens of a target; token ids are used unchanged."""
    if isinstance(target, str):
        end = [] if reading.source is None else [special_tokens_of(reading.model).end]
        target = [*reading.tokenizer.encode(target), *end]
    _check_tokens("target", target, reading.tokenizer)
    ids = [*reading.prefix, *target]
    if not target:
        raise UsageError("the target is empty: there are no tokens to force")
    if reading.positions is not None and len(ids) > reading.positions:
        raise DataError(
            f"the text has {len(ids)} tokens, but the model has only {reading.positions} positions: shorten it"
        )
    return ids


def _check_tokens(name: str, tokens: Sequence[int], tokenizer: Tokenizer) -> None:
    if wrong := [token for token in tokens if not 0 <= token < tokenizer.size]:
        raise UsageError(f"the {name} contains token {wrong[0]}, but the model has tokens 0 to {tokenizer.size - 1}")
