"""How Sphinx builds the documentation: offline, every warning an error."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from importlib.metadata import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from run_chapters import run_chapter  # noqa: E402

from regard.version import __version__  # noqa: E402

project = "regard"
author = "The regard authors"
copyright = "the regard authors; Apache-2.0"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]  # $formula$, as GitHub and notebooks have it
myst_dmath_double_inline = True
exclude_patterns = ["_build"]
# A link to code that the reference does not have is an error; types of other libraries are not ours to link.
nitpicky = True
# A type variable is nothing to link to.
nitpick_ignore_regex = [("py:(?!obj).*", ".*"), ("py:obj", r"(?!regard\.).*"), ("py:obj", r".*\.(T|Samples)")]

# Triton is there on Linux with x86-64 only, and no page needs it.
autodoc_mock_imports = [] if importlib.util.find_spec("triton") else ["triton"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # those of torch are markup of another kind
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"regard {release}"
html_static_path = ["_static", "generated/static"]
mathjax_path = "mathjax/tex-svg.js"  # one file with its fonts, copied by ship_mathjax
html_favicon = "../web/favicon.svg"
html_css_files = ["regard.css"]

GENERATED = HERE / "generated"
NAVIGATION: dict[tuple[object, ...], str] = {}  # see share_navigation


def ship_mathjax() -> None:
    """Copy MathJax from the installed package `sphinx-mathjax-offline`, so that formulas need no other host."""
    (script,) = (file for file in files("sphinx-mathjax-offline") or [] if file.match(f"static/{mathjax_path}"))
    copy = GENERATED / "static" / mathjax_path
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(script.locate(), copy)


ship_mathjax()  # Sphinx checks html_static_path before the first event


def as_restructured_text(lines: list[str]) -> list[str]:
    """A docstring for Sphinx. Ours are plain text for whoever reads the code, not markup.

    Unindented lines are a paragraph or a list, in which `name` is code; indented lines and tables stay as they
    stand; examples that begin with >>> are left to Sphinx.
    """
    text: list[str] = []
    literal = False
    for line in lines:
        table = line.startswith("|")
        stands = table or line.startswith("    ")
        example = line.lstrip().startswith((">>>", "..."))
        if stands and not literal and not example:
            text += ["", "::", ""]
            literal = True
        elif literal and line and not stands:
            text.append("")
            literal = False
        text.append("    " + line if table else line if literal or example else escaped(line))
    return text


def escaped(line: str) -> str:
    """A line in which nothing but `code` means anything to reStructuredText."""
    parts = re.split(r"(`+[^`]+`+)", line)
    plain, code = parts[::2], parts[1::2]
    plain = [re.sub(r"([*|_\\])", r"\\\1", part) for part in plain]
    code = [f"``{part.strip('`')}``" for part in code]
    # A backslash and a space keep code from sticking to a letter before or after it.
    joined = plain[0]
    for quoted, after in zip(code, plain[1:], strict=True):
        joined += ("\\ " if joined and not joined.endswith(" ") else "") + quoted
        joined += ("\\ " if after and not after.startswith(" ") else "") + after
    return joined


def process_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = as_restructured_text(lines)


def leave_out_code(app: Sphinx, page: str, source: list[str]) -> None:
    """Keep only the headings and texts of the reference, but for one page, if Sphinx was called with `-t outline`.

    That takes half the time, and every link in the documentation leads to one of these headings.
    """
    if app.tags.has("outline") and page.startswith("reference/") and page != "reference/attention":
        source[0] = re.sub(r"```{eval-rst}\n.. automodule::.*?```\n", "", source[0], flags=re.DOTALL)


# Where `make site` puts the explorer, which `make docs` does not build.
EXPLORER = (
    '- <a href="explorer/index.html">The explorer</a>: look inside the shipped models, which run in your browser\n'
)


def link_explorer(app: Sphinx, page: str, source: list[str]) -> None:
    """Link the explorer on the first page, if Sphinx was called with `-t site`."""
    if app.tags.has("site") and page == "index":
        source[0] = source[0].replace("Learn:\n\n", f"Learn:\n\n{EXPLORER}", 1)


def run_book(app: Sphinx, page: str, source: list[str]) -> None:
    """Execute the chapters of the book, so that they show what their code computes."""
    if page.startswith("book/"):
        source[0] = run_chapter(page, source[0], GENERATED)


# Options for an outline, of the pictures for which most is computed.
SMALL = {"gradients": ["--length", "10", "--seeds", "2"], "random-features": ["--features", "16", "--seeds", "2"]}


def draw_pictures(app: Sphinx) -> None:
    """Make the pictures of learn/pictures.md by the very commands that the page shows."""
    from regard.cli import app as regard

    commands = re.findall(r"^\$ regard (plot .*)$", (HERE / "learn/pictures.md").read_text("utf-8"), re.MULTILINE)
    with TemporaryDirectory(dir=GENERATED) as fresh:
        for command in commands:
            *words, name = shlex.split(command)
            small = SMALL.get(words[1], []) if app.tags.has("outline") else []  # of two values, the last one counts
            regard([*words, f"{fresh}/{name}", *small], standalone_mode=False)
        # Moved into place whole, so that another build at the same time never sees half a picture.
        for picture in Path(fresh).iterdir():
            picture.replace(GENERATED / picture.name)


def write_crossover(app: Sphinx) -> None:
    """The shipped tables of exact attention against random features, for learn/random-features.md."""
    from regard.kernels.linear.crossover import SHIPPED, read_tables

    text = "\n\n".join(table.text() for table in read_tables(SHIPPED))
    with TemporaryDirectory(dir=GENERATED) as fresh:
        page = Path(fresh) / "crossover.txt"
        page.write_text(text + "\n", encoding="utf-8")
        page.replace(GENERATED / page.name)


def share_navigation(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Draw the table of contents once for all pages of source code in folders equally deep: it is most of their work.

    These pages stand in no table of contents, so theirs differ only in how many `../` lead out of their folder.
    """
    draw = context["toctree"]

    def drawn(**options: Any) -> str:
        place = (page.count("/"), *options.values())
        if place not in NAVIGATION:
            NAVIGATION[place] = draw(**options)
        return NAVIGATION[place]

    if page.startswith("_modules/"):
        context["toctree"] = drawn


def setup(app: Sphinx) -> None:
    app.connect("source-read", run_book)
    app.connect("source-read", link_explorer)
    app.connect("builder-inited", draw_pictures)
    app.connect("builder-inited", write_crossover)
    app.connect("source-read", leave_out_code)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("html-page-context", share_navigation, priority=400)  # before the theme asks for it
