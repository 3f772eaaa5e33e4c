"""Examples in docstrings (>>>) give what they say, and Sphinx is told of plain text, not of markup."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

import regard

DOCS = Path(__file__).parents[2] / "docs"
MODULES = [info.name for info in pkgutil.walk_packages(regard.__path__, "regard.")]
MODULES = [name for name in MODULES if not name.endswith("__main__")]  # importing it would run it
if find_spec("triton") is None:  # it comes with torch's builds for CUDA, and with the test extra where it exists
    MODULES = [name for name in MODULES if not name.endswith("_triton")]


def test_examples_in_docstrings() -> None:
    failures = {}
    for name in MODULES:
        module = importlib.import_module(name)
        if ">>> " not in inspect.getsource(module):  # the search for examples takes time
            continue
        result = doctest.testmod(module)
        if result.failed:
            failures[name] = result
    assert len(MODULES) > 10
    assert failures == {}


def test_every_module_says_what_it_is() -> None:
    silent = [name for name in MODULES if not (importlib.import_module(name).__doc__ or "").strip()]
    assert silent == ["regard.version"]  # it is one line


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Plain *text* with x_ and |a|.", r"Plain \*text\* with x\_ and \|a\|."),
        ("Call `attend`.", r"Call ``attend``\ ."),
        ("`a`-th", r"``a``\ -th"),
        ("A formula\n    y = x * W\nand more", "A formula\n\n::\n\n    y = x * W\n\nand more"),
        ("Rows\n\n| a | b |\n| c | d |", "Rows\n\n\n::\n\n    | a | b |\n    | c | d |"),
        ("Try\n\n>>> 1 * 2\n2", "Try\n\n>>> 1 * 2\n2"),
    ],
)
def test_docstrings_are_plain_text(docstring: str, expected: str) -> None:
    convert = runpy.run_path(str(DOCS / "conf.py"))["as_restructured_text"]
    assert "\n".join(convert(docstring.splitlines())) == expected
