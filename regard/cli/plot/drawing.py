"""What the commands of `regard plot` share: the file to write, and the trace that is drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.look.trace.trace import Trace

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="File to write: .png, .svg or .pdf  [default: the picture's name, .png]"),
]


def write(draw: Callable[[], Figure], output: Path | None, name: str) -> None:
    """Draw, save and print the path; a value that the picture refuses is the user's mistake."""
    from regard.look.pictures.figures import save

    try:
        figure = draw()
    except RegardError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error
    typer.echo(save(figure, output or Path(f"{name}.png")))


def read_or_make(what: str, model: str | None, target: str | None, beam: int | None, *, vectors: bool = False) -> Trace:
    """The trace of a file, or of a model that reads a text, with queries and keys if wanted."""
    from regard.look.trace.trace import Trace

    if model is None:
        if target is not None or beam is not None:
            raise UsageError("a trace file holds what was done: --target and --beam need --model")
        return Trace.load(what)
    from regard.decoding.searches.beam import Beam
    from regard.look.trace.tracing import trace_text
    from regard.tasks.loading import load

    search = None if beam is None else Beam(beam)
    return trace_text(load(model), what, search=search, target=target, name=Path(model).name, vectors=vectors)
