"""`regard slides`: the scenes of a lecture as one HTML file or a PDF."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shared.model_options import Threads
from regard.errors import UsageError
from regard.machine import set_threads


def write_slides(
    lecture: Annotated[
        str | None, typer.Argument(metavar="[L0 … L4]", help="Lecture whose plan to follow.", show_default="all scenes")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", show_default="slides.html", help="File to write: .html or .pdf.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Write the scenes of a lecture as slides, without a browser: one HTML file, or a PDF.

    The HTML file opens from a disk, follows a clicker, and shows each answer after its question. The PDF has two pages
    for each scene.

    Examples:
      regard slides L2
      regard slides L2 -o slides.pdf
    """
    path = output or Path("slides.html")
    if path.suffix.lower() not in (".html", ".htm", ".pdf"):
        raise UsageError(f"{path}: slides are .html or .pdf")

    from regard.look.slides.deck import read_deck
    from regard.system.files import replace_file

    set_threads(threads)
    deck = read_deck(lecture)
    if path.suffix.lower() == ".pdf":
        from regard.look.slides.pdf_file import write_pdf

        write_pdf(deck, path)
    else:
        from regard.look.slides.html_file import make_html

        replace_file(path, make_html(deck).encode())
    typer.echo(path)
