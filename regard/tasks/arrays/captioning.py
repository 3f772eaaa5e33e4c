"""Captioning: from images or videos with captions to a `Captioner`.

G4; Xu et al. 2015. Data is a folder with captions.tsv, scenes composed of labelled images, or scenes of demo shapes.

    B images or videos   T frames   C channels   H height   W width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from regard.api.arrays.captioner import Captioner
from regard.arrays.batches import ArrayData
from regard.arrays.caption_batches import CaptionData
from regard.arrays.captions import CaptionedImages, read_captioned
from regard.arrays.images import Images, Size, read_images
from regard.errors import DataError, UsageError
from regard.models.config import Config, FrameConfig
from regard.models.presets import MODELS
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.required import required
from regard.recipes.tables import RecipeTables, TrainingRecipe
from regard.tasks.arrays.array_task import TEXT_KEYS, ArrayTask, network_config
from regard.tasks.arrays.image_classification import LARGEST_SIDE, MAX_PATCH, MIN_GRID, held_out_rows
from regard.tasks.corpora import Corpora, numbered_tokens, train_tokenizer
from regard.tasks.losses import Objective, Together, caption_loss
from regard.tasks.task import Data, LossUnit, Misfit, Tokenizers
from regard.tasks.validation import LOSS, Measure, Validator
from regard.text.batches.batch import Batch
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.words import train_words

DEMO_VALIDATION = 500  # scenes
BATCH_IMAGES = 64
FEW_WORDS = 2000  # different words of captions, up to which words are tokens
REHEARSED = 32  # samples that represent a validation in a trial run


class Captioning(ArrayTask):
    """Describe images or videos in words."""

    name = "captioning"
    models: ClassVar = {kind: MODELS[kind] for kind in ("captioner", "rnn-captioner")}
    forms = ("images", "demo")
    needs = "images (a folder with captions.tsv, or labelled images together with data.scenes)"
    usage = "regard caption -m FOLDER picture.png\nregard plot caption -m FOLDER picture.png"
    face = "captioner"
    reads = "image"
    array_keys = ("scenes", "items")
    length_key = "model.height and model.width"
    loss_unit: ClassVar[LossUnit] = "tokens"
    predicts_tokens = True
    tokenizer_kinds = ("words", "unigram", "bpe", "characters")
    decodes_validation = True
    default_model = "patches of an image as source tokens"

    # Data

    def read_corpora(self, recipe: RecipeTables) -> Corpora[CaptionedImages]:
        data, seed, frames = recipe.data, recipe.training.seed, recipe.model.get("frames") or 1
        if data.demo:
            from regard.demo.scenes import demo_items

            shapes = Corpora(demo_items(seed=1), demo_items(seed=2))
            return scene_corpora(shapes, data.demo, data.validation or DEMO_VALIDATION, frames, seed)
        skip = data.faults == "skip"
        if data.scenes:
            items = read_items(recipe, data.images)
            held_out = read_items(recipe, data.validation_images) if data.validation_images else None
            parts = split_items(items, seed) if held_out is None else Corpora(items, held_out)
            return scene_corpora(parts, data.scenes, data.validation or DEMO_VALIDATION, frames, seed)
        train = read_captioned(data.images, frames=frames, skip=skip)
        size = frame_size(recipe.kind, recipe.model, train.pixels.shape[2:])
        if size != train.pixels.shape[2:]:
            train = read_captioned(data.images, frames=frames, size=size, skip=skip)
        if data.validation_images:
            return Corpora(train, read_captioned(data.validation_images, frames=frames, size=size, skip=skip))
        rows, held_rows = held_out_rows(train.pixels, data.validation, seed)
        return Corpora(train.select(rows), train.select(held_rows))

    def facts(self, recipe: RecipeTables, corpora: Corpora[CaptionedImages]) -> DataFacts:
        train = corpora.train
        shape = train.pixels.shape[1:]
        patch = recipe.model.get("patch") or chosen_patch(recipe.kind, shape[1:])
        words = [word for caption in train.captions for word in caption.split()]
        cells = shape[0] * (shape[2] // patch) * (shape[3] // patch)
        return DataFacts(
            samples=len(train),
            words=len(words),
            characters=sum(map(len, train.captions)),
            distinct_words=len(set(words)),
            validation_samples=len(corpora.validation),
            validation_characters=sum(map(len, corpora.validation.captions)),
            tokens=len(train) * cells,
            shape=shape,
        )

    def make_tokenizers(self, recipe: RecipeTables, corpus: CaptionedImages) -> Tokenizers:
        settings = recipe.tokenizer
        if settings.kind == "words":
            tokenizer: Tokenizer = train_words(
                corpus.captions, min_count=settings.min_count or 1, size=settings.size, tokenised=True
            )
        else:
            tokenizer = train_tokenizer(recipe, corpus.captions)
        return tokenizer, tokenizer

    def make_data(
        self,
        recipe: RecipeTables,
        corpus: CaptionedImages,
        tokenizers: Tokenizers,
        *,
        training: bool,
        cache: Path | None,
    ) -> ArrayData:
        return CaptionData(
            corpus,
            tokenizers[1].encode_all(corpus.captions),
            batch_tokens=required(recipe.training.batch_tokens),
            row_tokens=self.longest_row(recipe, Corpora(corpus, corpus), tokenizers),
            seed=recipe.training.seed,
            shuffle=training,
        )

    def longest_row(self, recipe: RecipeTables, corpora: Corpora[CaptionedImages], tokenizers: Tokenizers) -> int:
        """Return the cells of a sample; its caption is short in comparison."""
        config: Any = network_config(recipe)
        return config.cells

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        assert isinstance(config, FrameConfig)
        shape = (rows, config.frames, config.channels, config.height, config.width)
        frames = torch.zeros(shape, dtype=torch.uint8, device=device)
        numbers = torch.arange(rows * FULL_CAPTION, device=device).view(rows, FULL_CAPTION)
        words = numbered_tokens(numbers, config.vocabularies[0])
        return Batch(list(range(rows)), frames, words, words, words.numel())

    # Learning

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return partial(caption_loss, smoothing=training.label_smoothing or 0.0, kernels=training.kernels != "off")

    def validator(self, *args: Any, **options: Any) -> Validator:
        return CaptionValidator(*args, **options)

    # Settings

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        data = recipe.data
        for key in TEXT_KEYS:
            if getattr(data, key) != getattr(type(data), key):
                yield f"data.{key}", "reads no text"
        if recipe.tokenizer.shared is not None:
            yield "tokenizer.shared", "reads no text, so it has one vocabulary"
        if recipe.tokenizer.sampling:
            yield "tokenizer.sampling", "does not sample the tokens of captions"
        if recipe.training.r_drop:
            yield "training.r_drop", "has no second pass for it"
        if recipe.training.temperature != TrainingRecipe.temperature:
            yield "training.temperature", "has no use for it"
        if data.scenes and data.demo:
            yield "data.scenes", "composes scenes of given images, and demo has its own"
        if data.items and not data.scenes:
            yield "data.items", "needs data.scenes with it"

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        few = facts.distinct_words <= FEW_WORDS
        why = f"captions have {facts.distinct_words:,} different words"
        yield Choice("tokenizer.kind", "words" if few else "unigram", why)

    def input_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        for key, value in zip(("frames", "channels", "height", "width"), facts.shape, strict=True):
            yield Choice(f"model.{key}", value, "the size of the images")
        patch = chosen_patch(tables["model"]["kind"], facts.shape[1:])
        yield Choice("model.patch", patch, f"at least {MIN_GRID - 1} cells on a side")

    def training_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        cells = (facts.tokens or 0) // max(1, facts.samples)
        yield Choice("training.batch_tokens", BATCH_IMAGES * cells, f"{BATCH_IMAGES} images")

    # Use

    def info(self, recipe: RecipeTables, train: Data, tokenizers: Tokenizers) -> dict[str, Any]:
        """Return the number of tokens of the longest caption."""
        assert isinstance(train, CaptionData)
        return {"longest_caption": int(train.lengths.max())}

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Captioner:
        return Captioner(model, target, info=info)


FULL_CAPTION = 32  # tokens of a caption in a batch that measures memory


class CaptionValidator(Validator):
    """A validator that writes captions, and selects the model with the most that are exactly right."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.captioner = Captioner(self.model, self.tokenizers[1], info=self.info)
        if self.recipe.decoding.sentences:
            self.measure = Measure("exact", "captions exactly right", why="right captions are the goal", share=True)
        else:
            self.measure = LOSS

    def more_scores(self, step: int) -> str:
        count = min(self.recipe.decoding.sentences, len(self.corpus))
        if not count:
            return ""
        self.stop.check()
        part = self.corpus.select(range(count))
        scores = self.captioner.evaluate(part)
        self.scores |= {name: value for name, value in scores.items() if name != "images"}
        shown = min(count, self.recipe.training.samples)
        written = self.captioner.caption_pixels(part.pixels[:shown], part.names[:shown])
        self.samples = [
            (name, caption, output.text)
            for name, caption, output in zip(part.names, part.captions, written, strict=False)
        ]
        line = f"  exactly right {scores['exact']:.1%}"
        if not math.isnan(scores.get("pointing", math.nan)):  # it is NaN as long as no caption is right
            line += f"  peaks on the item {scores['pointing']:.1%}"
        for _, caption, output in self.samples[:2]:
            line += f"\n    {caption}\n    → {output}"
        return line

    def rehearse(self, timed: Callable[..., float], *, seconds: float) -> tuple[float, float]:
        count = min(self.recipe.decoding.sentences, len(self.corpus))
        tried = min(count, REHEARSED)
        if not tried:
            return 0.0, 0.0
        return timed(self.captioner.evaluate, self.corpus.select(range(tried))) * count / tried, 0.0


