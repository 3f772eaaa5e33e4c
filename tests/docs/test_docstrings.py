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


def sources() -> dict[str, str]:
    """The text of each module, by name."""
    return {name: inspect.getsource(importlib.import_module(name)) for name in MODULES}


# What newcomers call first has an example.
SHOWN = {
    "regard.attention.dispatch": "attend",
    "regard.attention.multihead": "MultiHeadAttention",
    "regard.attention.masks": "",
    "regard.attention.scores": "AdditiveScore",
    "regard.attention.recording.recorder": "record",
    "regard.positions.sinusoids": "sinusoidal",
    "regard.models.presets": "preset",
    "regard.models.folder.saving": "save_model",
    "regard.demo.corpus": "demo_pairs",
    "regard.demo.stories": "demo_stories",
    "regard.evaluation.answers": "answer_scores",
    "regard.evaluation.rouge": "corpus_rouge",
    "regard.evaluation.word_errors": "word_errors",
    "regard.decoding.searches.sample": "Sample",
    "regard.tasks.loading": "load",
    "regard.training.run.training_run": "train",
    "regard.exercises.checking": "check_answer",
}


@pytest.mark.parametrize("module", SHOWN)
def test_an_example_in_a_docstring_runs(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = importlib.import_module(module)
    examples = {test.name: test for test in doctest.DocTestFinder().find(loaded, module) if test.examples}
    shown = examples[f"{module}.{SHOWN[module]}".rstrip(".")]
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(shown)
    assert result.attempted >= 1 and result.failed == 0


def test_no_example_is_left_unchecked() -> None:
    """Every example is one of those above; another one joins them."""
    assert {name for name, text in sources().items() if ">>> " in text} == {*SHOWN}


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
