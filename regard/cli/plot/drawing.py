"""What the commands of `regard plot` share: the output file, and the trace to draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared.model_options import DEFAULT_MODEL
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.look.pictures.animations.animation import Frame
    from regard.look.trace.trace import Trace

ANIMATED = (".gif", ".mp4")
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", show_default="NAME.png", help="File to write: .png, .svg or .pdf."),
]
AnimatedOutput = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        show_default="NAME.png",
        help="File to write: .png, .svg or .pdf, or .gif or .mp4 for an animation (.mp4 needs ffmpeg).",
    ),
]


def write(
    draw: Callable[[], Figure],
    output: Path | None,
    name: str,
    *,
    animate: Callable[[], Iterable[Frame]] | None = None,
) -> None:
    """Draw and save the picture and print its path; a ValueError of the picture becomes a UsageError.

    `animate` yields the frames for a .gif or .mp4; a picture without it does not move.
    """
    path = output or Path(f"{name}.png")
    try:
        typer.echo(
            save_picture(draw, path) if path.suffix.lower() not in ANIMATED else save_frames(animate, path, name)
        )
    except RegardError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def save_picture(draw: Callable[[], Figure], path: Path) -> Path:
    """Draw and save a picture that does not move."""
    from regard.look.pictures.drawing.figures import save

    return save(draw(), path)


def save_frames(animate: Callable[[], Iterable[Frame]] | None, path: Path, name: str) -> Path:
    """Draw and save an animation; UsageError if the picture has none."""
    from regard.look.pictures.animations.animation import save_animation

    if animate is None:
        raise UsageError(f"{path}: the picture {name} does not move; use .png, .svg or .pdf")
    return save_animation(animate(), path)


def load_or_trace(
    what: str, model: str | None, target: str | None, beam: int | None, *, vectors: bool = False
) -> Trace:
    """Load the trace of a file, or trace a model on a text, with queries and keys if `vectors` is true.

    Without a model, an argument that ends in .json or .json.gz is a file, and any other a text for the shipped model.
    """
    from regard.look.trace.trace import Trace

    if model is None and what.endswith((".json", ".json.gz")):
        if target is not None or beam is not None:
            raise UsageError("--target and --beam are for a text: a trace file already contains the output")
        return Trace.load(what)
    model = model or DEFAULT_MODEL
    from regard.decoding.searches.beam import Beam
    from regard.look.trace.tracing import trace_text
    from regard.tasks.loading import load

    search = None if beam is None else Beam(beam)
    return trace_text(load(model), what, search=search, target=target, name=Path(model).name, vectors=vectors)
