"""Every script of benchmarks/ starts: its imports are there, and --help says what it measures."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = sorted(
    path.stem
    for path in (Path(__file__).parents[2] / "benchmarks").glob("*/*.py")
    if "__main__" in path.read_text(encoding="utf-8")
)


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) > 10


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(
    name: str,
    load_script: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = load_script(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as end:
        script.main()
    assert end.value.code == 0
    assert script.__doc__ is not None
    words = re.sub(r"\s+", "", script.__doc__.splitlines()[0])
    assert words in re.sub(r"\s+", "", capsys.readouterr().out)