def scene_corpora(
    items: Corpora[Images], count: int, held_out: int, frames: int, seed: int
) -> Corpora[CaptionedImages]:
    """Compose scenes of the items of each part, so that validation shows items that training never saw."""
    from regard.demo.scenes import make_scenes

    train = make_scenes(items.train, count, frames=frames, seed=seed, name="scenes")
    validation = make_scenes(items.validation, held_out, frames=frames, seed=seed + 1, name="scenes, validation")
    return Corpora(train, validation)


def split_items(items: Images, seed: int) -> Corpora[Images]:
    """Hold out a tenth of the images of each kind, for the scenes of the validation."""
    train, held_out = [], []
    for noun in sorted(set(items.labels)):
        rows = [row for row, label in enumerate(items.labels) if label == noun]
        if len(rows) < 2:
            raise DataError(f"{items.report.files[0]}: scenes need at least two images of {noun!r}: one is held out")
        first, second = held_out_rows(items.pixels[rows], None, seed)
        train += [rows[i] for i in first]
        held_out += [rows[i] for i in second]
    return Corpora(items.select(train), items.select(held_out))


def read_items(recipe: RecipeTables, files: tuple[str, ...]) -> Images:
    """Read labelled images as items of scenes: grey, and named as data.items says."""
    images = read_images(files, skip=recipe.data.faults == "skip")
    side = min(images.pixels.shape[2:])
    if images.pixels.shape[1:] != (1, side, side):
        images = read_images(files, (1, side, side), skip=recipe.data.faults == "skip")
    if not recipe.data.items:
        return images
    nouns: dict[str, str] = {}
    for entry in recipe.data.items:
        noun, equals, label = entry.partition("=")
        if not equals or not noun.strip():
            raise UsageError(f'data.items: write a noun, "=" and a label, such as "bag=8", not {entry!r}')
        nouns[label.strip()] = noun.strip()
    if unknown := set(nouns) - set(images.labels):
        raise DataError(f"data.items: there are no images with the label {min(unknown)!r} in {files[0]}")
    named = images.select([row for row, label in enumerate(images.labels) if label in nouns])
    return Images(named.pixels, [nouns[label] for label in named.labels], named.names, named.report)


def chosen_patch(kind: str, shape: tuple[int, ...]) -> int:
    """Return the pixels on a side of a cell for images (C, H, W); for a convolutional network, a power of 2.

    Sides that divide the image come first. Where none does, the images are made a little smaller.
    """
    powers = kind == "rnn-captioner"
    largest = max(2 if powers else 1, min(MAX_PATCH, min(shape[1:]) // (MIN_GRID - 1)))
    sides = [side for side in range(largest, (largest - 1) // 2, -1) if not powers or side & (side - 1) == 0]
    return next((side for side in sides if shape[1] % side == shape[2] % side == 0), sides[0])


def frame_size(kind: str, model: Mapping[str, Any], usual: tuple[int, ...]) -> Size:
    """Return the size (C, H, W) for images of a usual size: what the recipe says, or one that cells divide."""
    channels, height, width = usual
    if max(height, width) > LARGEST_SIDE:
        height = width = LARGEST_SIDE
    patch = model.get("patch") or chosen_patch(kind, (channels, height, width))
    height, width = (max(patch, side - side % patch) for side in (height, width))
    return model.get("channels") or channels, model.get("height") or height, model.get("width") or width


TASK = Captioning()
