"""Trace a speech recognizer: the moments of a recording that each token and each moment attends to.

G6; Chan et al. 2016, Dong et al. 2018.

    S samples   T frames   M bands   n moments, the vectors of the encoder   m tokens
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, inference_mode

from regard.attention.recording.recorder import record
from regard.decoding.forced import forced_attention
from regard.decoding.model_step import evaluating
from regard.errors import DataError
from regard.look.trace.attention_map import Map
from regard.look.trace.from_weights import group_layers
from regard.look.trace.inputs.input_trace import InputMap, InputTrace, Place, Ruler
from regard.look.trace.inputs.places import span_places
from regard.look.trace.tracing import describe_model, has_features
from regard.text.tokenizers.special_tokens import END

MAX_MOMENTS = 1500  # a minute of 40 ms each; the self-attention of an encoder grows with their square
MAX_SELF_WEIGHTS = 2**20  # numbers of the encoder's self-attention that are kept
TITLES = {"cross": "tokens", "rnn": "tokens", "enc_self": "encoder"}
DEAF = -80.0  # decibels below the loudest cell that are drawn as silence


def trace_recording(transcriber: Any, recording: Any, *, source: str = "", name: str | None = None) -> InputTrace:
    """Trace a `Transcriber` on a recording: the path of a WAV file, or samples and their rate.

    The tokens are those of its transcript. `source` is the name of the recording, `name` that of the model.
    """
    frames: Tensor = transcriber.frames(recording)  # (T, M)
    model, config = transcriber.model, transcriber.model.config
    if len(frames) > MAX_MOMENTS * transcriber.subsampling:
        seconds = len(frames) * transcriber.log_mel.hop / transcriber.rate
        limit = MAX_MOMENTS * transcriber.step
        raise DataError(
            f"{source}: the recording has {seconds:.0f} seconds; the limit of a trace is {limit:.0f}: cut it"
        )
    best = transcriber.decode([frames])[0][0]
    written = [token for token in best.tokens if token != END]
    layers = token_attention(model, frames, written) if transcriber.attends else self_attention(model, frames)
    grouped = group_layers(layers)
    maps, notes = moment_maps(model, grouped)
    moments = next((weights.shape[-1] for kind, weights in grouped.items() if kind in TITLES), 0)
    hop = transcriber.log_mel.hop / transcriber.rate  # seconds
    sizes = {"size": transcriber.subsampling, "stride": transcriber.subsampling, "columns": len(frames)}
    spans = span_places(moments, name="moment", rows=frames.shape[1], **sizes)
    axes = {
        "moments": tuple(Place(f"{place.box[1] * hop:.2f} s", place.box) for place in spans if place.box),
        "tokens": tuple(Place(text) for text in [*transcriber.tokenizer.pieces(written), "end"]),
    }
    if not transcriber.attends:
        del axes["tokens"]
        notes += ("CTC labels each moment by itself: no decoder attends to the sound.",)
    return InputTrace(
        model=describe_model(config, name or config.kind),
        form="bands",
        values=decibels(frames),
        axes=axes,
        maps=maps,
        columns=Ruler("seconds", 0.0, hop),
        rows=Ruler("mel band"),
        source=source,
        output=transcriber.tokenizer.decode(best.tokens),
        notes=notes,
    )


def token_attention(model: Any, frames: Tensor, written: list[int]) -> dict[str, Tensor]:
    """Return the weights of all layers while the decoder is forced to write the tokens and END."""
    forced: Any = forced_attention(model, frames, [*written, END])  # type: ignore[arg-type]  # frames as tokens
    return dict(forced)


def self_attention(model: Any, frames: Tensor) -> dict[str, Tensor]:
    """Return the weights of an encoder's layers."""
    with inference_mode(), evaluating(model), record(model) as layers:
        model.encode(model.pad_sources([frames]).to(next(model.parameters()).device))
    return {layer: weights[0] for layer, weights in layers.items()}


def moment_maps(model: Any, grouped: dict[str, np.ndarray]) -> tuple[tuple[InputMap, ...], tuple[str, ...]]:
    """Return the maps whose keys are moments, those of tokens first, and remarks."""
    maps, notes = [], []
    for kind in sorted(grouped.keys() & TITLES.keys(), key=list(TITLES).index):
        weights = grouped[kind]
        if kind == "enc_self" and weights.size > MAX_SELF_WEIGHTS:
            notes.append("The recording is long, so the self-attention of its encoder is not shown.")
            continue
        query = "moments" if kind == "enc_self" else "tokens"
        attention = Map(query, "moments", weights, random_features=has_features(model, kind))
        maps.append(InputMap(TITLES[kind], attention))
    return tuple(maps), tuple(notes)


def decibels(frames: Tensor) -> np.ndarray:
    """Return log-mel frames (T, M) as a grid [1, M, T, 1] of decibels below the loudest cell."""
    loudness = 10 / np.log(10) * frames.double().cpu().numpy().T  # (M, T), from natural logarithms
    return np.maximum(loudness - loudness.max(), DEAF)[None, :, :, None]
