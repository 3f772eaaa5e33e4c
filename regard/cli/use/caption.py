"""`regard caption`: describe images or videos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.shared.model_options import STDIN, Device, Dtype, Model, Threads, load_as
from regard.cli.shared.torch_import import import_torch
from regard.errors import DataError, UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.api.arrays.captioner import Caption, Captioner


def caption_images(
    model: Model,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Images, or videos: animated GIFs or folders with numbered frames.", show_default=False),
    ] = None,
    evaluate: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Print the share of captions that equal those of FOLDER/captions.tsv instead."
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per image: caption, and for each word where it looked."),
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Describe images or videos, one caption per line.

    Train a captioner on a folder with captions.tsv (a path, a tab and a caption in each line):
    regard train FOLDER --model captioner

    Examples:
      regard caption -m runs/pictures picture.png
      regard caption -m runs/pictures *.png --json
      regard caption -m runs/pictures --evaluate test-folder
    """
    import_torch()
    set_threads(threads)
    from regard.api.arrays.captioner import Captioner

    if (evaluate is None) == (not files) or STDIN in (files or ()):
        raise UsageError("give images or videos, or --evaluate with a folder of them")
    captioner = load_as(Captioner, model, device, dtype)
    if evaluate is not None:
        print_scores(captioner, evaluate, as_json=as_json)
        return
    failed = 0
    for file in files or []:
        try:
            result = captioner.caption(file, attention=as_json)
        except DataError as error:
            failed += 1
            typer.echo(f"regard: {error}", err=True)
            if not as_json:
                typer.echo("")  # one line for each image
            continue
        if as_json:
            typer.echo(json.dumps(content_of(result, captioner), ensure_ascii=False))
        else:
            typer.echo(result.text + (f"\t{file}" if len(files or []) > 1 else ""))
    if failed:
        raise typer.Exit(DataError.exit_code)


def print_scores(captioner: Captioner, folder: Path, *, as_json: bool) -> None:
    """Print the share of right captions of a folder."""
    from regard.arrays.captions import read_captioned

    images = read_captioned([folder], frames=captioner.frames, size=captioner.size)
    scores = captioner.evaluate(images)
    if as_json:
        typer.echo(json.dumps(scores))
    else:
        typer.echo(f"{scores['exact']:.1%} of {len(images):,} captions are exactly right")


def content_of(result: Caption, captioner: Captioner) -> dict[str, Any]:
    """Return a caption as plain values; the peak of a word is the centre of the cell with the highest weight."""
    cell = captioner.size[1] // captioner.grid[1]
    words = []
    for (text, *_), weights in zip(result.words, result.word_attention(), strict=True):
        frame, row, column = (int(part) for part in (weights == weights.max()).nonzero()[0])
        peak = {
            "frame": frame,
            "x": (column + 0.5) * cell,
            "y": (row + 0.5) * cell,
            "weight": round(float(weights.max()), 6),
        }
        words.append(
            {"word": text, "peak": peak if captioner.frames > 1 else {k: v for k, v in peak.items() if k != "frame"}}
        )
    return {"image": result.name, "caption": result.text, "score": round(result.score, 6), "words": words}
