"""Starts training processes in a moment: imports regard once, and forks for every line of JSON that it reads.

    {"folder": F, "arguments": ["train", "recipe.toml"], "environment": {"FAULTS": "[…]"}}

gives a process that runs `regard train recipe.toml`: a real one, in a session of its own, that can be killed. Into F go
`pid`, `out`, `err` and, when it has ended, `code` (negative: the signal that ended it). Its standard input stays open
as long as it lives. The first line is {"folder": F}: there `ready` appears.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import inject
from harness import write_recipe

import regard.training.run.training_run  # noqa: F401
from regard.cli import main
from regard.training.parallel import launch


def write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".fresh")
    fresh.write_text(text)
    fresh.rename(path)


def become(request: dict) -> None:
    """Turn this process into the one that was asked for."""
    folder = Path(request["folder"])
    os.setsid()
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(folder)
    os.environ.update(request["environment"])
    if request["user"]:
        os.setgid(request["user"])
        os.setuid(request["user"])
    sys.argv = ["regard", *request["arguments"]]
    if "--nproc" in sys.argv:
        launch.start_child = fork_child  # the faults are for the processes that it starts
    elif "FAULTS" in request["environment"]:
        inject.arm()


def fork_child(command: list[str], *, env: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process of a launcher, as `regard.system.start_child` does, but without a new Python.

    Popen calls `train` in the fork, and waits until the pipe to it is closed: by a new program, or as here.
    """

    def train() -> None:
        os.closerange(3, 1000)
        gc.enable()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(env)
        if "FAULTS" in env:
            inject.arm()
        sys.argv = ["regard", *command[3:]]  # after: python -m regard
        run_and_end()

    return subprocess.Popen(command, start_new_session=True, preexec_fn=train, **options)


def import_all() -> None:
    """Import what a training imports on its way, too: one is run, and what it has come to is imported here."""
    with tempfile.TemporaryDirectory() as name:
        recipe, modules = write_recipe(Path(name)), Path(name) / "modules"
        trainer = os.fork()
        if not trainer:
            sys.argv = ["regard", "train", str(recipe), "--out", f"{name}/run", "--set", "training.steps=4", "--quiet"]
            with open(os.devnull, "w") as sys.stdout:
                try:
                    main()
                except SystemExit as end:
                    write(modules, "\n".join(sorted(sys.modules)) if not end.code else "")
            os._exit(0)
        os.waitpid(trainer, 0)
        for module in modules.read_text().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(module)


def watch(child: int, folder: Path) -> None:
    """Note how a child ends; it does not outlive the nursery."""
    write(folder / "pid", str(child))
    nursery, status = os.getppid(), None
    while status is None:
        if os.getppid() != nursery:
            os.killpg(child, signal.SIGKILL)
        ended, found = os.waitpid(child, os.WNOHANG)
        status = found if ended else None
        time.sleep(0.005)
    write(folder / "code", str(os.waitstatus_to_exitcode(status)))


def run_and_end() -> None:
    """The command, and the end of a Python process, but for giving memory back: that takes a second after a fork."""
    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def nurse() -> bool:
    """Fork for each request; True in the process that shall train."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    write(Path(json.loads(sys.stdin.readline())["folder"]) / "ready", "")
    for line in sys.stdin:
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = json.loads(line)
        read, write_end = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(read, 0)
            os.close(read)
            os.close(write_end)
            become(request)
            return True
        watch(child, Path(request["folder"]))
        os._exit(0)
    return False


if __name__ == "__main__":
    # What was written outlives its process, if not a power cut. That files are synced, and in which order, is what
    # test_kill.py looks at.
    os.fsync = lambda handle: None
    import_all()
    if nurse():
        run_and_end()
