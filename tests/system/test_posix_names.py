"""The rule that keeps regard working on Windows: what only one operating system has is used in regard/system alone.

Linux's own files, such as /proc/meminfo, are read in regard/machine, which does without them where they are missing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from like_windows import KEPT_OS_NAMES, MODULES, OS_NAMES, SIGNAL_NAMES

ROOT = Path(__file__).parents[2]
NAMES = {*(f"os.{name}" for name in (*OS_NAMES, *KEPT_OS_NAMES)), *(f"signal.{name}" for name in SIGNAL_NAMES)}
KEYWORDS = {"start_new_session", "preexec_fn", "pass_fds", "process_group"}  # of subprocess.Popen
LINUX_FILES = ("/proc", "/sys", "/dev", "/tmp", "/etc")


def faults(file: str, source: str) -> Iterator[str]:
    """What Windows lacks, and text files whose encoding would be the system's, as `line: sentence`."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in NAMES:
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Import):
            yield from (f"{node.lineno}: import {alias.name}" for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            imported = {f"{node.module}.{alias.name}" for alias in node.names}
            if node.module in MODULES or imported & NAMES:
                yield f"{node.lineno}: from {node.module} import …"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith(LINUX_FILES) and not file.startswith("machine/"):
                yield f"{node.lineno}: {node.value!r}"
        elif isinstance(node, ast.Call):
            yield from call_faults(node)


def call_faults(node: ast.Call) -> Iterator[str]:
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    yield from (f"{node.lineno}: {name}=" for name in KEYWORDS & keywords.keys())
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called == "write_text" and isinstance(node.func, ast.Attribute):
        if "encoding" not in keywords or not ("newline" in keywords or is_ascii_digit(node)):
            yield f"{node.lineno}: write_text needs encoding= and newline="
    elif called == "read_text" and isinstance(node.func, ast.Attribute):
        if "encoding" not in keywords and not node.args:
            yield f"{node.lineno}: read_text needs encoding="
    elif called == "open" and is_text_mode(node, keywords):
        if "encoding" not in keywords:
            yield f"{node.lineno}: open in text mode needs encoding="
        if {"w", "a", "x"} & set(mode_of(node, keywords)) and "newline" not in keywords:
            yield f"{node.lineno}: open for writing text needs newline="


def is_ascii_digit(node: ast.Call) -> bool:
    """Whether a call writes a constant without line breaks."""
    return bool(node.args) and isinstance(node.args[0], ast.Constant) and "\n" not in str(node.args[0].value)


def mode_of(node: ast.Call, keywords: dict[str | None, ast.expr]) -> str:
    index = 1 if isinstance(node.func, ast.Name) else 0
    mode = keywords.get("mode", node.args[index] if len(node.args) > index else None)
    return mode.value if isinstance(mode, ast.Constant) and isinstance(mode.value, str) else ""


def is_text_mode(node: ast.Call, keywords: dict[str | None, ast.expr]) -> bool:
    """Whether this opens a text file: the built-in open, or the method of a path with a mode."""
    mode = mode_of(node, keywords)
    return "b" not in mode and (isinstance(node.func, ast.Name) or (mode != "" and set(mode) <= set("rwaxt+")))


def violations(root: Path) -> list[str]:
    found = []
    for path in sorted((root / "regard").rglob("*.py")):
        file = path.relative_to(root / "regard").as_posix()
        if not file.startswith("system/"):
            found += [f"{file}:{fault}" for fault in faults(file, path.read_text(encoding="utf-8"))]
    return found


def test_only_the_system_module_uses_what_windows_lacks() -> None:
    assert violations(ROOT) == []


def test_the_system_module_is_seen() -> None:
    source = (ROOT / "regard/system/posix.py").read_text(encoding="utf-8")
    assert any("import fcntl" in fault for fault in faults("a.py", source))


def test_both_systems_have_the_same_names() -> None:
    from regard import system
    from regard.system import posix, windows

    for module in (posix, windows):
        assert all(hasattr(module, name) for name in system.__all__)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.pwrite(3, b'', 0)",
        "import os\nflags = os.O_RDWR | os.O_NOFOLLOW",
        "from os import fork",
        "import fcntl",
        "def f():\n    from resource import getrusage",
        "signal.signal(signal.SIGHUP, f)",
        "subprocess.Popen(['a'], start_new_session=True)",
        "path = Path('/proc/self/status')",
        "os.replace(a, b)",
        "open('a')",
        "open('a', 'w', encoding='utf-8')",
        "path.open('w')",
        "path.read_text()",
        "path.write_text(text, encoding='utf-8')",
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, source: str) -> None:
    path = tmp_path / "regard/layers/a.py"
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    assert violations(tmp_path) != []


@pytest.mark.parametrize(
    "source",
    ["open('a', 'rb')", "webbrowser.open(address)", "path.read_text('utf-8')", "path.open('rb')", "model.open()"],
)
def test_what_is_allowed_is_not_reported(tmp_path: Path, source: str) -> None:
    path = tmp_path / "regard/layers/a.py"
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    assert violations(tmp_path) == []
