"""The notebooks have the code of the pages they come from, and run in a kernel as Jupyter starts it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BOOK = sorted((DOCS / "book/notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_notebooks", ROOT / "scripts" / "make_notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebooks_are_those_of_the_pages(script: ModuleType, tmp_path: Path) -> None:
    fresh = script.write_notebooks(tmp_path)
    assert {"self-attention", "multi-head-attention", "tokens"} <= {path.stem for path in fresh}
    assert {path.relative_to(tmp_path) for path in fresh} == {path.relative_to(DOCS) for path in DOCS.rglob("*.ipynb")}
    for path in fresh:
        shipped = DOCS / path.relative_to(tmp_path)
        assert shipped.read_text("utf-8") == path.read_text("utf-8"), "run scripts/make_notebooks.py"
        cells = json.loads(path.read_text("utf-8"))["cells"]
        is_chapter = "book" in shipped.parts
        page = (DOCS / "book" if is_chapter else shipped.parent) / f"{path.stem}.md"
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        if is_chapter:
            assert code.pop(0) == script.INSTALL
        text = page.read_text("utf-8")
        assert len(code) == text.count("```python\n") and all(f"```python\n{block}\n```" in text for block in code)
        assert not any(".ipynb" in line or ".md" in line for cell in cells for line in cell["source"])


def run(path: Path, folder: Path) -> list[dict[str, Any]]:
    """Run a notebook without the line that installs regard, in an empty folder and a new kernel; return its outputs."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    install, rest = notebook.cells[1].source.split("\n", 1)
    assert install == "%pip install -q regard"
    notebook.cells[1].source = f"{rest}\nimport torch; torch.manual_seed(0);"
    NotebookClient(
        notebook, kernel_name="python3", timeout=200, resources={"metadata": {"path": str(folder)}}
    ).execute()
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


# The build of the documentation runs the same code (run_chapters.py); one chapter shows that it runs in a kernel, too.
@pytest.mark.parametrize(
    "path",
    [path if path.stem == "tokens" else pytest.param(path, marks=pytest.mark.slow) for path in BOOK],
    ids=lambda path: path.stem,
)
def test_notebook_runs_in_a_kernel(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)  # of the tests; Jupyter lets the kernel choose
    outputs = run(path, tmp_path)
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert "text/markdown" in kinds and kinds.count("image/png") >= 3  # source code and figures
    assert not any(output.output_type == "error" for output in outputs)
