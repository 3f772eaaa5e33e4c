"""`regard embed`: compute a vector for each line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared.model_options import STDIN, Device, Dtype, Model, Threads, load_as, read_text
from regard.cli.shared.torch_import import import_torch
from regard.errors import DataError, UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_ENCODER = "demo-encoder"


def embed_lines(
    model: Model = DEFAULT_ENCODER,
    file: Annotated[Path, typer.Argument(help="Text file, one text per line; - is stdin.")] = STDIN,
    npy: Annotated[
        Path | None, typer.Option(help="Write a float32 array of shape (lines, dimensions) to this .npy file.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Output the cosine similarity of every two lines instead of the vectors.")
    ] = False,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Put the prompt of this name, such as query, before each text."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per line: text and vector, or with --compare similarity."),
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Embed text line by line: compute a vector for each line, of unit length unless the model has other ones.

    Each line of the output has the tab-separated components of one vector.

    Examples:
      regard embed sentences.txt --compare
      regard embed -m runs/encoder sentences.txt --npy vectors.npy
    """
    import_torch()
    set_threads(threads)
    from torch.nn.functional import normalize

    from regard.api.embedder import Embedder

    if npy is not None and as_json:
        raise UsageError("pass --npy or --json, not both")
    lines = read_text(file)
    embedder = load_as(Embedder, model, device, dtype)
    numbers = embedder.embed(lines, prompt=prompt)
    if compare:
        numbers = normalize(numbers) @ normalize(numbers).T
    if npy is not None:
        save_array(npy, numbers)
        typer.echo(npy)
        return
    for text, row in zip(lines, numbers.tolist(), strict=True):
        if as_json:
            name = "similarity" if compare else "vector"
            typer.echo(json.dumps({"text": text, name: [round(x, 6) for x in row]}, ensure_ascii=False))
        else:
            typer.echo("\t".join(f"{x:.6f}" for x in row))


def save_array(path: Path, numbers: Tensor) -> None:
    """Write a tensor to a .npy file."""
    import numpy as np

    try:
        with path.open("wb") as file:  # np.save would add a suffix to the name
            np.save(file, numbers.numpy())
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
