"""The routes for images and series: the traces of the library, and what broken, foreign and large files get."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image

from regard.api.model_names import SHIPPED
from regard.look.trace.inputs.input_trace import InputTrace
from regard.serving.limits import Limits
from regard.serving.model_threads import ModelShelf, ServedModel
from regard.tasks.loading import load

SERIES = "date,power,heat,traffic\n" + "".join(
    f"2024-01-{1 + hour // 24:02} {hour % 24:02}:00,{hour % 7},{hour % 5}.5,{-hour}\n" for hour in range(60)
)


def png(width: int, height: int) -> bytes:
    """The content of a PNG file."""
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (height, width), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def huge_png() -> bytes:
    """A small file that says that it has 9,000 x 9,000 pixels."""
    parts = {b"IHDR": struct.pack(">IIBBBBB", 9_000, 9_000, 8, 0, 0, 0, 0), b"IDAT": zlib.compress(b"\0" * 99)}
    chunks = (kind + part for kind, part in parts.items())
    packed = (struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def wav(bits: int = 16, samples: int = 4000) -> bytes:
    """The content of a WAV file at 8,000 Hz whose header says that its samples have so many bits."""
    sound = np.random.default_rng(1).integers(-9000, 9000, samples).astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16000, bits // 8, bits)
    chunks = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(sound)) + sound
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small models with random weights that were trained, so they say, on the demo images and the demo series."""
    from regard.api.arrays.forecaster import Forecaster
    from regard.api.arrays.image_classifier import ImageClassifier
    from regard.api.arrays.transcriber import Transcriber
    from regard.demo.images import SHAPES
    from regard.demo.series import COLUMNS
    from regard.models.config import ForecasterConfig, ImageClassifierConfig, SpeechRecognizerConfig
    from regard.models.presets import make_model
    from regard.text.tokenizers.labels import train_labels
    from regard.text.tokenizers.words import train_words

    stack: dict[str, Any] = {"layers": 1, "dim": 8, "heads": 2, "hidden": 8}
    labels = train_labels(list(SHAPES))
    sizes = {"height": 28, "width": 28, "channels": 1, "patch": 7, "max_length": 17}
    pictures = ImageClassifierConfig(**stack, **sizes, vocabulary=labels.size)
    lines = ForecasterConfig(**stack, lookback=24, horizon=6, patch=8, stride=4, max_length=6)
    demo = {"recipe": {"data": {"demo": 100}}}
    info = {**demo, "series": {"columns": list(COLUMNS), "mean": [0.0] * 3, "deviation": [1.0] * 3}}
    place = tmp_path_factory.mktemp("inputs")
    ImageClassifier(make_model(pictures), labels, info=demo).save(place / "pictures")
    Forecaster(make_model(lines), info=info).save(place / "lines")
    words = train_words(["one two"] * 5, tokenised=True)
    sound = SpeechRecognizerConfig(**stack, rate=8000, mels=6, subsampling=2, vocabulary=words.size)
    Transcriber(make_model(sound), words).save(place / "sounds")
    return {name: place / name for name in ("pictures", "lines", "sounds")}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "own.png").write_bytes(png(28, 28))
    (folder / "own.csv").write_text(SERIES)
    (folder / "own.wav").write_bytes(wav())
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def inputs(serve: Callable[..., Any], folders: dict[str, Path], files: dict[str, Path]) -> Any:
    models = [ServedModel(name, folder) for name, folder in {**folders, "lecture": SHIPPED / "lecture"}.items()]
    return serve(ModelShelf(models), files=files, limits=Limits(file_bytes=20_000))


def send(client: Any, model: str, content: bytes = b"", **query: Any) -> Any:
    """One request; its content type is that of a page that sends a file."""
    path = f"/api/input?{urlencode({'model': model, **query})}"
    return client.ask("POST", path, content, {"Content-Type": "application/octet-stream"})


def test_a_file_gives_the_trace_of_the_library(inputs: Any, folders: dict[str, Path], files: dict[str, Path]) -> None:
    for name, file, options in (
        ("pictures", "own.png", {}),
        ("lines", "own.csv", {"at": 30}),
        ("sounds", "own.wav", {}),
    ):
        expected = load(folders[name], device="cpu").trace(files[file], **options)
        answer = send(inputs, name, files[file].read_bytes(), name=f"C:\\folder\\{file}", **options)
        assert answer.status == 200, answer.content
        again = send(inputs, name, example=file, **options)
        for found in (InputTrace.from_dict(answer.json), InputTrace.from_dict(again.json)):
            assert (found.source, found.output, found.model.name) == (file, expected.output, name)
            assert np.allclose(found.values, expected.values)
            for got, wanted in zip(found.maps, expected.maps, strict=True):
                assert np.allclose(got.attention.weights, wanted.attention.weights, atol=1e-5)


