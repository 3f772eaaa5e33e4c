"""A translation model with its tokenizers: text in, text out, and where the model looked.

C4, E8, H1.

    m target tokens   n source tokens
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, islice
from typing import Any, Literal, NamedTuple, overload

from torch import Tensor, nn

from regard.api.copy_unknown_words import fit_copies, most_attended_words, name_copies
from regard.api.degenerate_output import circle_end, is_nonsense
from regard.api.draft_model import check_draft
from regard.api.results import Alignment, Attention, ScoredText, Translation
from regard.api.source_text import Source, SourceReader, words_of
from regard.api.split_long_text import Part, join_translations, split_text
from regard.api.word_alignment import make_alignment, piece_ends, piece_shares, shared_weights
from regard.decoding.cpu.packed_copy import PackedCopy
from regard.decoding.engine import generate_tokens, longest_text
from regard.decoding.forced import forced_attention, score_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens
from regard.decoding.searches.search import Hypothesis, Search, cut_off
from regard.errors import ModelError, UsageError
from regard.evaluation.alignment import word_weights
from regard.text.tokenizers.special_tokens import END, SPECIAL_TOKENS, UNKNOWN
from regard.text.tokenizers.tokenizer import Tokenizer, Word

Splitter = Callable[[str], Sequence[str]]  # a text to its words

BEAM = 5
# How long a translation may get when nobody says: no language needs twice the tokens of another, and short sentences
# get room.
TIMES, MORE = 2, 20
PARTS = 2**40  # lies between the numbers of a text's parts: no list is that long


class Task(NamedTuple):
    """A sentence to translate, the tokens that its translation begins with, and phrases that it must hold."""

    source: Source
    start: list[int]
    phrases: list[list[int]]
    number: int  # what is drawn for it depends on this


class Translator:
    """Translates with a model of regard; `regard.load` makes one from a folder.

    `info` is what config.json holds beside the model: the head that aligns, pieces never met in training, the recipe.
    With `pack`, a model in float32 on a CPU decodes with packed weights, which is faster and takes more memory.
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
                raise ModelError(f"the {side} tokenizer has {tokenizer.size} tokens, the model only {rows}")
        if target_tokenizer.size < rows:  # the model could write what nobody can read
            raise ModelError(f"the target tokenizer has only {target_tokenizer.size} tokens, the model {rows}")
        self.longest = longest_text(self.model)  # learned positions end, the other schemes go on
        self.reader = SourceReader(source_tokenizer, info=self.info, longest=self.longest)

    @property
    def decoding_model(self) -> Any:
        """The model that decodes: `model`, or a copy of it with packed weights where that is faster (on a CPU)."""
        return self.model if self._packed is None else self._packed.of(self.model)

    @property
    def tokenizer(self) -> Tokenizer:
        """The source's tokenizer; often the target's too."""
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
        """Translate a sentence, or a list of them; a list in gives a list out.

        Beam search of width 5 unless `beam` (1 is greedy) or `search` says otherwise. `alternatives` asks for the
        n best. `prefix` is how each translation shall begin, `include` has words or phrases that each must hold (beam
        search only). `attention` computes the weights now, not when they are first looked at.

        What is longer than the model saw in training is translated in parts: lines, sentences, or less (parts.py). A
        text without letters stays as it is. A translation that is empty or goes in circles (guard.py) is searched for
        anew with that barred, and cut off where it does not help. `guard=False` does none of this.

        What is drawn for a text depends on its number, which is its place in the list unless `numbers` says another:
        those of a long list that is translated bit by bit, say.
        """
        texts = [text] if isinstance(text, str) else list(text)
        search = chosen_search(beam, search, alternatives)
        check_draft(self, search)
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
        cut = [split_text(sentence, self._fits) if guard else [Part(sentence, "")] for sentence in texts]
        start = self.target_tokenizer.encode(prefix) if prefix else []
        phrases = [self.target_tokenizer.encode(phrase) for phrase in include]
        if phrases and any(len(parts) > 1 for parts in cut):
            raise UsageError("include is for one sentence, and a text has several parts: translate them one by one")
        tasks = [
            Task(self.read(part.text), [] if i else start, phrases, number + i * PARTS)
            for number, parts in zip(range(len(texts)) if numbers is None else numbers, cut, strict=True)
            for i, part in enumerate(parts)
        ]
        full = [bool(task.source.words) and (task.source.has_letters or not guard) for task in tasks]
        found = iter(self._found(list(compress(tasks, full)), search, alternatives, max_tokens, guard=guard))
        done = iter([self._best(task, next(found) if some else None) for task, some in zip(tasks, full, strict=True)])
        results = [
            join_translations(sentence, parts, list(islice(done, len(parts)))) if len(parts) > 1 else next(done)
            for sentence, parts in zip(texts, cut, strict=True)
        ]
        if attention:
            for result in results:
                for one in result.alternatives:
                    one.attention  # noqa: B018  # looked at, so computed and kept
        return results[0] if isinstance(text, str) else results

    @overload
    def score(self, source: str, target: str) -> ScoredText: ...

    @overload
    def score(self, source: list[str], target: list[str]) -> list[ScoredText]: ...

    def score(self, source: str | Sequence[str], target: str | Sequence[str]) -> ScoredText | list[ScoredText]:
        """How likely each target is as a translation of its source, token by token, the end token with them."""
        single = isinstance(source, str)
        if single != isinstance(target, str):
            raise UsageError("score takes two texts or two lists of texts, got one of each")
        sources = [source] if isinstance(source, str) else list(source)
        targets = [target] if isinstance(target, str) else list(target)
        if len(sources) != len(targets):
            raise UsageError(f"score needs as many targets as sources, got {len(sources)} and {len(targets)}")
        ids = [[*self.target_tokenizer.encode(one), END] for one in targets]
        scored = score_tokens(self.decoding_model, [self.read(one).ids for one in sources], ids)
        results = [
            ScoredText(text, self.target_tokenizer.pieces(tokens), one.logps)
            for tokens, one, text in zip(ids, scored, targets, strict=True)
        ]
        return results[0] if single else results

    def align(self, source: str, target: str, *, words: Splitter | None = None) -> Alignment:
        """The alignment of a given translation: the model is led along `target`.

        Words are split at spaces, or as `words` splits a text.
        """
        maps, source_words, target_words = self.word_attention(source, target, words=words)
        return make_alignment(self._aligning(maps), source_words, target_words, finished=True)

    def word_attention(
        self, source: str, target: str, *, words: Splitter | None = None
    ) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Attention from target to source words, by layer (heads, M, N), and the words; the end tokens come last."""
        read, ids = self.read(source), self.target_tokenizer.encode(target)
        spans = words_of(self.target_tokenizer, target, ids)
        layers = forced_attention(self.decoding_model, read.ids, [*ids, END])
        cross = {name: weights for name, weights in layers.items() if name.endswith("cross")}
        if words is None:
            ours, theirs = [*read.words, end_word(read.ids)], [*spans, end_word([*ids, END])]
            maps = {name: word_weights(weights, ours, theirs) for name, weights in cross.items()}
            return maps, [word.text for word in ours], [word.text for word in theirs]
        source_words, target_words = (list(words(unicodedata.normalize("NFC", text))) for text in (source, target))
        shares = (
            piece_shares(piece_ends(self.source_tokenizer, read.ids[:-1], read.words), source_words),
            piece_shares(piece_ends(self.target_tokenizer, ids, spans), target_words),
        )
        maps = {name: shared_weights(weights, *shares) for name, weights in cross.items()}
        return maps, [*source_words, SPECIAL_TOKENS[END]], [*target_words, SPECIAL_TOKENS[END]]

    def read(self, text: str) -> Source:
        """The sentence as the model reads it."""
        return self.reader.read(text)

    def attention_of(self, source_ids: Sequence[int], ids: Sequence[int]) -> Attention:
        """All attention weights of the model led along the target `ids`."""
        layers = forced_attention(self.decoding_model, source_ids, ids) if ids else {}
        return Attention({name: weights.cpu() for name, weights in layers.items()})

    def alignment_of(self, translation: Translation, level: Literal["word", "piece"]) -> Alignment:
        """The alignment of a translation of ours; see `Translation.alignment`."""
        if level not in ("word", "piece"):
            raise UsageError(f"level must be 'word' or 'piece', got {level!r}")
        if not translation.ids:
            raise UsageError("an empty translation has no alignment")
        weights = self._aligning(translation.attention.layers)
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
        """The layer and head whose weights align best, chosen on validation; None is the mean of the heads."""
        chosen = self.info.get("alignment")
        if chosen is None:
            config = self.model.config
            last = (getattr(config, "decoder_layers", None) or config.layers) - 1
            return "decoder.cross" if hasattr(config, "cell") else f"decoder.{last}.cross", None
        if not isinstance(chosen, dict) or not isinstance(chosen.get("layer"), str):
            raise ModelError(f"config.json: alignment must name a layer and a head, got {chosen!r}")
        return chosen["layer"], chosen.get("head")

    def _aligning(self, layers: Mapping[str, Tensor]) -> Tensor:
        """The weights (m, n) of the head that aligns."""
        if not any(name.endswith("cross") for name in layers):
            raise UsageError(f"a model of kind {self.model.config.kind!r} has no attention to the source to align by")
        layer, head = self.alignment_head
        weights = layers.get(layer)
        if weights is None or not (head is None or (isinstance(head, int) and 0 <= head < len(weights))):
            raise ModelError(f"config.json: the model has no head {head!r} of layer {layer!r} to align by")
        return weights.mean(0) if head is None else weights[head]

    def _fits(self, text: str) -> bool:
        """Whether the model can take a text whole; a word that it cannot know is one token, however long it is."""
        if self.reader.fits(text):
            return True
        return len(text.split()) == 1 and not self.reader.unseen.isdisjoint(self.source_tokenizer.encode(text))

    def _room(self, task: Task, max_tokens: int | None, least: int) -> int:
        """How many tokens may follow the prefix, if they shall be `least` at least."""
        needed = max(least, sum(map(len, task.phrases))) + 1  # with END
        room = max(TIMES * len(task.source.ids) + MORE, needed) if max_tokens is None else max_tokens
        return room if self.longest is None else min(room, self.longest - len(task.start))

    def _found(
        self,
        tasks: Sequence[Task],
        search: Search,
        alternatives: int,
        max_tokens: int | None,
        *,
        guard: bool,
    ) -> list[list[Hypothesis]]:
        """What the search finds for each source after its prefix."""
        if not tasks:
            return []
        least, model = fewest_tokens(search), self.decoding_model

        def generate(some: Sequence[Task], *, allow_nonsense: bool) -> list[list[Hypothesis]]:
            return generate_tokens(
                model,
                [task.source.ids for task in some],
                search=search,
                prefixes=[task.start for task in some] if any(task.start for task in some) else None,
                constraints=[task.phrases for task in some] if any(task.phrases for task in some) else None,
                max_tokens=[self._room(task, max_tokens, least) for task in some],
                alternatives=alternatives,
                allow_nonsense=allow_nonsense,
                numbers=[task.number for task in some],
            )

        found = generate(tasks, allow_nonsense=True)
        if not guard:
            return found
        bad = [
            i
            for i, task in enumerate(tasks)
            if is_nonsense(found[i][0], task.source, self.target_tokenizer, begun=bool(task.start))
        ]
        again = generate([tasks[i] for i in bad], allow_nonsense=False) if bad else []
        for i, better in zip(bad, again, strict=True):
            # Where the same words come again in other pieces, the text ends with the first of them, unless it must hold
            # something or have a length.
            kept = bool(tasks[i].phrases or least)
            ends = [None if kept else circle_end(one, tasks[i].source, self.target_tokenizer) for one in better]
            found[i] = [cut_off(one, end) for one, end in zip(better, ends, strict=True)]
        return found

    def _best(self, task: Task, found: Sequence[Hypothesis] | None) -> Translation:
        """The best translation, with all that were asked for as its alternatives; None: there was nothing to do."""
        if found is None:
            results = [self._translation(task.source, [], score=0.0, finished=True)]
            results[0].text = task.source.text.strip()
        else:
            results = [
                self._translation(task.source, [*task.start, *one.tokens], score=one.score, finished=one.finished)
                for one in found
            ]
        for one in results:
            one.alternatives = results
        return results[0]

    def name_words(self, source: Source, ids: Sequence[int]) -> tuple[str, list[Word]]:
        """The text of tokens that were written for a source, and its words, with names in the place of each UNKNOWN."""
        made = self._translation(source, list(ids), score=0.0, finished=True)
        return made.text, made.words

    def _translation(self, source: Source, ids: list[int], *, score: float, finished: bool) -> Translation:
        """The text of the tokens; each UNKNOWN among them becomes the source word that it looked at most."""
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
            weights = self._aligning(result.attention.layers)
            copies = most_attended_words(weights, source.ids, source.units, ids)
            copies = fit_copies(copies, ids, result.tokens)
            result.text = self.target_tokenizer.decode(written, unknown=copies)
            result.words = name_copies(self.target_tokenizer, written, result.words, copies)
        return result


def chosen_search(beam: int | None, search: Search | None, alternatives: int) -> Search:
    """The search that was asked for; by default a beam wide enough for the alternatives."""
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


def fewest_tokens(search: Search) -> int:
    """How many tokens the rules of a search ask for at least."""
    return max((rule.count for rule in search.rules if isinstance(rule, MinTokens)), default=0)


def end_word(tokens: Sequence[int]) -> Word:
    """The last token, END, as a word of its own."""
    return Word(SPECIAL_TOKENS[END], len(tokens) - 1, len(tokens))
