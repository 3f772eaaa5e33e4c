"""Translation: from sentence pairs to a `Translator`.

D13 to D17, E3 to E8. Validation translates some sentences and reports BLEU and chrF.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from regard.api.translator import Translator
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.errors import RegardError
from regard.evaluation.alignment_heads import choose_aligning_heads, choose_alignment_head
from regard.evaluation.bleu import Score, corpus_bleu, corpus_chrf
from regard.models.config import Config
from regard.models.layer_names import is_cross_attention
from regard.models.presets import MODELS
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.tables import SHARES, RecipeTables, TrainingRecipe
from regard.tasks.corpora import Corpora, longest_pair, numbered_tokens, read_pair_corpora, train_tokenizer
from regard.tasks.imported_start import ImportedStart
from regard.tasks.losses import Objective, Together, translation_loss
from regard.tasks.task import Data, Misfit, Task, Tokenizers
from regard.tasks.validation import LOSS, Measure, Validator
from regard.text.augment.proper_names import frequent_names
from regard.text.batches.batch import Batch
from regard.text.batches.pair_frame import PairFrame
from regard.text.batches.pairs import PairData
from regard.text.files.corpus import Corpus
from regard.text.placeholders.placeholders import hide_corpus
from regard.text.tokenizers.special_tokens import START
from regard.text.tokenizers.tokenizer import Tokenizer, unseen

SENTENCES_PER_CALL = 256  # between two checks for a request to stop
ALIGNED_SENTENCES = 128  # of the validation part, used to choose the alignment heads
ALIGNED_SAMPLE = 10  # sentences that represent them in a trial run
# Translated sentences from which on their chrF selects the best model. Scores of fewer are noise, and BLEU more so than
# chrF: it counts sequences of four words, of which a weak model gets few right.
MIN_SENTENCES_FOR_CHRF = 100
FIRST_SENTENCES, SENTENCES_FACTOR = 8, 4  # sentences of the first timed translation, and the growth of the next ones


class TranslationTask(Task):
    """Translate sentences of one language into another."""

    name = "translation"
    models: ClassVar = {kind: MODELS[kind] for kind in ("transformer", "rnn-attention", "rnn-seq2seq")}
    forms = ("source", "pairs", "demo")
    needs = "pairs, or source and target"
    usage = (
        'regard translate -m FOLDER -t "…"\nregard evaluate -m FOLDER source.txt reference.txt\nregard explore FOLDER'
    )
    face = "translator"
    fixed_shapes = True
    own_special_tokens = True
    decodes_validation = True
    label_smoothing = (0.1, "as in Vaswani et al. 2017")

    def read_corpora(self, recipe: RecipeTables) -> Corpora:
        return read_pair_corpora(recipe)

    def make_tokenizers(self, recipe: RecipeTables, corpus: Corpus) -> Tokenizers:
        target = corpus.target or []
        if recipe.tokenizer.shared:
            shared = train_tokenizer(recipe, [*corpus.source, *target])
            return shared, shared
        return train_tokenizer(recipe, corpus.source), train_tokenizer(recipe, target)

    def make_data(
        self, recipe: RecipeTables, corpus: Corpus, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> PairData:
        if recipe.data.placeholders:
            languages = recipe.data.source_language, recipe.data.target_language
            corpus = hide_corpus(corpus, languages, recipe.training.seed)
        return make_pairs(recipe, corpus, tokenizers, training=training, cache=cache, fixed_shapes=self.fixed_shapes)

    def make_imported_data(
        self,
        recipe: RecipeTables,
        corpus: Corpus,
        tokenizers: Tokenizers,
        start: ImportedStart,
        *,
        training: bool,
        cache: Path | None,
    ) -> PairData:
        frame = start.translation_frame(corpus.source)
        shapes = self.fixed_shapes
        return make_pairs(recipe, corpus, tokenizers, training=training, cache=cache, fixed_shapes=shapes, frame=frame)

    def longest_row(self, recipe: RecipeTables, corpora: Corpora, tokenizers: Tokenizers) -> int:
        return longest_pair(recipe, corpora, tokenizers)

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        numbers = torch.arange(rows * length, device=device).view(rows, length)  # (B, L)
        source, target = (numbered_tokens(numbers, vocabulary) for vocabulary in config.vocabularies)
        return Batch(list(range(rows)), source, target, target, target.numel())

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return partial(
            translation_loss,
            smoothing=training.label_smoothing or 0.0,
            r_drop=training.r_drop,
            kernels=training.kernels != "off",
        )

    def validator(self, *args: Any, **options: Any) -> Validator:
        return TranslationValidator(*args, **options)

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        if recipe.data.context is not None:
            yield "data.context", "reads sentences: give max_length"
        for share in SHARES:
            if getattr(recipe.data, share) and recipe.tokenizer.kind == "characters":
                yield f"data.{share}", "that reads characters has no words to change"
        if recipe.data.placeholders and recipe.tokenizer.kind == "characters":
            yield "data.placeholders", "that reads characters has no tokens for them"
        if recipe.tokenizer.shared is False and recipe.model.get("share_embeddings"):
            yield "tokenizer.shared", "with one table of vectors has one vocabulary"
        if recipe.training.temperature != TrainingRecipe.temperature:
            yield "training.temperature", "has no use for it"
        if recipe.training.pointing:
            yield "training.pointing", "has no pointer"

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        yield Choice("tokenizer.kind", "unigram", "subwords leave no word unknown")
        if tables["model"].get("share_embeddings"):
            yield Choice("tokenizer.shared", True, "model.share_embeddings asks for it")
        else:
            similar = facts.shared_letters >= 0.5
            share = f"{facts.shared_letters:.0%} of the source's letters are in the target"
            why = f"{share}: names and numbers {'can be copied' if similar else 'differ'}"
            yield Choice("tokenizer.shared", similar, why)

    def model_defaults(self, tables: Mapping[str, Any]) -> Iterator[Choice]:
        names = {field.name for field in dataclasses.fields(MODELS[tables["model"]["kind"]][0])}
        if "share_embeddings" in names:
            shared = bool(tables["tokenizer"]["shared"])
            why = "one table for one vocabulary" if shared else "two vocabularies"
            yield Choice("model.share_embeddings", shared, why)

    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        return pair_defaults(tables, facts)

    def info(self, recipe: RecipeTables, train: Data, tokenizers: Tokenizers) -> dict[str, Any]:
        """Return the source tokens that never occurred in training, and the names that did."""
        assert isinstance(train, PairData)
        met = np.unique(train.rows[0].flat).tolist()
        info: dict[str, Any] = {"unseen_pieces": unseen(tokenizers[0], [met])}
        if recipe.data.names is not None:
            info["known_names"] = frequent_names(map(tokenizers[0].decode, train.rows[0]), recipe.data.names)
        return info

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Translator:
        return Translator(model, source, target, info=info, pack=pack)


class TranslationValidator(Validator):
    """A validator that computes BLEU and chrF of some sentences and plots an alignment."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.translator = Translator(self.model, *self.tokenizers, info=self.info)
        self.measure = translation_measure(min(self.recipe.decoding.sentences, len(self.corpus)))

    def more_scores(self, step: int) -> str:
        if not self.recipe.decoding.sentences:
            return ""
        bleu, chrf = self.translate()
        self.scores |= {"bleu": bleu.to_dict(), "chrf": chrf.to_dict()}
        line = f"  BLEU {bleu.value:.1f}  chrF {chrf.value:.1f}"
        for source, _, output in self.samples[:2]:
            line += f"\n    {source}\n    → {output}"
        self.draw(step)
        return line

    def translate(self) -> tuple[Score, Score]:
        """Return BLEU and chrF of the first sentences; keep some of them as samples."""
        assert self.corpus.target is not None
        decoding = self.recipe.decoding
        search = Greedy() if decoding.beam == 1 else Beam(decoding.beam, length_penalty=decoding.length_penalty)
        sources, references = self.corpus.source[: decoding.sentences], self.corpus.target[: decoding.sentences]
        outputs: list[str] = []
        for start in range(0, len(sources), SENTENCES_PER_CALL):
            self.stop.check()
            chunk = sources[start : start + SENTENCES_PER_CALL]
            translations = self.translator.translate(chunk, search=search, max_tokens=decoding.max_tokens, guard=False)
            outputs += [translation.text for translation in translations]
        self.samples = list(zip(sources, references, outputs, strict=True))[: self.recipe.training.samples]
        tokenize = "none" if self.recipe.tokenizer.tokenised else "13a"  # its words are already separated
        return corpus_bleu(outputs, references, tokenize=tokenize), corpus_chrf(outputs, references)

    def draw(self, step: int) -> None:
        """Save a picture of the attention between the first sample and its source."""
        if not self.samples or not self.translator.model.config.cross_layers:
            return
        from regard.look.pictures.drawing import figures
        from regard.look.pictures.matrices import alignment_plot

        source, _, output = self.samples[0]
        try:
            alignment = self.translator.align(source, output)
        except RegardError:  # an untrained model may generate nothing
            return
        folder = self.folder / "alignments"
        folder.mkdir(exist_ok=True)
        figure = alignment_plot(alignment.weights, alignment.source, alignment.target, title=f"step {step}")
        figures.save(figure, folder / f"step-{step:08d}.png")

    def alignment_head(self) -> dict[str, Any] | None:
        """Return the heads whose weights predict the translation best; no gold alignment is needed."""
        if not self.translator.model.config.cross_layers:
            return None
        assert self.corpus.target is not None
        return alignment_heads(
            self.translator, self.corpus.source[:ALIGNED_SENTENCES], self.corpus.target[:ALIGNED_SENTENCES]
        )

    def rehearse(self, timed: Callable[..., float], *, seconds: float) -> tuple[float, float]:
        judging = 0.0
        if self.recipe.decoding.sentences:
            judging = self.rehearse_translation(timed, seconds)
            self.draw(0)  # the first picture takes longer
            judging += timed(self.draw, 0)
        aligned = min(ALIGNED_SENTENCES, len(self.corpus))
        tried = min(ALIGNED_SAMPLE, aligned)
        targets = self.corpus.target or []
        self.corpus = dataclasses.replace(self.corpus, source=self.corpus.source[:tried], target=targets[:tried])
        return judging, timed(self.alignment_head) * aligned / tried

    def rehearse_translation(self, timed: Callable[..., float], seconds: float) -> float:
        """Estimate the seconds to translate the sentences of a validation from growing samples of them.

        An untrained model rarely predicts the end token, so it is stopped at the length of the longest reference.
        """
        recipe: Any = self.recipe
        count = min(recipe.decoding.sentences, len(self.corpus))
        references = self.tokenizers[1].encode_all((self.corpus.target or [])[:count])
        limit = min(recipe.decoding.max_tokens or 2**31, 1 + max(map(len, references)))
        timings: list[tuple[int, float]] = [(0, 0.0)]  # sentences, seconds
        while timings[-1][0] < count and (len(timings) < 3 or timings[-1][1] < seconds / SENTENCES_FACTOR):
            sentences = min(count, SENTENCES_FACTOR * timings[-1][0] or FIRST_SENTENCES)
            decoding = dataclasses.replace(recipe.decoding, sentences=sentences, max_tokens=limit)
            self.recipe = dataclasses.replace(recipe, decoding=decoding)
            if len(timings) == 1:
                self.translate()  # the first time takes longer
            timings.append((sentences, timed(self.translate)))
        (fewer, before), (sentences, last) = timings[-2:]
        return last + (count - sentences) * max(0.0, last - before) / (sentences - fewer)


