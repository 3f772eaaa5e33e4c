"""Image classification: from labelled images to an `ImageClassifier`.

G5; Dosovitskiy et al. 2021. Images come in folders, one per class, or in IDX files.

    B images   C channels   H height   W width
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.api.arrays.image_classifier import ImageClassifier
from regard.arrays.batches import ArrayData, ImageData
from regard.arrays.images import Images, Size, read_images
from regard.errors import DataError, ModelError
from regard.models.config import Config, ImageClassifierConfig
from regard.models.presets import MODELS
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.required import required
from regard.recipes.tables import RecipeTables, TrainingRecipe
from regard.tasks.arrays.array_task import ArrayTask, network_config
from regard.tasks.classification import AccuracyValidator
from regard.tasks.corpora import Corpora
from regard.tasks.losses import Objective, Together, image_loss
from regard.tasks.task import Tokenizers
from regard.tasks.validation import Measure, Validator
from regard.text.batches.batch import Batch
from regard.text.tokenizers.labels import LabelTokenizer, train_labels
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.text.tokenizers.tokenizer import Tokenizer

DEMO_VALIDATION = 700
BATCH_IMAGES = 64
LARGEST_SIDE = 224  # pixels; larger images are scaled to this size, as by Dosovitskiy et al.
MAX_PATCH, MIN_GRID = 16, 7  # the largest patch that is chosen, and the fewest patches on a side


class ImageClassification(ArrayTask):
    """Say which of some classes an image belongs to."""

    name = "image classification"
    models: ClassVar = {"image-classifier": MODELS["image-classifier"]}
    forms = ("images", "demo")
    needs = "images (a folder with one folder per class, or IDX files)"
    usage = "regard classify -m FOLDER picture.png\nregard plot image -m FOLDER picture.png"
    face = "image classifier"
    reads = "image"
    array_keys = ("shift", "flip", "erase", "mix")
    length_key = "model.height and model.width"
    default_model = "patches of an image as tokens (Dosovitskiy et al. 2021)"

    def read_corpora(self, recipe: RecipeTables) -> Corpora[Images]:
        data, seed = recipe.data, recipe.training.seed
        if data.demo:
            from regard.demo.images import demo_images

            held_out = demo_images(data.validation or DEMO_VALIDATION, seed=seed + 1, name="demo images, validation")
            return Corpora(demo_images(data.demo, seed=seed), held_out)
        skip = data.faults == "skip"
        train = read_images(data.images, skip=skip)
        size = image_size(recipe.model, train.pixels.shape[1:])
        if size != train.pixels.shape[1:]:
            train = read_images(data.images, size, skip=skip)
        if data.validation_images:
            return Corpora(train, read_images(data.validation_images, size, skip=skip))
        return split_images(train, data.validation, seed)

    def facts(self, recipe: RecipeTables, corpora: Corpora[Images]) -> DataFacts:
        shape = corpora.train.pixels.shape[1:]
        patch = recipe.model.get("patch") or chosen_patch(shape)
        return DataFacts(
            samples=len(corpora.train),
            words=0,
            characters=corpora.train.pixels.size,
            distinct_words=0,
            validation_samples=len(corpora.validation),
            validation_characters=corpora.validation.pixels.size,
            tokens=len(corpora.train) * (1 + shape[1] * shape[2] // patch**2),
            shape=shape,
        )

    def make_tokenizers(self, recipe: RecipeTables, corpus: Images) -> Tokenizers:
        labels = train_labels(corpus.labels)
        return labels, labels

    def make_data(
        self, recipe: RecipeTables, corpus: Images, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> ArrayData:
        labels = tokenizers[1].encode_all(corpus.labels)
        return ImageData(
            corpus,
            [token - len(SPECIAL_TOKENS) for (token,) in labels],
            batch_tokens=required(recipe.training.batch_tokens),
            row_tokens=self.longest_row(recipe, Corpora(corpus, corpus), tokenizers),
            seed=recipe.training.seed,
            shuffle=training,
            shift=recipe.data.shift if training else 0,
            flip=recipe.data.flip and training,
            erase=recipe.data.erase if training else 0.0,
            mix=recipe.data.mix if training else "none",
        )

    def longest_row(self, recipe: RecipeTables, corpora: Corpora[Images], tokenizers: Tokenizers) -> int:
        config: Any = network_config(recipe)
        return config.tokens

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        assert isinstance(config, ImageClassifierConfig)
        shape = (rows, config.channels, config.height, config.width)
        images = torch.zeros(shape, dtype=torch.uint8, device=device)
        labels = torch.zeros(rows, 1, dtype=torch.long, device=device)
        return Batch(list(range(rows)), images, labels, labels, rows * length)

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return partial(image_loss, smoothing=training.label_smoothing or 0.0)

    def validator(self, *args: Any, **options: Any) -> Validator:
        return ImageValidator(*args, **options)

    def input_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        channels, height, width = facts.shape
        for key, value in (("channels", channels), ("height", height), ("width", width)):
            yield Choice(f"model.{key}", value, "the size of the images")
        patch = chosen_patch(facts.shape)
        yield Choice("model.patch", patch, f"at least {MIN_GRID} patches on a side")
        if tables["model"].get("position", ImageClassifierConfig.position) == "learned":
            yield Choice("model.max_length", row_tokens(facts), "the patches of an image, and the class token")

    def training_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        yield Choice("training.batch_tokens", BATCH_IMAGES * row_tokens(facts), f"{BATCH_IMAGES} images")

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> ImageClassifier:
        if not isinstance(target, LabelTokenizer):
            raise ModelError(f"the labels of the image classifier are missing: the file {LabelTokenizer.FILE}")
        return ImageClassifier(model, target, info=info)


class ImageValidator(AccuracyValidator):
    """A validator that selects the model with the most right answers."""

    measure = Measure("accuracy", "accuracy", why="the share of right answers is the goal", share=True)


def row_tokens(facts: DataFacts) -> int:
    """Return the tokens of an image."""
    return (facts.tokens or 0) // max(1, facts.samples)


def chosen_patch(shape: tuple[int, ...]) -> int:
    """Return the pixels on a side of a patch for images (C, H, W)."""
    return max(1, min(MAX_PATCH, min(shape[1:]) // MIN_GRID))


def image_size(model: Mapping[str, Any], usual: tuple[int, ...]) -> Size:
    """Return the size (C, H, W) for images of a usual size: what the recipe says, or one that patches divide."""
    channels, height, width = usual
    if max(height, width) > LARGEST_SIDE:
        height = width = LARGEST_SIDE
    patch = model.get("patch") or chosen_patch((channels, height, width))
    height, width = (max(patch, side - side % patch) for side in (height, width))
    return model.get("channels") or channels, model.get("height") or height, model.get("width") or width


def split_images(images: Images, count: int | None, seed: int) -> Corpora[Images]:
    """Hold out `count` images, chosen by the hash of their pixels, so that copies of an image stay together."""
    train, held_out = held_out_rows(images.pixels, count, seed)
    return Corpora(images.select(train), images.select(held_out))


def held_out_rows(pixels: NDArray[np.uint8], count: int | None, seed: int) -> tuple[list[int], list[int]]:
    """Return the rows to train on, and `count` rows to hold out: by default a tenth, 10,000 at most."""
    count = count or max(1, min(10_000, len(pixels) // 10))
    if count >= len(pixels):
        raise DataError(
            f"{count} of {len(pixels)} images are held out for validation, which leaves none to train on: "
            f"lower data.validation or give validation_images"
        )
    key = str(seed).encode()
    hashes = [hashlib.blake2b(image.tobytes(), digest_size=8, key=key).digest() for image in pixels]
    limit = sorted(hashes)[count - 1]
    train = [i for i, value in enumerate(hashes) if value > limit]
    if not train:
        raise DataError("all images are equal, so none can be held out: give validation_images")
    return train, [i for i, value in enumerate(hashes) if value <= limit][:count]


TASK = ImageClassification()
