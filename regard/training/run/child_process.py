"""Train in a child process, so that its memory can be measured.

    python -m regard.training.run.child_process RECIPE FOLDER [--quiet]

This module imports nothing heavy at the top, so an early signal is obeyed at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from regard.errors import RegardError, StoppedError
from regard.machine import peak_allocated, peak_resident
from regard.system import forward_signal, start_child
from regard.system.files import replace_file
from regard.system.process_exit import exit_process
from regard.system.terminal import show_plain_warnings
from regard.training.signals import StopFlag

MEMORY = "memory.json"


def train_apart(recipe: Path, folder: Path, *, quiet: bool = False) -> None:
    """Train in another process, or continue; its progress goes to our stderr, and signals are forwarded to it."""
    command = [sys.executable, "-m", "regard.training.run.child_process", str(recipe), str(folder)]
    with StopFlag() as stop:
        child = start_child([*command, *(["--quiet"] if quiet else [])])
        try:
            forwarded = False
            while (code := _exit_code(child)) is None:
                if stop.signal and not forwarded:
                    forward_signal(child, stop.signal)
                    forwarded = True
        except BaseException:
            child.kill()
            child.wait()
            raise
    if stop.signal:
        raise StoppedError(
            f"stopped by {stop.name} in the training of {folder.name}; run the same command again to continue",
            stop.signal,
        )
    if code:
        error = RegardError(f"the training of {folder.name} ended with exit code {code}; its message is above")
        error.exit_code = code if code > 0 else 1
        raise error


def _exit_code(child: subprocess.Popen[bytes]) -> int | None:
    try:
        return child.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return None


def read_memory(folder: Path) -> int | None:
    """Return the peak memory that was recorded for a run, in bytes."""
    file = folder / MEMORY
    return json.loads(file.read_bytes())["peak"] if file.exists() else None


def main(arguments: list[str]) -> int:
    """Train in the child process; return the exit code."""
    recipe, folder = map(Path, arguments[:2])
    quiet = "--quiet" in arguments
    show_plain_warnings()

    def say(text: str) -> None:
        if not quiet:
            sys.stderr.write(text + "\n")

    try:
        from regard.training.run.training_run import train

        train(recipe, out=folder, say=say, quiet=quiet)
    except RegardError as error:
        if not isinstance(error, StoppedError):  # the parent has the better message
            sys.stderr.write(f"regard: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    finally:
        peaks = [peak for peak in (read_memory(folder), peak_allocated() or peak_resident()) if peak is not None]
        if folder.exists() and peaks:  # over all starts of this run
            replace_file(folder / MEMORY, json.dumps({"peak": max(peaks)}).encode())
    return 0


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
