"""Trace a captioner: the cells of an image or of the frames of a video that each word attends to.

G4; Xu et al. 2015.

    T frames   C channels   H height   W width   R rows and K columns of cells   n = T R K cells   m tokens
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.attention.recording.recorder import record
from regard.decoding.model_step import evaluating
from regard.look.trace.attention_map import Map
from regard.look.trace.from_weights import group_layers
from regard.look.trace.inputs.images import as_frames
from regard.look.trace.inputs.input_trace import InputMap, InputTrace, Place, Ruler
from regard.look.trace.inputs.places import cell_places
from regard.look.trace.tracing import describe_model, has_features
from regard.text.tokenizers.special_tokens import START

MAX_SELF_WEIGHTS = 2**20  # numbers of the encoder's self-attention that are kept
TITLES = {"cross": "words", "rnn": "words", "enc_self": "encoder"}


def trace_caption(
    captioner: Any, frames: NDArray[np.uint8], *, source: str = "", name: str | None = None
) -> InputTrace:
    """Trace a `Captioner` on an image or a video of the model's size, (T, C, H, W).

    `source` is the name of the image, `name` that of the model.
    """
    model, config = captioner.model, captioner.model.config
    batch = torch.from_numpy(frames)[None].to(next(model.parameters()).device)  # (1, T, C, H, W)
    (ids,), _ = captioner.write(batch)
    read = torch.tensor([[START, *ids]], device=batch.device)  # row i writes token i; the last one writes END
    with torch.inference_mode(), evaluating(model), record(model) as layers:
        model.decode(read, model.encode(batch))
    grouped = group_layers({layer: weights[0] for layer, weights in layers.items()})
    maps, notes = [], []
    for kind in sorted(grouped.keys() & TITLES.keys(), key=list(TITLES).index):
        weights = grouped[kind]
        if kind == "enc_self" and weights.size > MAX_SELF_WEIGHTS:
            notes.append("The frames have many cells, so the self-attention of the encoder is not shown.")
            continue
        query = "cells" if kind == "enc_self" else "words"
        maps.append(InputMap(TITLES[kind], Map(query, "cells", weights, random_features=has_features(model, kind))))
    return InputTrace(
        model=describe_model(config, name or config.kind),
        form="pixels",
        values=as_frames(frames),
        axes={
            "words": tuple(Place(text) for text in [*captioner.tokenizer.pieces(ids), "end"]),
            "cells": cell_places(captioner.grid, config.height, config.width),
        },
        maps=tuple(maps),
        columns=Ruler("column"),
        rows=Ruler("row"),
        source=source,
        output=captioner.tokenizer.decode(ids),
        notes=tuple(notes),
    )
