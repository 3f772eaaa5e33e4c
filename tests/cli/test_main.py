"""The frame of the command line: quick help, one message an error, the exit codes of the contract."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import COMMANDS, app, make_app, requested_command
from regard.errors import DataError, ModelError, UsageError
from regard.version import __version__

from ..repeats import some

ROOT = Path(__file__).parents[2]
SCRIPT = "from regard.cli import main; main()"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", SCRIPT, *arguments]


def run(*arguments: str, cwd: Path = ROOT, code: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    line = [sys.executable, "-c", code, *arguments]
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"regard {__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == (0 if arguments else 2)  # no command is a usage error that shows the help
    shown = result.stdout + result.stderr
    assert "demo" in shown and "plot" in shown and "--debug" in shown


def test_help_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'matplotlib', 'numpy'}"
    result = run("--help", code=f"import sys\ntry: {SCRIPT}\nfinally: print({heavy} & set(sys.modules))")
    assert result.returncode == 0
    assert "Commands" in result.stdout and result.stdout.endswith("\nset()\n")


def replace_demo(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `regard demo` raise error."""

    def broken() -> None:
        raise error

    (demo,) = [info for info in app.registered_commands if info.name == "demo"]
    monkeypatch.setattr(demo, "callback", broken)


@pytest.mark.parametrize(
    ("error", "code", "stderr"),
    [
        (UsageError("no such recipe"), 2, "regard: no such recipe\n"),
        (DataError("line 3 is empty"), 3, "regard: line 3 is empty\n"),
        (ModelError("no manifest"), 4, "regard: no manifest\n"),
        (MemoryError("too much"), 6, "regard: out of memory: too much\n"),
        (torch.OutOfMemoryError("CUDA"), 6, "regard: out of memory: CUDA\n"),
        (OSError(28, "No space left on device"), 6, "regard: out of disk space: [Errno 28] No space left on device\n"),
        (KeyboardInterrupt(), 130, ""),
        (
            RuntimeError("oh"),
            1,
            "regard: RuntimeError: oh\nThis is a bug in regard. Run `regard --debug …` to see the traceback.\n",
        ),
    ],
)
def test_errors_end_with_one_message_and_their_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, stderr: str
) -> None:
    replace_demo(monkeypatch, error)
    result = CliRunner().invoke(app, ["demo"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", stderr)


@pytest.mark.parametrize(("error", "code"), [(UsageError("no such recipe"), 2), (RuntimeError("oh"), 1)])
def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    replace_demo(monkeypatch, error)
    result = CliRunner().invoke(app, ["--debug", "demo"])
    assert result.exit_code == code
    assert "Traceback (most recent call last)" in result.stderr and "in broken" in result.stderr


def test_an_unknown_environment_variable_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt REGARD_… would have no effect, so it is refused with the nearest name; help still works."""
    monkeypatch.setenv("REGARD_NATIV", "0")
    result = CliRunner().invoke(app, ["info", "fr-en"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown environment variable 'REGARD_NATIV'; did you mean 'REGARD_NATIVE'?" in result.stderr
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0


def test_a_wrong_value_of_an_environment_variable_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_NATIVE", "off")
    result = CliRunner().invoke(app, ["info", "fr-en"])
    assert result.exit_code == 2 and "REGARD_NATIVE" in result.stderr and "known: 0, 1" in result.stderr


def test_a_usage_error_goes_to_stderr_of_the_process() -> None:
    result = run("plot", "nothing")
    assert (result.returncode, result.stdout) == (2, "")
    assert "No such command 'nothing'" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", some([["--help"], ["plot", "mask"], pytest.param(["demo"], marks=pytest.mark.slow)], 1)
)
def test_a_closed_pipe_ends_quietly(arguments: Sequence[str], tmp_path: Path) -> None:
    read, written = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with os.fdopen(written, "w") as pipe:
        result = subprocess.run(
            command(*arguments), stdout=pipe, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, timeout=60
        )
    assert (result.returncode, result.stderr) == (141, b"")


def test_ctrl_c_ends_with_130() -> None:
    interrupted = (
        "import os, signal, time, regard.cli\n"
        "def wait():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(30)\n"
        "regard.cli.COMMANDS['demo'] = wait\n"
        "regard.cli.main()\n"
    )
    result = run("demo", code=interrupted)
    assert (result.returncode, result.stderr) == (130, "")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["translate", "-t", "generate"], "translate"),
        (["--debug", "generate"], "generate"),
        (["--help"], None),
        (["plot", "translate"], None),
        (["nothing", "translate"], None),
        ([], None),
    ],
)
def test_the_command_is_the_first_word(arguments: Sequence[str], command: str | None) -> None:
    assert requested_command(arguments) == command


def test_a_command_alone_has_the_same_help() -> None:
    for name in COMMANDS:
        alone, all_commands = (CliRunner().invoke(commands, [name, "--help"]) for commands in (make_app(name), app))
        assert alone.exit_code == 0
        assert alone.output == all_commands.output
