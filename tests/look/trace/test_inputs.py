"""Traces of images and series: the weights of regard.record, places that are where the model reads, files, errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import DataError, UsageError
from regard.look import InputTrace, Trace
from regard.look.trace.attention_map import Map
from regard.look.trace.inputs.input_trace import Continuation, InputMap, Place, Ruler
from regard.look.trace.inputs.series import MAX_COLUMNS
from regard.look.trace.trace import Model

PIXELS = np.random.default_rng(2).integers(0, 256, (3, 8, 12), dtype=np.uint8)


def recorded(model: Any, values: torch.Tensor, row: int) -> np.ndarray:
    """The weights of all layers for one row of the batch, [layers, heads, m, n]."""
    with torch.no_grad(), regard.record(model) as layers:
        model(values)
    return np.stack([weights[row].numpy() for weights in layers.values()])


def cut_out(trace: InputTrace, place: Place) -> np.ndarray:
    """The numbers of the grid inside a place, [rows, columns, channels]."""
    assert place.box is not None
    frame, left, top, width, height = map(int, place.box)
    return trace.values[frame, top : top + height, left : left + width]


@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_an_image(small_inputs: Any, pooling: str) -> None:
    classifier = small_inputs.small_classifier(pooling)
    trace: InputTrace = classifier.trace(PIXELS, source="cat.png", name="mine")
    (encoder,) = trace.maps
    assert np.allclose(encoder.attention.weights, recorded(classifier.model, torch.from_numpy(PIXELS)[None], 0))
    result = classifier.classify(PIXELS)
    assert {score.text: score.probability for score in trace.scores} == pytest.approx(result.probabilities, rel=1e-4)
    assert (trace.output, trace.source, trace.model.name) == (result.label, "cat.png", "mine")
    places = trace.axes["patches"]
    assert (places[0] == Place("class token")) is (pooling == "class")
    patches = [place for place in places if place.box]
    scaled = classifier.model.cut(torch.from_numpy(PIXELS)[None])[0]  # (n, C P P), from -1 to 1
    for place, patch in zip(patches, scaled, strict=True):
        pixels = (patch.view(3, 4, 4).permute(1, 2, 0) + 1) * 127.5
        assert np.allclose(cut_out(trace, place), pixels.numpy(), atol=1e-3)
    assert patches[4].text == "row 1, column 1"


def test_a_series(small_inputs: Any) -> None:
    """Each column has its own map; a patch is where the model cuts it, without what is repeated at the end."""
    forecaster, values = small_inputs.small_forecaster(), small_inputs.small_series()
    trace = forecaster.trace(values, at=30)
    past = values[6:30]
    window = torch.from_numpy((past - [5.0, -1.0]) / [2.0, 0.5]).T[None].float()
    for column, entry in enumerate(trace.maps):
        assert entry.row == column
        assert np.allclose(entry.attention.weights, recorded(forecaster.model, window, column), atol=1e-5)
    assert np.allclose(trace.values[0, :, :, 0], past.T)
    cut = forecaster.model.cut(torch.from_numpy(past.T.copy())[None])[0, 1]  # of the second column
    for place, patch in zip(trace.axes["patches"], cut.numpy(), strict=True):
        own = cut_out(trace, place)[1, :, 0]
        assert np.allclose(own, patch[: len(own)]) and np.allclose(patch[len(own) :], past[-1, 1])
    assert trace.axes["patches"][1].text == "patch 1: 10 to 17"
    continuation = trace.continuation
    assert continuation is not None and continuation.truth is not None
    assert np.allclose(continuation.values, forecaster.forecast(past).values.T)
    assert np.allclose(continuation.truth, values[30:36].T)
    assert (continuation.first, continuation.least, continuation.most) == (30, 24, 40)


@pytest.mark.parametrize(("kind", "frames"), [("captioner", 1), ("captioner", 3), ("rnn-captioner", 1)])
def test_a_caption(small_inputs: Any, kind: str, frames: int) -> None:
    """The weights of the words are those that the face averages; the cells are places of the frames."""
    captioner = small_inputs.small_captioner(kind, frames)
    video = list(np.random.default_rng(4).integers(0, 256, (frames, 1, 8, 12), dtype=np.uint8))
    trace = captioner.trace(video, source="scene")
    expected = captioner.caption(video if frames > 1 else video[0], attention=True)
    written = len(expected.tokens)
    assert trace.output == expected.text and [place.text for place in trace.axes["words"]] == [*expected.tokens, "end"]
    maps = {entry.title: entry.attention.weights for entry in trace.maps}
    assert list(maps) == (["words", "encoder"] if kind == "captioner" else ["words"])
    mean = maps["words"].mean((0, 1))[:written]
    assert written and np.allclose(mean, expected.attention.flatten(1).numpy(), atol=1e-5)
    assert np.array_equal(trace.values[..., 0], np.stack(video)[:, 0])
    last = trace.axes["cells"][-1]
    assert last.box == (frames - 1.0, 8.0, 4.0, 4.0, 4.0) and last.text.endswith("row 1, column 2")
    if kind == "captioner":
        with torch.no_grad(), regard.record(captioner.model) as layers:
            captioner.model.encode(torch.from_numpy(np.stack(video))[None])
        assert np.allclose(maps["encoder"], np.stack([weights[0].numpy() for weights in layers.values()]), atol=1e-6)


SOUND = (np.random.default_rng(3).normal(size=4000).astype(np.float32) / 10, 8000)  # half a second


@pytest.mark.parametrize("kind", ["speech-recognizer", "listen-attend-spell", "speech-ctc"])
def test_a_recording(small_inputs: Any, kind: str) -> None:
    transcriber = small_inputs.small_transcriber(kind)
    trace = transcriber.trace(SOUND)
    maps = {entry.title: entry.attention for entry in trace.maps}
    frames = transcriber.frames(SOUND)  # (T, M)
    loudness = trace.values[0, :, :, 0]
    assert np.allclose(loudness - loudness.max(), np.maximum(10 / np.log(10) * (frames - frames.max()).T.numpy(), -80))
    places = trace.axes["moments"]
    assert len(places) == -(-len(frames) // 2) and places[3].box == (0.0, 6.0, 0.0, 2.0, 6.0)
    assert places[3].text == "0.06 s"  # a frame begins every 10 ms
    if kind == "speech-ctc":
        assert list(maps) == ["encoder"] and "CTC labels each moment" in trace.notes[0]
    else:
        assert np.allclose(maps["tokens"].weights, transcriber.attention(SOUND), atol=1e-6)
        assert [place.text for place in trace.axes["tokens"]][-1] == "end"
        assert trace.output == transcriber.transcribe(SOUND).text
    if kind != "listen-attend-spell":
        with torch.no_grad(), regard.record(transcriber.model) as layers:
            transcriber.model.encode(transcriber.model.pad_sources([frames]))
        assert np.allclose(maps["encoder"].weights, np.stack([w[0].numpy() for w in layers.values()]), atol=1e-6)


def test_a_long_recording(small_inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    transcriber = small_inputs.small_transcriber()
    monkeypatch.setattr("regard.look.trace.inputs.speech.MAX_SELF_WEIGHTS", 100)
    short = transcriber.trace(SOUND)
    assert [entry.title for entry in short.maps] == ["tokens"] and "is not shown" in short.notes[0]
    with pytest.raises(DataError, match=r"long\.wav: the recording has 40 seconds; the limit of a trace is 30: cut it"):
        transcriber.trace((np.zeros(320_000, np.float32), 8000), source="long.wav")


def test_the_last_rows_are_forecast_unless_there_are_too_few(small_inputs: Any) -> None:
    forecaster, small_series = small_inputs.small_forecaster(), small_inputs.small_series
    after_the_end = forecaster.trace(small_series(24)).continuation
    assert after_the_end is not None and after_the_end.first == 24 and after_the_end.truth is None
    compared = forecaster.trace(small_series(40)).continuation
    assert compared is not None and compared.first == 34
    with pytest.raises(UsageError, match=r"row 23 of 40 cannot be forecast: .* the first row is 24 to 40"):
        forecaster.trace(small_series(), at=23)


def test_many_columns_and_a_model_without_attention(small_inputs: Any) -> None:
    linear = small_inputs.small_forecaster("dlinear").trace(small_inputs.small_series())
    assert linear.maps == () and linear.notes == ("A linear forecaster has no attention.",)
    wide = small_inputs.small_forecaster().trace(np.random.default_rng(1).normal(size=(30, MAX_COLUMNS + 3)))
    assert wide.values.shape == (1, MAX_COLUMNS, 24, 1) and len(wide.maps) == MAX_COLUMNS
    assert wide.notes == (f"The first {MAX_COLUMNS} of {MAX_COLUMNS + 3} columns are shown.",)


def test_examples_are_those_of_the_demo_data(small_inputs: Any) -> None:
    """A model that was trained on other data brings none along."""
    classifier, forecaster = small_inputs.small_classifier(), small_inputs.small_forecaster()
    assert classifier.examples() == {} and forecaster.examples() == {}
    demo = {"data": {"demo": 100}}
    classifier.info["recipe"] = forecaster.info["recipe"] = demo
    assert list(forecaster.examples()) == ["demo series"] and "circle 0" in classifier.examples()


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_file(small_inputs: Any, tmp_path: Path, name: str) -> None:
    """Pixels stay bytes; values of a series keep the precision of float32, also when there are many."""
    series = 1e5 + small_inputs.small_series(40)
    for trace in (small_inputs.small_classifier().trace(PIXELS), small_inputs.small_forecaster().trace(series)):
        again = InputTrace.load(trace.save(tmp_path / name))
        assert again.values.dtype == trace.values.dtype and np.allclose(again.values, trace.values, rtol=1e-7)
        assert again.axes == trace.axes and again.scores == trace.scores and again.columns == trace.columns
        assert np.allclose(again.maps[0].attention.weights, trace.maps[0].attention.weights, atol=1e-6)
    bands = np.full((1, 80, 100, 1), 12345.678)
    many = dataclasses.replace(trace, form="bands", values=bands, axes={}, maps=(), continuation=None)
    assert InputTrace.from_dict(many.to_dict()).values[0, 0, 0, 0] == np.float32(12345.678)
    with pytest.raises(DataError, match=r"load it with InputTrace\.load"):
        Trace.load(tmp_path / name)


def test_the_trace_of_a_text_is_none_of_an_input(tmp_path: Path) -> None:
    model = Model("m", "encoder", {"encoder": 1}, 1, {})
    path = Trace(model, {}, {}).save(tmp_path / "text.json")
    with pytest.raises(DataError, match=r"load it with Trace\.load"):
        InputTrace.load(path)


BOX = (0.0, 0.0, 0.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "sound"}, "unknown form 'sound'"),
        ({"values": np.zeros((4, 4, 1), np.uint8)}, r"values must be \[frame, row, column, channel\]"),
        ({"values": np.zeros((1, 4, 4, 1))}, "the values of pixels must be bytes"),
        ({"values": np.zeros((1, 4, 4, 2), np.uint8)}, "with 1 or 3 channels"),
        ({"form": "bands", "values": np.full((1, 4, 4, 1), np.inf)}, "values must be finite"),
        ({"axes": {"cells": (Place("a", (0.0, 3.0, 0.0, 2.0, 2.0)),)}}, r"axes.cells\[0\].box .* is not inside"),
        ({"axes": {"cells": (Place("a", (1.0, *BOX[1:])),)}}, "is not inside 1 frames of 4 x 4 cells"),
        ({"axes": {"cells": (Place("a", (0.0, 1.0)),)}}, "must be frame, left, top, width and height"),
        ({"axes": {"others": (Place("a", BOX),)}}, r"maps\[0\]: unknown axis 'cells'"),
        ({"axes": {"cells": (Place("a", BOX),) * 2}}, "does not fit the 2 places of cells"),
        ({"continuation": Continuation(np.zeros((1, 3)))}, "continuation.values must have 4 rows"),
    ],
)  # fmt: skip
def test_what_is_inconsistent(changes: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {
        "model": Model("m", "image-classifier", {"encoder": 1}, 1, {}),
        "form": "pixels",
        "values": np.zeros((1, 4, 4, 1), np.uint8),
        "axes": {"cells": (Place("a", BOX),)},
        "maps": (InputMap("encoder", Map("cells", "cells", np.ones((1, 1, 1, 1)))),),
        "columns": Ruler("column"),
        "rows": Ruler("row"),
    }
    InputTrace(**parts)
    with pytest.raises(DataError, match=message):
        InputTrace(**{**parts, **changes})
