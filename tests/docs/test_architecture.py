"""The numbers on docs/develop/architecture.md are those that the code and the tests go by."""

from __future__ import annotations

import re
from pathlib import Path

from regard import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/develop/architecture.md").read_text(encoding="utf-8")


def test_tolerances_are_those_that_are_tested() -> None:
    source = (ROOT / "tests/attention/test_backends.py").read_text(encoding="utf-8")
    tested = re.findall(r"^    torch\.(\w+): \((\S+), (\S+)\),$", source, re.MULTILINE)
    shown = re.findall(r"^\| (\w+) \| (\S+) \| (\S+) \|$", PAGE, re.MULTILINE)
    assert len(tested) >= 3
    assert shown == tested


def test_exit_codes_are_those_of_the_errors() -> None:
    shown = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    used = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    assert len(used) >= 4
    assert used <= shown