def alignment_heads(translator: Translator, source: Sequence[str], target: Sequence[str]) -> dict[str, Any]:
    """Return the entry `alignment` of config.json: the heads that align these sentence pairs best.

    `layer` and `head` are the best head at the step that writes a token, `heads` those whose mean is the alignment.
    """
    maps, sources, targets = [], [], []
    for source_text, target_text in zip(source, target, strict=True):
        read = translator.read(source_text)
        ids = [*translator.frame.before_target(), *translator.encode_target(target_text, read), translator.special.end]
        layers = translator.attention_of(read.ids, ids).layers
        maps.append({name: weights for name, weights in layers.items() if is_cross_attention(name)})
        sources.append(read.ids)
        targets.append(ids)
    heads = choose_aligning_heads(maps, sources, targets, translator.special.ends)
    best = choose_alignment_head(maps, sources, targets)
    return {**best.to_dict(), "heads": [head._asdict() for head in heads]}


def translation_measure(sentences: int) -> Measure:
    """Return the score that selects the best translator when a validation translates so many sentences."""
    if sentences >= MIN_SENTENCES_FOR_CHRF:
        return Measure("chrf", "chrF")
    why = f"chrF of fewer than {MIN_SENTENCES_FOR_CHRF} sentences is too noisy" if sentences else ""
    return dataclasses.replace(LOSS, why=why)


