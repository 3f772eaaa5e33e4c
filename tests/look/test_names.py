"""The lazy table of regard.look, its type stub and what they name agree; a trace is read without PyTorch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from regard import look


def test_stub_lists_the_same_names() -> None:
    assert look.__file__ is not None
    stub = ast.parse(Path(look.__file__).with_suffix(".pyi").read_text())
    listed = {alias.asname for node in ast.walk(stub) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert listed == set(look.__all__)


@pytest.mark.parametrize("name", look.__all__)
def test_name_is_there_and_is_no_module(name: str) -> None:
    found = getattr(look, name)
    assert found is getattr(look, name)
    assert found.__module__.startswith("regard.look.") and found.__name__ == name


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'alinement_plot'"):
        look.alinement_plot  # noqa: B018


def test_a_trace_is_read_without_torch(tmp_path: Path) -> None:
    from regard.look.trace.attention_map import Map
    from regard.look.trace.trace import Axis, Model, Token, Trace

    axes = {"source": Axis((Token("a"), Token("b")))}
    model = Model("tiny", "encoder", {"encoder": 1}, 1, {})
    path = Trace(model, axes, {"enc_self": Map("source", "source", [[[[0.5, 0.5], [1, 0]]]])}).save(tmp_path / "t.json")
    source = (
        "import sys, regard\n"
        f"trace = regard.look.Trace.load({str(path)!r})\n"
        "assert trace.maps['enc_self'].weights.sum() == 2\n"
        "print(*{'torch', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
