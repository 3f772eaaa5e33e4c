"""regard's environment variables: what they may be set to, and that no other file reads the environment."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from regard.errors import UsageError
from regard.machine import SETTINGS, check_environment, setting

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
# Files outside of regard/machine that may touch os.environ, and what for.
MAY_TOUCH = {
    "system/files.py": "XDG_CACHE_HOME; stands left of regard/machine",
    "training/parallel/group.py": "the variables of torchrun",
    "training/parallel/launch.py": "the environment of the processes that it starts",
    "text/tokenizers/imported.py": "sets TOKENIZERS_PARALLELISM",
    "training/run/torch_settings.py": "sets CUBLAS_WORKSPACE_CONFIG",
    "interop/single_files/byte_pairs.py": "sets TOKENIZERS_PARALLELISM",
    "scale/job.py": "OMP_NUM_THREADS",
    "scale/ray_workers.py": "sets RAY_USAGE_STATS_ENABLED",
    "scale/workers.py": "the environment of the processes that it starts",
    "kernels/linear/launch_triton.py": "sets DISABLE_MMA_V3",
    "kernels/linear/without_wgmma.py": "sets DISABLE_MMA_V3",
    "kernels/linear/fused.py": "TRITON_INTERPRET",
    "kernels/linear/capabilities.py": "TRITON_INTERPRET",
}


def test_a_setting_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_NATIVE", raising=False)
    monkeypatch.delenv("REGARD_MEETING", raising=False)
    assert setting("REGARD_NATIVE") == "1" and setting("REGARD_MEETING") is None
    monkeypatch.setenv("REGARD_NATIVE", "0")
    monkeypatch.setenv("REGARD_MEETING", "/a/file")
    assert setting("REGARD_NATIVE") == "0" and setting("REGARD_MEETING") == "/a/file"
    check_environment()


def test_a_wrong_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_NATIVE", "of")
    with pytest.raises(UsageError, match=r"REGARD_NATIVE.*'of'.*known: 0, 1"):
        setting("REGARD_NATIVE")


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown environment variable 'REGARD_GRAPH'; did you mean 'REGARD_GRAPHS'"):
        setting("REGARD_GRAPH")
    monkeypatch.setenv("REGARD_NATIV", "0")
    with pytest.raises(UsageError, match="unknown environment variable 'REGARD_NATIV'; did you mean 'REGARD_NATIVE'"):
        check_environment()


def test_the_page_has_the_table() -> None:
    rows = {cells[0]: cells[1:] for cells in table_rows(PAGE) if cells[0].startswith("`REGARD_")}
    assert list(rows) == [f"`{name}`" for name in SETTINGS]
    for name, known in SETTINGS.items():
        values, meaning = rows[f"`{name}`"]
        assert meaning == known.meaning
        if known.values:
            marked = [f"`{value}`" + (" (default)" if value == known.default else "") for value in known.values]
            assert values == ", ".join(marked)


def table_rows(page: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")
    ]


@cache
def environment_uses() -> list[tuple[str, ast.AST]]:
    """Each mention of os.environ or os.getenv in regard/, as (file, the expression around it)."""
    found = []
    for path in sorted((ROOT / "regard").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, ast.Attribute) and inner.attr in ("environ", "getenv", "putenv"):
                    found.append((path.relative_to(ROOT / "regard").as_posix(), node))
    return found


def test_only_the_machine_reads_the_environment() -> None:
    files = {file for file, _ in environment_uses()}
    assert "machine/settings.py" in files  # the walk sees something
    assert {file for file in files if not file.startswith("machine/")} <= set(MAY_TOUCH)


def test_the_page_names_every_variable() -> None:
    """Those whose names stand as text in a file that touches the environment."""
    names = set()
    for path in {ROOT / "regard" / file for file, _ in environment_uses()}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names |= {node.value} if re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|RANK", node.value) else set()
    assert {"RANK", "XDG_CACHE_HOME", "TRITON_INTERPRET"} <= names
    missing = {name for name in names if f"`{name}`" not in PAGE}
    assert not missing
