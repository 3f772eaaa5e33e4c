"""A translation model with its tokenizers: translations, scores and alignments of texts.

C4, E8, H1.

    m target tokens   n source tokens
"""

from __future__ import annotations

import copy
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from regard.api.draft_model import check_draft
from regard.api.html import describe_model, model_html, model_repr
from regard.api.results import Alignment, Attention, ScoredText, Translation
from regard.api.translation.alignment_head import (
    align_translation,
    alignment_weights,
    chosen_head,
    chosen_heads,
    end_word,
    weights_of_head,
)
from regard.api.translation.copy_unknown_words import fit_copies, most_attended_words
from regard.api.translation.default_search import chosen_search
from regard.api.translation.degenerate_output import is_repetitive
from regard.api.translation.distinct_texts import find_distinct, linked
from regard.api.translation.foreign_input import warn_about_foreign
from regard.api.translation.placeholder_reader import restore_all
from regard.api.translation.sentence_search import SentenceRequest, SentenceSearch, carrying_search
from regard.api.translation.source_text import Source, SourceReader, words_of
from regard.api.translation.split_long_text import TextPart, join_translations, split_text
from regard.api.translation.tokens_and_words import SentenceTokens
from regard.api.translation.word_alignment import make_alignment, shared_weights, token_ends, token_shares
from regard.decoding.cpu.folder_model import FolderModel
from regard.decoding.requests import longest_text
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Search
from regard.errors import ModelError, UsageError
from regard.evaluation.alignment import word_weights
from regard.evaluation.alignment_heads import AligningHead, reading_steps
from regard.models.layer_names import is_cross_attention
from regard.text.placeholders.placeholders import hide_carried, restore
from regard.text.text_frame import TextFrame
from regard.text.tokenizers.placeholder_tokens import ANY_PLACEHOLDER
from regard.text.tokenizers.special_tokens import END, SPECIAL_TOKENS, special_tokens_of
from regard.text.tokenizers.tokenizer import Tokenizer, Word

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.decoding.cpu.packed_copy import PackedCopy
    from regard.models.folder.weights_file import Storage

Splitter = Callable[[str], Sequence[str]]  # splits a text into words

PART_STRIDE = 2**40  # between the numbers of a text's parts, larger than any list


