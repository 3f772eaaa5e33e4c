"""Run the Python blocks of the book's chapters when the documentation is built, and put what they show below them.

A block is a notebook cell: the blocks of a chapter share their names and run from top to bottom. Below a block come
what it prints, the value of its last line, and the figures that pyplot holds. A block that fails stops the build, so
every number and figure of the book was computed by the code above it.
"""

from __future__ import annotations

import ast
import os
import re
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n", re.MULTILINE | re.DOTALL)
FRAME_HEIGHT = 720  # of an explorer page, in pixels


class Chapter:
    """One chapter while its blocks run: the names that they share, and the folder for their figures and pages."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder  # is `generated` beside the pages, so that links to it work from docs/book
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.files = 0

    def run(self, text: str) -> str:
        """Return the page with the output of each block below it."""
        from matplotlib import pyplot

        pyplot.switch_backend("agg")
        with TemporaryDirectory() as empty, chdir(empty):

            def with_output(match: re.Match[str]) -> str:
                line = text.count("\n", 0, match.start("code"))
                return match[0] + self.run_block(match["code"], line)

            return BLOCK.sub(with_output, text)

    def run_block(self, code: str, line: int) -> str:
        """Run one block and return what it shows, as Markdown; `line` is the number of lines above it."""
        tree = ast.parse("\n" * line + code, self.name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed, value = StringIO(), None
        try:
            with redirect_stdout(printed):
                exec(compile(tree, self.name, "exec"), self.names)
                if isinstance(last, ast.Expr):
                    value = eval(compile(ast.Expression(last.value), self.name, "eval"), self.names)
                    value = None if code.rstrip().endswith(";") else value  # as in a notebook
        except Exception as error:
            error.add_note(f"in the block of {self.name}.md that begins on line {line + 1}")
            error.add_note(f"which printed: {printed.getvalue()}")
            raise
        parts = [as_text(printed.getvalue())] if printed.getvalue() else []
        parts += [self.as_markdown(value)] if value is not None else []
        return "".join(f"\n{part}\n" for part in (*parts, *self.open_figures()))

    def as_markdown(self, value: Any) -> str:
        """Show a value as a notebook does: as Markdown, as the explorer's page, as a picture or as text."""
        from matplotlib.figure import Figure

        if hasattr(value, "_repr_markdown_"):
            return value._repr_markdown_().replace("```python\n", "```{code-block} python\n:class: output\n", 1)
        if isinstance(value, Figure):
            return self.save_figure(value)
        if hasattr(value, "figure") and hasattr(value, "_repr_png_"):
            return self.save_figure(value.figure)
        if hasattr(value, "explore"):  # a trace
            return self.save_explorer(value)
        if hasattr(value, "_repr_html_"):
            return f"```{{raw}} html\n{value._repr_html_()}\n```"
        return as_text(repr(value))

    def open_figures(self) -> list[str]:
        from matplotlib import pyplot

        shown = [self.save_figure(pyplot.figure(number)) for number in pyplot.get_fignums()]
        pyplot.close("all")
        return shown

    def save_figure(self, figure: Any) -> str:
        from regard.look import save

        path = save(figure, self.new_file(".svg"))
        return f"![Figure drawn by the code above](../generated/{path.name})"

    def save_explorer(self, trace: Any) -> str:
        path = trace.explore(self.new_file(".html"), show=False)
        frame = f'src="../_static/explorer/{path.name}" width="100%" height="{FRAME_HEIGHT}"'
        return f'```{{raw}} html\n<iframe {frame} loading="lazy" style="border: 0" title="explorer"></iframe>\n```'

    def new_file(self, suffix: str) -> Path:
        """Return a new name in the folder; pages go where Sphinx copies static files from."""
        self.files += 1
        folder = self.folder / "static" / "explorer" if suffix == ".html" else self.folder
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"book-{self.name}-{self.files}{suffix}"


def as_text(text: str) -> str:
    return f"```{{code-block}} text\n:class: output\n{text.rstrip()}\n```"


def run_chapter(page: str, text: str, folder: Path) -> str:
    """Return a chapter with its outputs; `page` is its name, such as book/attention."""
    threads = os.environ.get("OMP_NUM_THREADS")
    import torch

    torch.set_num_threads(int(threads) if threads else torch.get_num_threads())
    torch.manual_seed(0)
    return Chapter(page.rpartition("/")[2], folder).run(text)
