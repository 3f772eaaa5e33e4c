"""docs/commands.md lists every command of the command line with all its options, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from regard.cli import app

PAGE = (Path(__file__).parents[2] / "docs/commands.md").read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("| `").removeprefix("regard "): cells[1:]
    for line in PAGE.splitlines()
    if line.startswith("| `regard ") and (cells := line.split(" | "))
}
COMMANDS: dict[str, Any] = get_command(app).commands


def test_commands() -> None:
    assert list(ROWS) == list(COMMANDS), "the same, in the order of `regard --help`"


@pytest.mark.parametrize("name", COMMANDS)
def test_options(name: str) -> None:
    long = [option for one in COMMANDS[name].params for option in one.opts if option.startswith("--")]
    shown = re.findall(r"`(--[\w-]+)`", ROWS[name][-1])
    assert shown == [option for option in long if option != "--help"]


def test_pictures() -> None:
    assert re.findall(r"`([\w-]+)`", ROWS["plot"][0]) == list(COMMANDS["plot"].commands)


def test_short_forms() -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith("Short forms"))
    shown = set(re.findall(r"`(-\w)`", line))
    used = {o for c in COMMANDS.values() for one in c.params for o in one.opts if re.fullmatch(r"-\w", o)}
    assert used | {"-h"} == shown