class Translator:
    """Translates texts with a translation model; `regard.load` makes one from a folder.

    `info` is the rest of config.json: the alignment heads, tokens that training never saw, the recipe. With `pack`, a
    float32 model on a CPU decodes with packed weights, which is faster and takes more memory.

    Of a FolderModel, which C translates with, `model` is made on first use. Until then torch is not imported, unless a
    text needs it (decoding/cpu/folder_model.py).
    """

    def __init__(
        self,
        model: nn.Module | FolderModel,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        info: Mapping[str, Any] | None = None,
        pack: bool = False,
    ) -> None:
        self._folder_model = model if isinstance(model, FolderModel) else None
        if self._folder_model is None:
            self.model = model
        self.packs = pack
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.info = dict(info or {})
        config: Any = model.config
        for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
            rows = getattr(config, f"{side}_vocabulary")
            if tokenizer.size > rows:
                raise ModelError(f"the {side} tokenizer has {tokenizer.size} tokens, but the model only {rows}")
        self.special = special_tokens_of(model)
        if target_tokenizer.size < (self.special.tokenizer_size or rows):  # the model could write tokens without a text
            raise ModelError(f"the target tokenizer has only {target_tokenizer.size} tokens, but the model {rows}")
        self.longest = longest_text(model)  # only learned positions have a limit
        self._use_frame(
            TextFrame.from_info(self.info, self.special, source_start=getattr(config, "source_start", False))
        )

    @cached_property
    def model(self) -> Any:
        """The plain module."""
        assert self._folder_model is not None
        return self._folder_model.module

    @property
    def decoding_model(self) -> Any:
        """The model that decodes: `model`, or a copy with packed weights if that is faster (on a CPU)."""
        return self._packed.of(self.model) if self.packs else self.model

    @cached_property
    def _packed(self) -> PackedCopy:
        from regard.decoding.cpu.packed_copy import PackedCopy

        return PackedCopy() if self._folder_model is None else self._folder_model.packed

    @property
    def _searched_model(self) -> Any:
        """What searches: the arrays of a folder, until someone asks for the modules, which can change."""
        unchanged = self._folder_model is not None and "model" not in vars(self)
        return self._folder_model if unchanged else self.decoding_model

    def between(self, source: str | None = None, target: str | None = None) -> Translator:
        """Return this translator for two languages, of a model that has codes for several; None keeps a language.

        It shares the model. Everything else that reads a text, such as a trace, then uses these languages.
        """
        translator = copy.copy(self)
        translator._use_frame(self.frame.between(source, target))
        return translator

    @property
    def languages(self) -> list[str]:
        """The codes of the languages between which the model chooses; most models have none."""
        return sorted(self.frame.codes)

    def _use_frame(self, frame: TextFrame) -> None:
        self.frame = frame
        self.reader = SourceReader(self.source_tokenizer, info=self.info, longest=self.longest, frame=frame)

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        from regard.api.saving import save_face

        tokenizers = self.source_tokenizer, self.target_tokenizer
        return save_face(self.model, folder, tokenizer=tokenizers, info=self.info, storage=storage)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the source, often also that of the target."""
        return self.source_tokenizer

    def __repr__(self) -> str:
        return model_repr("Translator", describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return model_html("Translator", describe_model(self.model, self.info), 'translator.translate("…")')

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
        source: str | None = None,
        target: str | None = None,
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
        source: str | None = None,
        target: str | None = None,
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
        source: str | None = None,
        target: str | None = None,
    ) -> Translation | list[Translation]:
        """Translate a sentence, or a list of sentences; a list gives a list.

        The default is beam search of width 5; `beam` (1 is greedy) or `search` override it. `alternatives` is the
        number of best translations to return. Each translation begins with `prefix` and contains the words or phrases
        in `include` (beam search only). `attention` computes the weights now instead of on first use.

        A text longer than those of training is translated in parts: lines, sentences, or less (split_long_text.py). A
        text without letters, or one that only repeats a few words or letters, is copied. If a translation is empty or
        repeats itself (degenerate_output.py), the search runs again and excludes this, and truncates the text if that
        does not help. Input that does not look like the source language causes a warning (foreign_input.py).
        `guard=False` disables all of this. Alternatives have different texts.

        The random numbers of a text depend on its number, which is its index in the list unless `numbers` gives
        others, for example when a long list is translated in batches.

        `source` and `target` are the languages for a model that has codes for several, as in `between`.
        """
        if source is not None or target is not None:
            options: Any = {"beam": beam, "search": search, "alternatives": alternatives, "prefix": prefix}
            options |= {"include": include, "max_tokens": max_tokens, "attention": attention, "guard": guard}
            return self.between(source, target).translate(text, numbers=numbers, **options)  # type: ignore[arg-type]
        texts = [text] if isinstance(text, str) else list(text)
        search = chosen_search(beam, search, alternatives, default=self.info.get("search"))
        check_draft(self, search)
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
        split = [self.split(sentence) if guard else [TextPart(sentence, "")] for sentence in texts]
        if include and any(len(parts) > 1 for parts in split):
            raise UsageError(
                "include works for one sentence, but a text has several parts: translate its sentences one by one"
            )
        requests = [
            self._request(part.text, prefix if i == 0 else None, include, number + i * PART_STRIDE, guard)
            for number, parts in zip(range(len(texts)) if numbers is None else numbers, split, strict=True)
            for i, part in enumerate(parts)
        ]
        has_words = [_can_be_searched(request.source, guard) for request in requests]
        searchable = list(compress(requests, has_words))

        def translations(which: Sequence[int], search: Search, count: int) -> list[list[Translation]]:
            batch = [searchable[i] for i in which]
            find = SentenceSearch(
                self._searched_model, self.target_tokenizer, search, count, max_tokens, self.longest, guard,
                self.special,
            )  # fmt: skip
            return [
                [
                    self._translation(request.source, [*request.start, *x.tokens], score=x.score, finished=x.finished)
                    for x in texts
                ]
                for request, texts in zip(batch, find(batch), strict=True)
            ]

        searched = iter(find_distinct(translations, len(searchable), search, alternatives))
        translated = iter(
            [
                linked(next(searched) if has else [self._copy(request.source)])
                for request, has in zip(requests, has_words, strict=True)
            ]
        )
        results = [
            join_translations(sentence, parts, list(islice(translated, len(parts))))
            if len(parts) > 1
            else next(translated)
            for sentence, parts in zip(texts, split, strict=True)
        ]
        if guard and isinstance(search, Beam | Greedy) and not (search.rules or prefix or include):
            warn_about_foreign(results, self.info)  # other texts may be improbable for other reasons
        if attention:
            for result in results:
                for alternative in result.alternatives:
                    alternative.attention  # noqa: B018  # a cached property: computed now
        return results[0] if isinstance(text, str) else results

    def split(self, text: str) -> list[TextPart]:
        """Return the parts in which `translate` translates a text; most texts have one (split_long_text.py).

        Each part has the code of the target language that the text begins with, if there is one.
        """
        code = self.reader.code_of(text)
        parts = split_text(text[len(code) :], self._fits)
        return [part._replace(text=code + part.text) for part in parts] if code else parts

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
        from regard.decoding.forced import score_tokens

        read = [self.read(text) for text in sources]
        end = self.special.end
        ids = [[*self.encode_target(text, source), end] for text, source in zip(targets, read, strict=True)]
        prefixes = [self.frame.before_target()] * len(ids)
        scored = score_tokens(self.decoding_model, [source.ids for source in read], ids, prefixes=prefixes)
        results = [
            ScoredText(text, self.target_tokenizer.pieces(tokens), scores.logps)
            for tokens, scores, text in zip(ids, scored, targets, strict=True)
        ]
        return results[0] if single else results

    def align(self, source: str, target: str, *, words: Splitter | None = None) -> Alignment:
        """Align a source with a given translation, by forced decoding of `target`.

        Texts are split into words at spaces, or by the function `words`.
        """
        read, ids = self._read_pair(source, target)
        layers = self._forced_attention(read.ids, ids)
        tokens = alignment_weights(layers, ids, self.info, self.model.config)
        merge, source_words, target_words = self._merge_words(read, target, ids, words)
        return make_alignment(merge(tokens), source_words, target_words, finished=True)

    def word_attention(
        self, source: str, target: str, *, words: Splitter | None = None, shifted: bool = False
    ) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Return the attention from target to source words, by layer (heads, M, N), and the words; end tokens last.

        The row of a token is that of the step that writes it, or, with `shifted`, of the step that reads it.
        """
        read, ids = self._read_pair(source, target)
        layers = self._forced_attention(read.ids, ids)
        merge, source_words, target_words = self._merge_words(read, target, ids, words)
        rows = reading_steps(ids, self.special.ends) if shifted else range(len(ids))
        maps = {name: merge(weights[:, list(rows)]) for name, weights in layers.items() if is_cross_attention(name)}
        return maps, source_words, target_words

    def _read_pair(self, source: str, target: str) -> tuple[Source, list[int]]:
        """Return the source as the model reads it, and the tokens of a translation of it, with the end token."""
        read = self.read(source)
        return read, [*self.frame.before_target(), *self.encode_target(target, read), self.special.end]

    def _merge_words(
        self, read: Source, target: str, ids: Sequence[int], words: Splitter | None
    ) -> tuple[Callable[[Tensor], Tensor], list[str], list[str]]:
        """Return a function from weights of tokens (…, m, n) to those of words (…, M, N), and the words of both sides.

        The end tokens are the last words.
        """
        spans = [
            word._replace(text=restore(word.text, read.carried))
            for word in words_of(self.target_tokenizer, target, ids[:-1])
        ]
        if words is None:
            ours, theirs = [*read.words, end_word(read.ids)], [*spans, end_word(ids)]
            names = [word.text for word in ours], [word.text for word in theirs]
            return partial(word_weights, source=ours, target=theirs), *names
        source_words, target_words = (list(words(unicodedata.normalize("NFC", text))) for text in (read.text, target))
        merge = partial(
            shared_weights,
            source_shares=token_shares(token_ends(self.source_tokenizer, read.ids[:-1], read.words), source_words),
            target_shares=token_shares(token_ends(self.target_tokenizer, ids[:-1], spans), target_words),
        )
        return merge, [*source_words, SPECIAL_TOKENS[END]], [*target_words, SPECIAL_TOKENS[END]]

    def read(self, text: str) -> Source:
        """Return the sentence as the model reads it."""
        return self.reader.read(text)

    def encode_target(self, text: str, source: Source) -> list[int]:
        """Return the tokens of a translation of this source, or of a part of it, as the model would write it."""
        return self.target_tokenizer.encode(hide_carried(text, source.carried))

    def search_for(self, source: Source, search: Search) -> Search:
        """Return the search for a translation that contains each carried span of this source once."""
        return carrying_search(source, search, self.target_tokenizer)

    def attention_of(self, source_ids: Sequence[int], ids: Sequence[int]) -> Attention:
        """Return all attention weights of the model, by forced decoding of the target `ids`."""
        layers = self._forced_attention(source_ids, ids) if ids else {}
        return Attention({name: weights.cpu() for name, weights in layers.items()})

    def _forced_attention(self, source_ids: Sequence[int], ids: Sequence[int]) -> Mapping[str, Tensor]:
        from regard.decoding.forced import forced_attention

        return forced_attention(self.decoding_model, source_ids, ids)

    def alignment_of(self, translation: Translation, level: Literal["word", "piece"]) -> Alignment:
        """Return the alignment of a translation by this translator; see `Translation.alignment`."""
        if level not in ("word", "piece"):
            raise UsageError(f"level must be 'word' or 'piece', got {level!r}")
        if not translation.ids:
            raise UsageError("an empty translation has no alignment")
        weights = self.alignment_weights(translation.attention.layers, translation.ids)
        return align_translation(translation, weights, level)

    @property
    def alignment_head(self) -> tuple[str, int | None]:
        """The layer and head that align best at the step that writes a token; head None is the mean of all heads."""
        return chosen_head(self.info, self.model.config)

    @property
    def alignment_heads(self) -> list[AligningHead]:
        """The heads whose mean is the alignment, each at the step that writes a token or the one that reads it."""
        return chosen_heads(self.info, self.model.config)

    def alignment_weights(self, layers: Mapping[str, Tensor], ids: Sequence[int]) -> Tensor:
        """Return the alignment (m, n) of m target tokens, from the attention maps of their forced decoding."""
        return alignment_weights(layers, ids, self.info, self.model.config)

    def _fits(self, text: str) -> bool:
        """Whether a text need not be split; an unknown word is one token, and a repetitive text is copied."""
        if self.reader.fits(text) or is_repetitive(text):
            return True
        return len(text.split()) == 1 and not self.reader.unseen.isdisjoint(self.source_tokenizer.encode(text))

    def _request(
        self, text: str, prefix: str | None, include: Sequence[str], number: int, guard: bool
    ) -> SentenceRequest:
        source = self._read_part(text, guard)
        start = [*self.frame.before_target(), *(self.encode_target(prefix, source) if prefix else [])]
        phrases = [self.encode_target(phrase, source) for phrase in include]
        return SentenceRequest(source, start, phrases, number, bool(prefix))

    def _copy(self, source: Source) -> Translation:
        """Return the source itself as its translation."""
        result = self._translation(source, [], score=0.0, finished=True)
        result.text = source.text.strip()
        return result

    def _read_part(self, text: str, guard: bool) -> Source:
        """Return a part of a text as the model reads it; a repetitive one has no words, so it is copied."""
        if not guard or not is_repetitive(text):
            return self.read(text)
        warnings.warn(
            f"a text of {len(text):,} characters only repeats a few words or letters, so it is copied "
            f"({text[:20].strip()!r}…)",
            stacklevel=3,
        )
        return Source(text, [self.special.end], has_letters=False, tokenizer=self.source_tokenizer, replaced_words=[])

    def name_words(self, source: Source, ids: Sequence[int]) -> tuple[str, list[Word]]:
        """Return the text and words of a translation, with the copied and carried texts in their places."""
        translation = self._translation(source, list(ids), score=0.0, finished=True)
        return translation.text, translation.words

    def _translation(self, source: Source, ids: list[int], *, score: float, finished: bool) -> Translation:
        """Make a translation of tokens; each UNKNOWN becomes its most attended source word, placeholders their text."""
        written = [token for token in ids if token not in self.special.ends]
        result = Translation(
            source=source.text,
            text=self.target_tokenizer.decode(written),
            source_ids=source.ids,
            ids=ids,
            score=score,
            finished=finished,
            translator=self,
            pieces=(pieces := SentenceTokens(self, source, ids)),
        )
        unknown = self.special.unknown
        if unknown in written and result.attention.cross is not None:
            weights = weights_of_head(result.attention.layers, self.info, self.model.config)
            copies = most_attended_words(weights, source.ids, source.units, ids, unknown)
            pieces.copies = fit_copies(copies, ids, result.tokens, unknown)
            result.text = self.target_tokenizer.decode(written, unknown=pieces.copies)
        if self.reader.placeholders.symbols and (source.carried or ANY_PLACEHOLDER.search(result.text)):
            result.text = restore_all(result.text, source.carried)
        return result


def _can_be_searched(source: Source, guard: bool) -> bool:
    """Whether a source has words; with `guard`, also letters."""
    if source.has_letters:
        return len(source.ids) > source.after + source.start
    return not guard and bool(source.words)
