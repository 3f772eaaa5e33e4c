"""The notebooks have the code of the pages they come from; test_examples.py runs the pages."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_notebooks_are_those_of_the_pages(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_notebooks", ROOT / "scripts" / "make_notebooks.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    fresh = script.write_notebooks(tmp_path)
    assert [path.stem for path in fresh] == ["multi-head-attention", "self-attention"]
    for path in fresh:
        shipped = ROOT / "docs" / "learn" / "notebooks" / path.name
        assert shipped.read_text("utf-8") == path.read_text("utf-8"), "run scripts/make_notebooks.py"
        cells = json.loads(path.read_text("utf-8"))["cells"]
        page = shipped.with_suffix(".md").read_text("utf-8")
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        assert len(code) == page.count("```python\n") and all(f"```python\n{block}\n```" in page for block in code)
        assert not any(".ipynb" in line or ".md" in line for cell in cells for line in cell["source"])
