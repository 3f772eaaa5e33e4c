"""An image classifier with its labels: it says what is in a picture, and where it looked.

G5; Dosovitskiy et al. 2021.

    N images   C channels   H height   W width   K classes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.api.html import describe_model, model_html, model_repr
from regard.api.saving import learned_from_demo, save_face
from regard.arrays.images import Images, open_image, to_pixels
from regard.attention.recording.recorder import record
from regard.decoding.model_step import evaluating
from regard.demo.images import SHAPES, demo_images
from regard.errors import ModelError
from regard.look.trace.inputs.images import trace_image
from regard.look.trace.inputs.input_trace import InputTrace
from regard.models.config import ImageClassifierConfig
from regard.models.folder.weights_file import Storage
from regard.models.protocols import config_of
from regard.text.tokenizers.labels import LabelTokenizer

BATCH_IMAGES = 256  # of one forward pass
EXAMPLES = 2 * len(SHAPES)
EXAMPLE_SEED = 1_000_000  # of images that are in no training


@dataclass(frozen=True)
class ImageClassification:
    """The class of an image."""

    name: str  # the file, or "image"
    label: str
    probabilities: dict[str, float]  # of all labels, the most probable first

    @property
    def probability(self) -> float:
        """The probability of the label."""
        return self.probabilities[self.label]


class ImageClassifier:
    """Classifies images; `regard.load` makes one from a folder.

    An image is the path of a file, an image of Pillow, or an array: (H, W), (H, W, C) or (C, H, W), bytes or numbers
    from 0 to 1. It is converted to the size and the channels of the training images.
    """

    def __init__(self, model: nn.Module, labels: LabelTokenizer, *, info: Mapping[str, Any] | None = None) -> None:
        self.model: Any = model
        self.label_tokenizer = labels
        self.info = dict(info or {})
        config = config_of(model)
        if not isinstance(config, ImageClassifierConfig):
            raise TypeError(f"model must be an image classifier, got one of kind {config.kind!r}")
        if len(labels.labels) != config.classes:
            raise ModelError(f"there are {len(labels.labels)} labels, but the model has {config.classes} classes")
        self.size = config.channels, config.height, config.width
        self.grid = config.grid

    @property
    def labels(self) -> list[str]:
        """All labels, in the order of the model's classes."""
        return list(self.label_tokenizer.labels)

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        return save_face(self.model, folder, tokenizer=self.label_tokenizer, info=self.info, storage=storage)

    def __repr__(self) -> str:
        return model_repr("ImageClassifier", describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        example = 'classifier.classify("picture.png")'
        return model_html("ImageClassifier", describe_model(self.model, self.info), example)

    def classify(self, images: Any) -> Any:
        """Return the class of an image; for a list of images, a list of results."""
        if not isinstance(images, list | tuple):
            return self.classify([images])[0]
        names = [str(image) if isinstance(image, str | Path) else "image" for image in images]
        probabilities = self.probabilities([self.pixels(image) for image in images])
        return [self._result(name, row) for name, row in zip(names, probabilities.tolist(), strict=True)]

    def probabilities(self, pixels: Sequence[NDArray[np.uint8]]) -> Tensor:
        """Return the probability of each class for images of the model's size (N, C, H, W) -> (N, K)."""
        weight = next(self.model.parameters())
        results = []
        with torch.inference_mode(), evaluating(self.model):
            for start in range(0, len(pixels), BATCH_IMAGES):
                batch = torch.from_numpy(np.stack(pixels[start : start + BATCH_IMAGES])).to(weight.device)
                results.append(self.model(batch).double().softmax(-1).cpu())
        return torch.cat(results) if results else torch.zeros(0, len(self.labels), dtype=torch.double)

    def evaluate(self, images: Images) -> dict[str, float]:
        """Return the share of labelled images of the model's size that get the right label."""
        numbers = self.probabilities(list(images.pixels)).argmax(-1).tolist()
        right = sum(self.labels[number] == label for number, label in zip(numbers, images.labels, strict=True))
        return {"accuracy": right / len(images), "images": len(images)}

    def attention(self, image: Any) -> Tensor:
        """Return how much each layer and head attends to each patch of an image, (layers, heads, rows, columns).

        With a class token these are its weights on the patches, otherwise the mean of all patches' weights.
        """
        with record(self.model) as maps:
            self.probabilities([self.pixels(image)])
        weights = torch.stack([maps[layer][0].float().cpu() for layer in maps])  # (layers, heads, n, n)
        has_token = weights.shape[-1] > self.grid[0] * self.grid[1]
        over_patches = weights[..., 0, 1:] if has_token else weights.mean(-2)
        return over_patches.unflatten(-1, self.grid)

    def trace(self, image: Any, *, source: str | None = None, name: str | None = None) -> InputTrace:
        """Return everything that the model does with an image, for the explorer page.

        `source` is the name of the image, by default the file's; `name` is that of the model.
        """
        if source is None:
            source = Path(image).name if isinstance(image, str | Path) else "image"
        return trace_image(self, self.pixels(image), source=source, name=name)

    def examples(self) -> dict[str, Any]:
        """Return images to try by name: demo images, if the model was trained on them."""
        if not learned_from_demo(self.info):
            return {}
        images = demo_images(EXAMPLES, seed=EXAMPLE_SEED)
        return {f"{images.labels[i]} {i}": images.pixels[i] for i in range(len(images))}

    def pixels(self, image: Any) -> NDArray[np.uint8]:
        """Return an image as the model sees it, (C, H, W)."""
        if isinstance(image, str | Path):
            image = open_image(image)
        elif not hasattr(image, "convert"):  # not an image of Pillow
            image = array_image(np.asarray(image))
        return to_pixels(image, self.size)

    def _result(self, name: str, probabilities: list[float]) -> ImageClassification:
        ranked = sorted(zip(self.labels, probabilities, strict=True), key=lambda entry: -entry[1])
        return ImageClassification(name, ranked[0][0], dict(ranked))


def array_image(array: NDArray) -> Any:
    """Return an array as an image of Pillow; ValueError if it has no shape or values of an image."""
    from PIL import Image

    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or not array.size:
        raise ValueError(f"an image must be (H, W), (H, W, C) or (C, H, W) with 1, 3 or 4 channels, got {array.shape}")
    if array.dtype == np.uint8:
        return Image.fromarray(array)
    if array.dtype == np.uint16:
        return Image.fromarray((array // 257).astype(np.uint8))
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all() or numbers.min() < 0 or numbers.max() > 1:
        raise ValueError("an image must have bytes, or numbers from 0 to 1")
    return Image.fromarray((numbers * 255).round().astype(np.uint8))
