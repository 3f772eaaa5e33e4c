"""The API of the tab for inputs that are no text: traces of images, series and recordings, and examples of them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from regard.errors import DataError, RegardError, unknown_name
from regard.serving.explorer_api import as_json, await_result, packed_bytes, to_bytes
from regard.serving.model_threads import Face, ModelShelf, ServedModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

INPUT_PATH = "/api/input"
SUFFIXES = {"series": (".csv", ".tsv"), "sound": (".wav",)}  # those of images are in regard.arrays.images
THUMBNAIL_PIXELS = 64  # on the longer side, at most
MAX_NAME = 100  # characters of the name of a file


def input_routes(shelf: ModelShelf, files: Mapping[str, Path]) -> APIRouter:
    """Return the routes under /api for models that read no text; `files` are examples by name."""
    routes = APIRouter()

    @routes.get("/api/examples")
    async def examples(model: str, request: Request) -> Response:
        served = shelf[model]
        if served.reads == "text":
            return as_json({"examples": []})
        work = served.submit(lambda face: list_examples(face, served.reads, files))
        return await await_result(request, work, {})

    @routes.post(INPUT_PATH)
    async def run_input(
        request: Request,
        model: str,
        name: Annotated[str, Query(max_length=1000)] = "",
        example: Annotated[str | None, Query(max_length=1000)] = None,
        at: int | None = None,
    ) -> Response:
        served, content = shelf[model], await request.body()
        check_request(served, content, example, at)
        options: dict[str, Any] = {"name": model, **({} if at is None else {"at": at})}
        if example is None:
            work = served.submit(lambda face: trace_upload(face, content, name, options))
        else:
            path = files_for(served.reads, files).get(example)
            work = served.submit(lambda face: trace_example(face, example, path, options))
        return await await_result(request, work, {})

    return routes


def check_request(model: ServedModel, content: bytes, example: str | None, at: int | None) -> None:
    """Raise DataError for a model that reads text, without an input or with two, and for a row that is no row."""
    if model.reads == "text":
        raise DataError(f"{model.name} reads text: send it to /api/trace")
    if (example is None) == (not content):
        raise DataError("send either the content of a file, or the name of an example and an empty body")
    if at is not None and model.reads != "series":
        raise DataError(f"at is a row of a series, and {model.name} reads no series")


def form_of(path: Path) -> str | None:
    """Return what a file is by its suffix: "image", "series" or "sound"; None if it is something else."""
    from regard.arrays.images import SUFFIXES as IMAGES

    suffix = path.suffix.lower()
    return next((form for form, known in {**SUFFIXES, "image": IMAGES}.items() if suffix in known), None)


def files_for(reads: str, files: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files that a model can read."""
    return {name: path for name, path in files.items() if form_of(path) == reads}


def list_examples(face: Face, reads: str, files: Mapping[str, Path]) -> bytes:
    """Return the names of the examples, and small pictures of those that are images."""
    entries: list[dict[str, Any]] = [{"name": name} for name in files_for(reads, files)]
    for name, example in face.examples().items():
        entries.append({"name": name, **({"thumbnail": thumbnail(face.pixels(example))} if reads == "image" else {})})
    return to_bytes({"examples": entries})


def thumbnail(pixels: NDArray[np.uint8]) -> dict[str, Any]:
    """Return pixels (C, H, W), or the first frame of (T, C, H, W), as a small picture [h, w, C]."""
    pixels = pixels[0] if pixels.ndim == 4 else pixels
    step = -(-max(pixels.shape[1:]) // THUMBNAIL_PIXELS)
    return packed_bytes(pixels[:, ::step, ::step].transpose(1, 2, 0))


def trace_example(face: Face, name: str, path: Path | None, options: Mapping[str, Any]) -> bytes:
    """Run the model on an example: a file, or one that the model brings along."""
    if path is not None:
        return to_bytes(face.trace(path, source=name, **options).to_dict())
    examples = face.examples()
    if name not in examples:
        raise DataError(unknown_name("example", name, tuple(examples)))
    return to_bytes(face.trace(examples[name], source=name, **options).to_dict())


def trace_upload(face: Face, content: bytes, name: str, options: Mapping[str, Any]) -> bytes:
    """Run the model on the content of a file.

    The file is never decompressed: compressed files are recognized by their suffix, and this one gets none.
    """
    shown = printable_name(name)
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        path = Path(folder) / "input"
        path.write_bytes(content)
        try:
            trace = face.trace(path, source=shown, **options)
        except RegardError as error:
            raise type(error)(str(error).replace(str(path), shown)) from error
    return to_bytes(trace.to_dict())


def printable_name(name: str) -> str:
    """Return the name of a file without folders and characters that cannot be shown."""
    short = name.replace("\\", "/").rpartition("/")[2][:MAX_NAME]
    return "".join(letter if letter.isprintable() else "?" for letter in short) or "the file"
