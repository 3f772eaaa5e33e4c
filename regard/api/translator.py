"""A translation model with its tokenizers: translations, scores and alignments of texts.

C4, E8, H1.

    m target tokens   n source tokens
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

from torch import Tensor, nn

from regard.api.copy_unknown_words import fit_copies, most_attended_words, name_copies
from regard.api.degenerate_output import is_degenerate, repetition_end
from regard.api.draft_model import check_draft
from regard.api.results import Alignment, Attention, ScoredText, Translation
from regard.api.saving import save_face
from regard.api.source_text import Source, SourceReader, words_of
from regard.api.split_long_text import TextPart, join_translations, split_text
from regard.api.word_alignment import make_alignment, shared_weights, token_ends, token_shares
from regard.decoding.cpu.packed_copy import PackedCopy
from regard.decoding.engine import generate_tokens, longest_text
from regard.decoding.forced import forced_attention, score_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens
from regard.decoding.searches.search import Hypothesis, Search, cut_off
from regard.errors import ModelError, UsageError
from regard.evaluation.alignment import word_weights
from regard.models.config.layer_names import is_cross_attention
from regard.models.folder.weights_file import Storage
from regard.text.tokenizers.special_tokens import END, SPECIAL_TOKENS, UNKNOWN
from regard.text.tokenizers.tokenizer import Tokenizer, Word

Splitter = Callable[[str], Sequence[str]]  # splits a text into words

BEAM = 5
# The default limit of a translation: no language needs twice the tokens of another, and short sentences get some extra.
LENGTH_FACTOR, EXTRA_TOKENS = 2, 20
PART_STRIDE = 2**40  # between the numbers of a text's parts, larger than any list


class SentenceRequest(NamedTuple):
    """A sentence to translate, the first tokens of its translation, and phrases that it must contain."""

    source: Source
    start: list[int]
    phrases: list[list[int]]
    number: int  # determines the random numbers of this sentence


class Translator:
    """Translates texts with a translation model; `regard.load` makes one from a folder.

    `info` is the rest of config.json: the alignment head, tokens that training never saw, the recipe. With `pack`, a
    float32 model on a CPU decodes with packed weights, which is faster and takes more memory.
    """

    def __init__(
        self,
        model: nn.Module,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        info: Mapping[str, Any] | None = None,
        pack: bool = False,
    ) -> None:
        self.model: Any = model
        self.packs, self._packed = pack, PackedCopy() if pack else None
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.info = dict(info or {})
        config = self.model.config
        for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
            rows = getattr(config, f"{side}_vocabulary")
            if tokenizer.size > rows:
                raise ModelError(f"the {side} tokenizer has {tokenizer.size} tokens, but the model only {rows}")
        if target_tokenizer.size < rows:  # the model could write tokens that have no text
            raise ModelError(f"the target tokenizer has only {target_tokenizer.size} tokens, but the model {rows}")
        self.longest = longest_text(self.model)  # only learned positions have a limit
        self.reader = SourceReader(source_tokenizer, info=self.info, longest=self.longest)

    @property
    def decoding_model(self) -> Any:
        """The model that decodes: `model`, or a copy with packed weights if that is faster (on a CPU)."""
        return self.model if self._packed is None else self._packed.of(self.model)

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return save_face(self.model, folder, tokenizer=tokenizers, info=self.info, storage=storage)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the source, often also that of the target."""
        return self.source_tokenizer

    @overload
    def translate(
        self,
        text: str,
        *,
        beam: int | None = None,
        search: Search | None = None,
        alternatives: int = 1,
        prefix: str | None = None,
        include: Sequence[str] = (),
        max_tokens: int | None = None,
        attention: bool = False,
        guard: bool = True,
        numbers: Sequence[int] | None = None,
    ) -> Translation: ...

    @overload
    def translate(
        self,
        text: list[str] | tuple[str, ...],
        *,
        beam: int | None = None,
        search: Search | None = None,
        alternatives: int = 1,
        prefix: str | None = None,
        include: Sequence[str] = (),
        max_tokens: int | None = None,
        attention: bool = False,
        guard: bool = True,
        numbers: Sequence[int] | None = None,
    ) -> list[Translation]: ...

    def translate(
        self,
        text: str | Sequence[str],
        *,
        beam: int | None = None,
        search: Search | None = None,
        alternatives: int = 1,
        prefix: str | None = None,
        include: Sequence[str] = (),
        max_tokens: int | None = None,
        attention: bool = False,
        guard: bool = True,
        numbers: Sequence[int] | None = None,
    ) -> Translation | list[Translation]:
        """Translate a sentence, or a list of sentences; a list gives a list.

        The default is beam search of width 5; `beam` (1 is greedy) or `search` override it. `alternatives` is the
        number of best translations to return. Each translation begins with `prefix` and contains the words or phrases
        in `include` (beam search only). `attention` computes the weights now instead of on first use.

        A text longer than those of training is translated in parts: lines, sentences, or less (split_long_text.py). A
        text without letters is copied. If a translation is empty or repeats itself (degenerate_output.py), the search
        runs again and excludes this, and truncates the text if that does not help. `guard=False` disables all of this.

        The random numbers of a text depend on its number, which is its index in the list unless `numbers` gives
        others, for example when a long list is translated in batches.
        """
        texts = [text] if isinstance(text, str) else list(text)
        search = chosen_search(beam, search, alternatives)
        check_draft(self, search)
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
        split = [split_text(sentence, self._fits) if guard else [TextPart(sentence, "")] for sentence in texts]
        start = self.target_tokenizer.encode(prefix) if prefix else []
        phrases = [self.target_tokenizer.encode(phrase) for phrase in include]
        if phrases and any(len(parts) > 1 for parts in split):
            raise UsageError(
                "include works for one sentence, but a text has several parts: translate its sentences one by one"
            )
        requests = [
            SentenceRequest(self.read(part.text), [] if i else start, phrases, number + i * PART_STRIDE)
            for number, parts in zip(range(len(texts)) if numbers is None else numbers, split, strict=True)
            for i, part in enumerate(parts)
        ]
        has_words = [bool(request.source.words) and (request.source.has_letters or not guard) for request in requests]
        searched = iter(
            self._search(list(compress(requests, has_words)), search, alternatives, max_tokens, guard=guard)
        )
        translated = iter(
            [
                self._best(request, next(searched) if has else None)
                for request, has in zip(requests, has_words, strict=True)
            ]
        )
        results = [
            join_translations(sentence, parts, list(islice(translated, len(parts))))
            if len(parts) > 1
            else next(translated)
            for sentence, parts in zip(texts, split, strict=True)
        ]
        if attention:
            for result in results:
                for alternative in result.alternatives:
                    alternative.attention  # noqa: B018  # a cached property: computed now
        return results[0] if isinstance(text, str) else results

    @overload
    def score(self, source: str, target: str) -> ScoredText: ...

    @overload
    def score(self, source: list[str], target: list[str]) -> list[ScoredText]: ...

    def score(self, source: str | Sequence[str], target: str | Sequence[str]) -> ScoredText | list[ScoredText]:
        """Return the log-probability of each token of a target, and its end token, as a translation of its source."""
        single = isinstance(source, str)
        if single != isinstance(target, str):
            raise UsageError("score takes two texts or two lists of texts, got one of each")
        sources = [source] if isinstance(source, str) else list(source)
        targets = [target] if isinstance(target, str) else list(target)
        if len(sources) != len(targets):
            raise UsageError(f"score needs as many targets as sources, got {len(sources)} and {len(targets)}")
        ids = [[*self.target_tokenizer.encode(text), END] for text in targets]
        scored = score_tokens(self.decoding_model, [self.read(text).ids for text in sources], ids)
        results = [
            ScoredText(text, self.target_tokenizer.pieces(tokens), scores.logps)
            for tokens, scores, text in zip(ids, scored, targets, strict=True)
        ]
        return results[0] if single else results

    def align(self, source: str, target: str, *, words: Splitter | None = None) -> Alignment:
        """Align a source with a given translation, by forced decoding of `target`.

        Texts are split into words at spaces, or by the function `words`.
        """
        maps, source_words, target_words = self.word_attention(source, target, words=words)
        return make_alignment(self._alignment_weights(maps), source_words, target_words, finished=True)

    def word_attention(
        self, source: str, target: str, *, words: Splitter | None = None
    ) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Return the attention from target to source words, by layer (heads, M, N), and the words; end tokens last."""
        read, ids = self.read(source), self.target_tokenizer.encode(target)
        spans = words_of(self.target_tokenizer, target, ids)
        layers = forced_attention(self.decoding_model, read.ids, [*ids, END])
        cross = {name: weights for name, weights in layers.items() if is_cross_attention(name)}
        if words is None:
            ours, theirs = [*read.words, end_word(read.ids)], [*spans, end_word([*ids, END])]
            maps = {name: word_weights(weights, ours, theirs) for name, weights in cross.items()}
            return maps, [word.text for word in ours], [word.text for word in theirs]
        source_words, target_words = (list(words(unicodedata.normalize("NFC", text))) for text in (source, target))
        shares = (
            token_shares(token_ends(self.source_tokenizer, read.ids[:-1], read.words), source_words),
            token_shares(token_ends(self.target_tokenizer, ids, spans), target_words),
        )
        maps = {name: shared_weights(weights, *shares) for name, weights in cross.items()}
        return maps, [*source_words, SPECIAL_TOKENS[END]], [*target_words, SPECIAL_TOKENS[END]]

    def read(self, text: str) -> Source:
        """Return the sentence as the model reads it."""
        return self.reader.read(text)

    def attention_of(self, source_ids: Sequence[int], ids: Sequence[int]) -> Attention:
        """Return all attention weights of the model, by forced decoding of the target `ids`."""
        layers = forced_attention(self.decoding_model, source_ids, ids) if ids else {}
        return Attention({name: weights.cpu() for name, weights in layers.items()})

    def alignment_of(self, translation: Translation, level: Literal["word", "piece"]) -> Alignment:
        """Return the alignment of a translation by this translator; see `Translation.alignment`."""
        if level not in ("word", "piece"):
            raise UsageError(f"level must be 'word' or 'piece', got {level!r}")
        if not translation.ids:
            raise UsageError("an empty translation has no alignment")
        weights = self._alignment_weights(translation.attention.layers)
        if level == "piece":
            sides = translation.source_tokens, translation.tokens
        else:
            source = [*translation.source_words, end_word(translation.source_ids)]
            target = [*translation.words, *([end_word(translation.ids)] if translation.finished else [])]
            weights = word_weights(weights, source, target)
            sides = [word.text for word in source], [word.text for word in target]
        return make_alignment(weights, *sides, finished=translation.finished)

    @property
    def alignment_head(self) -> tuple[str, int | None]:
        """The layer and head that align best on the validation data; head None is the mean of all heads."""
        chosen = self.info.get("alignment")
        if chosen is None:
            return self.model.config.cross_layers[-1], None
        if not isinstance(chosen, dict) or not isinstance(chosen.get("layer"), str):
            raise ModelError(f"config.json: alignment must name a layer and a head, got {chosen!r}")
        return chosen["layer"], chosen.get("head")

    def _alignment_weights(self, layers: Mapping[str, Tensor]) -> Tensor:
        """Return the weights (m, n) of the alignment head."""
        if not any(map(is_cross_attention, layers)):
            raise UsageError(
                f"a model of kind {self.model.config.kind!r} has no attention to the source, so it gives no alignment"
            )
        layer, head = self.alignment_head
        weights = layers.get(layer)
        if weights is None or not (head is None or (isinstance(head, int) and 0 <= head < len(weights))):
            raise ModelError(f"config.json: the alignment head does not exist: head {head!r} of layer {layer!r}")
        return weights.mean(0) if head is None else weights[head]

    def _fits(self, text: str) -> bool:
        """Whether a text fits the model as a whole; an unknown word is one token, however long it is."""
        if self.reader.fits(text):
            return True
        return len(text.split()) == 1 and not self.reader.unseen.isdisjoint(self.source_tokenizer.encode(text))

    def _max_tokens(self, request: SentenceRequest, max_tokens: int | None, required: int) -> int:
        """Return how many tokens may follow the prefix, if at least `required` must."""
        needed = max(required, sum(map(len, request.phrases))) + 1  # with END
        limit = (
            max(LENGTH_FACTOR * len(request.source.ids) + EXTRA_TOKENS, needed) if max_tokens is None else max_tokens
        )
        return limit if self.longest is None else min(limit, self.longest - len(request.start))

    def _search(
        self,
        requests: Sequence[SentenceRequest],
        search: Search,
        alternatives: int,
        max_tokens: int | None,
        *,
        guard: bool,
    ) -> list[list[Hypothesis]]:
        """Search for translations of each source; return the hypotheses after the prefix."""
        if not requests:
            return []
        required, model, tokenizer = required_tokens(search), self.decoding_model, self.target_tokenizer

        def generate(batch: Sequence[SentenceRequest], *, allow_nonsense: bool) -> list[list[Hypothesis]]:
            return generate_tokens(
                model,
                [request.source.ids for request in batch],
                search=search,
                prefixes=[request.start for request in batch] if any(request.start for request in batch) else None,
                constraints=[request.phrases for request in batch]
                if any(request.phrases for request in batch)
                else None,
                max_tokens=[self._max_tokens(request, max_tokens, required) for request in batch],
                alternatives=alternatives,
                allow_nonsense=allow_nonsense,
                numbers=[request.number for request in batch],
            )

        results = generate(requests, allow_nonsense=True)
        if not guard:
            return results
        degenerate = [
            i
            for i, request in enumerate(requests)
            if is_degenerate(results[i][0], request.source, tokenizer, has_prefix=bool(request.start))
        ]
        retried = generate([requests[i] for i in degenerate], allow_nonsense=False) if degenerate else []
        for i, hypotheses in zip(degenerate, retried, strict=True):
            # If the same words are repeated with other tokens, the text ends after their first copy, unless it must
            # contain phrases or have a minimum length.
            keep = bool(requests[i].phrases or required)
            ends = [None if keep else repetition_end(x, requests[i].source, tokenizer) for x in hypotheses]
            results[i] = [cut_off(hypothesis, end) for hypothesis, end in zip(hypotheses, ends, strict=True)]
        return results

    def _best(self, request: SentenceRequest, hypotheses: Sequence[Hypothesis] | None) -> Translation:
        """Return the best translation, with its alternatives; None copies the source."""
        if hypotheses is None:
            results = [self._translation(request.source, [], score=0.0, finished=True)]
            results[0].text = request.source.text.strip()
        else:
            results = [
                self._translation(request.source, [*request.start, *x.tokens], score=x.score, finished=x.finished)
                for x in hypotheses
            ]
        for result in results:
            result.alternatives = results
        return results[0]

    def name_words(self, source: Source, ids: Sequence[int]) -> tuple[str, list[Word]]:
        """Return the text and the words of a translation of a source, with copied words in place of each UNKNOWN."""
        translation = self._translation(source, list(ids), score=0.0, finished=True)
        return translation.text, translation.words

    def _translation(self, source: Source, ids: list[int], *, score: float, finished: bool) -> Translation:
        """Make a translation of tokens; each UNKNOWN among them becomes its most attended source word."""
        written = [token for token in ids if token != END]
        result = Translation(
            source=source.text,
            text=self.target_tokenizer.decode(written),
            source_tokens=self.source_tokenizer.pieces(source.ids),
            tokens=self.target_tokenizer.pieces(ids),
            source_ids=source.ids,
            ids=ids,
            source_words=source.words,
            words=self.target_tokenizer.words(written),
            score=score,
            finished=finished,
            translator=self,
        )
        if UNKNOWN in written and result.attention.cross is not None:
            weights = self._alignment_weights(result.attention.layers)
            copies = most_attended_words(weights, source.ids, source.units, ids)
            copies = fit_copies(copies, ids, result.tokens)
            result.text = self.target_tokenizer.decode(written, unknown=copies)
            result.words = name_copies(self.target_tokenizer, written, result.words, copies)
        return result


def chosen_search(beam: int | None, search: Search | None, alternatives: int) -> Search:
    """Return the requested search; by default a beam that is wide enough for the alternatives."""
    if beam is not None and search is not None:
        raise UsageError("give beam or search, not both")
    if alternatives < 1:
        raise UsageError(f"alternatives must be at least 1, got {alternatives}")
    if search is not None:
        return search
    if beam is not None and beam < 1:
        raise UsageError(f"beam must be at least 1, got {beam}")
    if beam == 1:
        return Greedy()
    return Beam(beam or max(BEAM, alternatives))


def required_tokens(search: Search) -> int:
    """Return the smallest number of tokens that the rules of a search allow."""
    return max((rule.count for rule in search.rules if isinstance(rule, MinTokens)), default=0)


def end_word(tokens: Sequence[int]) -> Word:
    """Return the last token, END, as a word of its own."""
    return Word(SPECIAL_TOKENS[END], len(tokens) - 1, len(tokens))
