"""Every example of the README and the docs is run: Python blocks as they stand, commands through the command line.

The commands of docs/learn/pictures.md and the chapters of docs/book are run when these pages are built (test_build.py),
so not a second time here.
Commands with pipes and redirections go through a shell.
The blocks of a page share their names and run from top to bottom in an empty folder. A block that cannot run has
the comment `<!-- not run: reason -->` on the line before it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts and page.exists()]
# What is run, and other names for the same that nobody would run.
CHECKED = ("python", "console", "sh")
UNCHECKED = {"bash", "shell", "zsh", "pycon", "py", "python3", "ipython", "doctest"}
FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<language>[^`\n]*)\n(?P<body>.*?)^(?P=ticks)`*[ ]*$", re.MULTILINE | re.DOTALL)
SHELL = {"|", ">", "<"}
PIPED = {"regard", "echo", "cat"}  # what a command with them may be made of
NOT_RUN = re.compile(r"<!--\s*not run:\s*(?P<reason>.*?)\s*-->\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    body: str
    not_run: str | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(text: str, page: str) -> list[Block]:
    """The fenced blocks of a page, in order, with the line on which their content begins."""
    blocks = []
    for match in FENCE.finditer(text):
        comment = NOT_RUN.search(text[: match.start()])
        language = match["language"].strip()
        line = text.count("\n", 0, match.start("body")) + 1
        blocks.append(Block(page, line, language, match["body"], comment and comment["reason"]))
    return blocks


def commands_of(block: Block) -> list[str]:
    """What is typed: in a console block the lines after `$ `, in an sh block every line; comments are left to shlex."""
    body = re.sub(r"\\\n\s*(?:>\s)?", "", block.body)  # a backslash at the end joins two lines
    if block.language == "sh":
        return [line for line in body.splitlines() if line.strip() and not line.startswith("#")]
    return [line[2:] for line in body.splitlines() if line.startswith("$ ")]


# Commands that take seconds and that other tests run, with the same arguments.
ELSEWHERE = {"regard lectures": "tests/cli/test_lectures.py"}


def run_page(blocks: list[Block], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        if block.not_run is not None:
            continue
        if block.language == "python":
            # Blank lines before the code, so that a traceback shows the line of the page.
            source = "\n" * (block.line - 1) + block.body
            exec(compile(source, str(ROOT / block.page), "exec"), names)
        elif block.language in ("console", "sh"):
            for command in commands_of(block):
                if command in ELSEWHERE:
                    continue
                run_command(command, block, monkeypatch)


def run_command(command: str, block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `regard …` through the command line; of `make …` check that the target is there."""
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        unknown = [word for word in words[1:] if "=" not in word and word not in targets]
        assert not unknown, f"{block.place}: the Makefile has no target {unknown}"
        return
    if SHELL & set(words):
        run_in_shell(command, words, block)
        return
    assert words[0] == "regard", f"{block.place}: only `$ regard` and `$ make` are checked; mark `{command}` not run"
    assert not {"&&", ";"} & set(words), f"{block.place}: write one command a line, not `{command}`"
    from regard.cli import main

    monkeypatch.setattr(sys, "argv", words)
    code: object = None
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    assert not code, f"{block.place}: `{command}` ended with {code}"


def run_in_shell(command: str, words: list[str], block: Block) -> None:
    """Pipes and redirections, by a shell in which `regard` is the one of these tests."""
    programs = {words[0], *(word for before, word in pairwise(words) if before == "|")}
    assert programs <= PIPED, f"{block.place}: only {sorted(PIPED)} are run in a shell; mark `{command}` not run"
    regard = 'regard() { "$PYTHON" -c "from regard.cli import main; main()" "$@"; }'
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    script = f"set -o pipefail\n{regard}\n{command}"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{block.place}: `{command}` ended with {done.returncode}: {done.stderr}"


def blocks_on(page: Path) -> list[Block]:
    return blocks_of(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))


# Its command starts several processes, as the tests in tests/faults/processes/test_launcher.py do.
SLOW_PAGES = {"processes.md"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page.name in SLOW_PAGES else page
        for page in PAGES
        if page.name != "pictures.md" and page.parent.name != "book"
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(blocks_on(page), tmp_path, monkeypatch)


def test_no_block_escapes() -> None:
    """No example hides behind another name of its language, and what is not run says why."""
    for page in PAGES:
        for block in blocks_on(page):
            first_word = block.language.split(" ")[0].lower()
            assert first_word not in UNCHECKED, f"{block.place}: write one of {CHECKED}, which are run"
            assert block.language in CHECKED or not first_word.startswith(CHECKED), block.place
            assert block.not_run is None or len(block.not_run.split()) >= 3, f"{block.place}: not run, but why?"


def test_blocks_not_run() -> None:
    """The list of what is not run stays short: downloads, weights of others, servers, Docker, long trainings."""
    listed = {block.place: block.not_run for page in PAGES for block in blocks_on(page) if block.not_run is not None}
    for place, reason in listed.items():
        print(f"{place}: not run: {reason}")
    assert len(listed) <= 31, listed


# The checker itself, on planted pages.


def planted(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(blocks_of(text, "planted.md"), folder, monkeypatch)


def test_blocks_share_names_and_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted("```python\nx = 1\n```\ntext\n```python\nassert x == 1\nopen('made', 'w')\n```\n", tmp_path, monkeypatch)
    assert (tmp_path / "made").exists()


def test_a_wrong_example_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        planted("```python\nassert 1 == 2\n```\n", tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("make no-such-target", "no target"),
        ("rm -rf /", "mark `rm -rf /` not run"),
        ("regard plot causal | less", "less` not run"),
        ("regard plot causal && echo", "one command a line"),
        ("regard no-such-command | cat", "ended with 2"),
        ("regard no-such-command", "ended with 2"),
    ],
)
def test_a_wrong_command_fails(command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in (f"```console\n$ {command}\n```\n", f"```sh\n# comment\n{command}\n```\n"):
        with pytest.raises(AssertionError, match=re.escape(message)):
            planted(block, tmp_path, monkeypatch)


def test_the_comment_stands_right_before_its_block() -> None:
    text = "<!-- not run: needs a GPU -->\n```python\n1 / 0\n```\n\n```python\n2 / 0\n```\n"
    first, second = blocks_of(text, "planted.md")
    assert first.not_run == "needs a GPU" and second.not_run is None
    assert (first.line, second.line) == (3, 7)
