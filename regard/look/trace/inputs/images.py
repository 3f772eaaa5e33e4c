"""Trace an image classifier: where each layer and head attends in an image, and the probabilities of the classes.

G5; Dosovitskiy et al. 2021.

    C channels   H height   W width   L layers   h heads   n patches, and the class token before them
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.attention.recording.recorder import record
from regard.look.trace.attention_map import Map
from regard.look.trace.from_weights import group_layers
from regard.look.trace.inputs.input_trace import ClassScore, InputMap, InputTrace, Place, Ruler
from regard.look.trace.inputs.places import cell_places
from regard.look.trace.tracing import describe_model, has_features

MAX_SCORES = 20  # classes that are listed


def trace_image(classifier: Any, pixels: NDArray[np.uint8], *, source: str = "", name: str | None = None) -> InputTrace:
    """Trace an `ImageClassifier` on an image of the model's size, (C, H, W).

    `source` is the name of the image, `name` that of the model.
    """
    model = classifier.model
    with record(model) as layers:
        probabilities = classifier.probabilities([pixels])[0]
    config = model.config
    places = cell_places((1, *config.grid), config.height, config.width)
    if config.pooling == "class":
        places = (Place("class token"), *places)
    maps = group_layers({layer: weights[0] for layer, weights in layers.items()})
    scores = ranked(classifier.labels, probabilities)
    return InputTrace(
        model=describe_model(config, name or config.kind),
        form="pixels",
        values=as_frames(pixels[None]),
        axes={"patches": places},
        maps=tuple(
            InputMap("encoder", Map("patches", "patches", weights, random_features=has_features(model, kind)))
            for kind, weights in maps.items()
        ),
        columns=Ruler("column"),
        rows=Ruler("row"),
        source=source,
        output=scores[0].text,
        scores=scores,
    )


def ranked(labels: list[str], probabilities: torch.Tensor) -> tuple[ClassScore, ...]:
    """Return the most probable labels, highest first."""
    highest = probabilities.double().topk(min(MAX_SCORES, len(labels)))
    return tuple(
        ClassScore(labels[i], value) for value, i in zip(highest.values.tolist(), highest.indices.tolist(), strict=True)
    )


def as_frames(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return frames (T, C, H, W) as a grid of pixels (T, H, W, 1 or 3)."""
    channels = frames.shape[1]
    if channels in (1, 3):
        return np.ascontiguousarray(np.moveaxis(frames, 1, -1))
    return np.ascontiguousarray(np.moveaxis(frames[:, : 3 if channels > 3 else 1], 1, -1))
