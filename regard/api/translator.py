"""A translation model with its tokenizers: translations, scores and alignments of texts.

C4, E8, H1.

    m target tokens   n source tokens
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from regard.api.draft_model import check_draft
from regard.api.html import describe_model, model_html, model_repr
from regard.api.results import Alignment, Attention, ScoredText, Translation
from regard.api.translation.alignment.alignment_head import (
    align_translation,
    alignment_weights,
    chosen_head,
    chosen_heads,
)
from regard.api.translation.alignment.pair_attention import PairAttention, Splitter
from regard.api.translation.default_search import chosen_search
from regard.api.translation.foreign_input import warn_about_foreign
from regard.api.translation.sentence_search import carrying_search
from regard.api.translation.source_text import Source, SourceReader
from regard.api.translation.split_long_text import TextPart
from regard.api.translation.text_translation import TextTranslation, split_source
from regard.api.translation.tokens_to_translation import make_translation
from regard.decoding.cpu.folder_model import FolderModel
from regard.decoding.requests import longest_text
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Search
from regard.errors import ModelError, UsageError
from regard.evaluation.alignment_heads import AligningHead
from regard.text.placeholders.placeholders import hide_carried
from regard.text.text_frame import TextFrame
from regard.text.tokenizers.special_tokens import special_tokens_of
from regard.text.tokenizers.tokenizer import Tokenizer, Word

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.decoding.cpu.packed_copy import PackedCopy
    from regard.models.folder.weights_file import Storage
    from regard.models.protocols import TextModel


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
        self.longest = longest_text(cast("TextModel", model))  # only learned positions have a limit
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

    @property
    def decodes_in_c(self) -> bool:
        """Whether whole searches run in C, so that several threads can translate at the same time."""
        return getattr(self._searched_model, "c_search", None) is not None

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
        translation = TextTranslation(
            self, self._searched_model, search, alternatives, prefix, include, max_tokens, guard
        )
        results = translation(texts, range(len(texts)) if numbers is None else numbers)
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
        return split_source(self, text)

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
        return PairAttention(self, source, target, words).alignment()

    def word_attention(
        self, source: str, target: str, *, words: Splitter | None = None, shifted: bool = False
    ) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Return the attention from target to source words, by layer (heads, M, N), and the words; end tokens last.

        The row of a token is that of the step that writes it, or, with `shifted`, of the step that reads it.
        """
        pair = PairAttention(self, source, target, words)
        return pair.maps(shifted=shifted), pair.source_words, pair.target_words

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
        from regard.decoding.forced import forced_attention

        layers = forced_attention(self.decoding_model, source_ids, ids) if ids else {}
        return Attention({name: weights.cpu() for name, weights in layers.items()})

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

    def name_words(self, source: Source, ids: Sequence[int]) -> tuple[str, list[Word]]:
        """Return the text and words of a translation, with the copied and carried texts in their places."""
        translation = make_translation(self, source, list(ids), score=0.0, finished=True)
        return translation.text, translation.words