def test_examples_are_files_and_demo_data(inputs: Any) -> None:
    pictures = inputs.get("/api/examples?model=pictures").json["examples"]
    assert [entry["name"] for entry in pictures][:2] == ["own.png", "circle 0"]
    assert pictures[1]["thumbnail"]["shape"] == [28, 28, 1]
    circle = InputTrace.from_dict(send(inputs, "pictures", example="circle 0").json)
    assert circle.source == "circle 0" and circle.values.shape == (1, 28, 28, 1)
    lines = inputs.get("/api/examples?model=lines").json["examples"]
    assert lines == [{"name": "own.csv"}, {"name": "demo series"}]
    assert inputs.get("/api/examples?model=lecture").json == {"examples": []}
    assert "own.csv" not in [entry["name"] for entry in pictures]


REFUSED: list[tuple[str, bytes, dict[str, Any], str]] = [
    ("pictures", b"no image", {"name": "../<b>.png"}, "<b>.png: not an image"),
    ("pictures", png(28, 28)[:500], {"name": "half.png"}, "half.png: the image is damaged"),
    ("pictures", huge_png(), {"name": "huge.png"}, "huge.png: 9000 x 9000 pixels are more than"),
    ("pictures", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", {}, "the file: not an image"),
    ("pictures", b"", {}, "send either the content of a file, or the name of an example"),
    ("pictures", b"x", {"example": "circle 0"}, "send either the content of a file"),
    ("pictures", b"", {"example": "../own.png"}, "unknown example '../own.png'"),
    ("pictures", b"", {"example": "own.csv"}, "unknown example 'own.csv'"),
    ("pictures", b"x", {"at": 3}, "at is a row of a series, and pictures reads no series"),
    ("pictures", b"x", {"at": "x"}, "at: input should be a valid integer"),
    ("lecture", b"x", {}, "lecture reads text: send it to /api/trace"),
    ("lines", b"\x1f\x8b\x08compressed", {"name": "a.csv.gz"}, "a.csv.gz:1: not a text file; it looks like a gzip"),
    ("lines", b"a,b\n1,\n", {"name": "a.csv"}, "a.csv:2, column 'b': the value is missing"),
    ("lines", b"date,a\n2024-01-02,1\n2024-01-01,2\n", {"name": "a.csv"}, "a.csv:3: the time '2024-01-01' comes"),
    ("lines", b"a\n1\n2\n", {"name": "a.csv"}, "a.csv: 2 rows are too few: the model reads the last 24"),
    ("lines", b"a\n" + b"1e300\n" * 40, {}, "values must be finite numbers"),
    ("sounds", b"RIFF", {"name": "a.wav"}, "a.wav: the WAV file is truncated"),
    ("sounds", b"no sound at all", {"name": "a.wav"}, "a.wav: not a WAV file"),
    ("sounds", wav(bits=2000), {"name": "a.wav"}, "a.wav: samples of 2000 bits are not of 8, 16, 24 or 32"),
    ("sounds", wav(samples=0), {"name": "a.wav"}, "a.wav: the recording has no samples"),
    ("lines", SERIES.encode(), {"at": 3}, "row 3 of 60 cannot be forecast"),
    ("lines", SERIES.encode(), {"at": 10**30}, f"row {10**30} of 60 cannot be forecast"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "content", "query", "message"), REFUSED, ids=[row[3] for row in REFUSED])
def test_what_is_refused(inputs: Any, model: str, content: bytes, query: dict[str, Any], message: str) -> None:
    answer = send(inputs, model, content, **query)
    assert answer.status == 400 and message in answer.error
    assert "/tmp" not in answer.error and "regard-" not in answer.error  # where the server keeps the file


def test_a_file_has_a_limit_of_its_own(inputs: Any) -> None:
    answer = send(inputs, "pictures", b"\0" * 20_001)
    assert answer.status == 413 and "larger than 20,000 bytes" in answer.error
    assert send(inputs, "nobody", b"x").status == 404