def make_pairs(
    recipe: RecipeTables,
    corpus: Corpus,
    tokenizers: Tokenizers,
    *,
    training: bool,
    cache: Path | None,
    fixed_shapes: bool,
    frame: PairFrame | None = None,
) -> PairData:
    """Tokenise sentence pairs; only the training part is shuffled, sampled and augmented.

    `frame` are the tokens around both sides, by default those of regard's own models.
    """
    settings = recipe.training
    if frame is None:
        frame = PairFrame(before_source=(START,) * bool(recipe.model.get("source_start")))
    assert settings.batch_tokens is not None  # the recipe is complete
    return PairData(
        corpus,
        *tokenizers,
        batch_tokens=settings.batch_tokens,
        seed=settings.seed,
        shuffle=training,
        max_length=recipe.data.max_length,
        sampling=recipe.tokenizer.sampling if training else 0.0,
        **({share: getattr(recipe.data, share) for share in SHARES} if training else {}),
        bucketed=training and settings.fixed_shapes and fixed_shapes,
        frame=frame,
        cache=cache,
    )


def pair_defaults(tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
    """Yield defaults of [data] for sentence pairs."""
    data, batch = tables["data"], tables["training"]["batch_tokens"]
    why = "longer pairs are mostly wrong ones, and cost memory"
    yield Choice("data.max_length", min(batch, 256), why)
    if not any(data[f"validation_{form}"] for form in ("source", "pairs", "text")):
        held_out = max(1, min(1000, facts.samples // 20))
        yield Choice("data.validation", held_out, "a twentieth of the pairs, 1000 at most")


TASK = TranslationTask()
