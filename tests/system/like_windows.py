"""Make a Python process on Linux or macOS behave like Windows, as far as regard can notice.

    python like_windows.py FOLDER    run the commands of regard in FOLDER so, and write report.json there

Taken away: the functions, signals, files and modules that Windows lacks, Triton, and UTF-8 as the default encoding.
Changed: an open or mapped file can be neither removed nor replaced, nor can the folder around it; a file can be synced
only if it is open for writing; `msvcrt` locks bytes. The last step starts the explorer's server and presses Ctrl-C.
"""

from __future__ import annotations

import asyncio  # noqa: F401  # what libraries need is imported before it is taken away
import contextlib
import ctypes
import errno
import fcntl
import io
import json
import locale  # noqa: F401
import multiprocessing.util  # noqa: F401
import os
import shutil
import signal
import struct
import sys
import threading
import types
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot  # noqa: F401
import sacrebleu  # noqa: F401
import torch.distributed
import torch.utils.data
import uvicorn  # noqa: F401

MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "readline")
OS_NAMES = (
    "pread", "pwrite", "preadv", "pwritev", "fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "getgroups",
    "setuid", "setgid", "setsid", "setpgid", "getpgid", "getpgrp", "killpg", "nice", "getpriority", "uname", "sysconf",
    "sysconf_names", "confstr", "getloadavg", "sched_getaffinity", "sched_setaffinity", "sched_yield", "mkfifo",
    "mknod", "chown", "fchown", "lchown", "fchmod", "fchdir", "chroot", "lockf", "fdatasync", "sync", "sendfile",
    "posix_fadvise", "posix_fallocate", "posix_spawn", "wait", "wait3", "wait4", "waitid", "openpty", "ttyname",
    "tcgetpgrp", "ctermid", "register_at_fork", "memfd_create", "splice", "eventfd", "O_DIRECTORY", "O_NOFOLLOW",
    "O_SYNC", "O_DSYNC", "O_PATH", "O_NOATIME",
)  # fmt: skip
KEPT_OS_NAMES = (
    "kill",
    "statvfs",
    "umask",
    "O_CLOEXEC",
    "O_NONBLOCK",
    "O_TMPFILE",
    "rename",
    "replace",
)  # libraries need them here
SIGNAL_NAMES = (
    "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP",
    "SIGCONT", "SIGTTIN", "SIGTTOU", "SIGWINCH", "SIGXCPU", "alarm", "setitimer", "getitimer", "pause", "pthread_kill",
    "pthread_sigmask", "sigwait", "sigtimedwait", "sigpending", "siginterrupt",
)  # fmt: skip
MEMORY = 16 << 30
real_open = io.open
refused: list[str] = []  # removals of open files, also those whose error nobody saw


def become_windows() -> None:
    """Change this process; regard must not have been imported."""
    assert "regard" not in sys.modules
    sys.modules["msvcrt"] = types.ModuleType("msvcrt")
    vars(sys.modules["msvcrt"]).update(LK_UNLCK=0, LK_NBLCK=2, locking=lock_bytes)
    refuse_open_files()
    hide_linux()
    sync_only_written_files()
    fake = types.SimpleNamespace(GlobalMemoryStatusEx=memory_status)
    ctypes.windll = types.SimpleNamespace(kernel32=fake)  # type: ignore[attr-defined]
    signal.SIGBREAK = signal.SIGQUIT  # type: ignore[attr-defined]
    for module, names in ((os, OS_NAMES), (signal, SIGNAL_NAMES)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in (*MODULES, "triton"):
        sys.modules[name] = None  # type: ignore[assignment]
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="cp1252", errors="strict")


def lock_bytes(handle: int, operation: int, count: int, fcntl: Any = fcntl) -> None:
    """`msvcrt.locking`: two handles exclude each other, in one process too. A locked byte cannot be read by others."""
    begin = os.lseek(handle, 0, os.SEEK_CUR)
    assert begin > 1 << 20, "the entry in the lock file could not be read"
    if not hasattr(fcntl, "F_OFD_SETLK"):  # macOS
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if operation else fcntl.LOCK_UN)
        return
    kind = fcntl.F_WRLCK if operation else fcntl.F_UNLCK
    fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, begin, count, 0))


def in_use() -> set[str]:
    """The files that this process has open or mapped, as Linux lists them."""
    with contextlib.suppress(FileNotFoundError):
        mapped = {line.split(maxsplit=5)[5].strip() for line in real_open("/proc/self/maps") if "/" in line}
        opened = set()
        for handle in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                opened.add(os.readlink(f"/proc/self/fd/{handle}"))
        return mapped | opened
    return set()


def refuse_open_files() -> None:
    """Let removing and renaming fail like on Windows."""

    def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*paths: Any, **options: Any) -> Any:
            names = [os.path.realpath(path) for path in paths if not isinstance(path, int)]
            used = in_use()
            for name in names:
                if any(file == name or file.startswith(name + os.sep) for file in used):
                    refused.append(f"{function.__name__} {' '.join(map(str, paths))}")
                    raise PermissionError(errno.EACCES, "The process cannot access the file", str(paths[0]))
            return function(*paths, **options)

        return call

    for name in ("unlink", "remove", "rename", "replace"):
        setattr(os, name, guarded(getattr(os, name)))
    shutil._use_fd_functions = False  # type: ignore[attr-defined]


def hide_linux() -> None:
    """Let files such as /proc/meminfo be missing."""

    def open_elsewhere(file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file).startswith(("/proc", "/sys")):
            raise FileNotFoundError(errno.ENOENT, "The system cannot find the path specified", str(file))
        return real_open(file, *arguments, **options)

    io.open = open_elsewhere


def sync_only_written_files(fcntl: Any = fcntl) -> None:
    fsync = os.fsync

    def sync(handle: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        fsync(handle)

    os.fsync = sync


def memory_status(pointer: Any) -> int:
    status = pointer._obj
    assert status.length == 64 == ctypes.sizeof(status)
    status.total, status.available = MEMORY, MEMORY // 2
    return 1


def regard(*arguments: str) -> dict[str, Any]:
    """Run a command; what it printed, as bytes decoded from UTF-8, and its exit code."""
    from regard.cli import main

    streams = sys.stdout, sys.stderr
    files = io.BytesIO(), io.BytesIO()
    wrappers = [io.TextIOWrapper(file, "cp1252", write_through=True) for file in files]
    sys.stdout, sys.stderr = wrappers
    sys.argv, code = ["regard", *arguments], 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = streams
    out, err = (file.getvalue().decode("utf-8") for file in files)
    return {"code": code, "out": out, "err": err}


def run_everything(folder: Path) -> None:
    os.chdir(folder)
    report: dict[str, Any] = {}
    try:
        run_commands(report)
    finally:
        Path("report.json").write_text(json.dumps(report), encoding="utf-8")


def run_commands(report: dict[str, Any]) -> None:
    settings = ["--set", "training.device=cpu", "--set", "training.save_every=3", "--set", "training.keep=1"]
    train = ["train", "recipe.toml", "--out", "runs/mine", *settings]
    report["train"] = regard(*train, "--set", "training.steps=6")
    report["resume"] = regard(*train, "--set", "training.steps=12")
    report["nproc"] = regard(*train, "--nproc", "2")
    report["folder"] = sorted(str(path.relative_to("runs")) for path in Path("runs").rglob("*"))
    report["translate"] = regard("translate", "-t", "Jane visite l'Afrique en septembre", "--attention")
    report["own"] = regard("translate", "-m", "runs/mine", "-t", "un deux trois")
    report["plot"] = regard("plot", "alignment", "-o", "alignment.png")
    # Its pictures take ten seconds, and the plot above is one of them.
    import regard.cli.lectures as lectures

    lectures.draw_pictures = lambda *_: None
    report["lectures"] = regard("lectures")
    report["dry run"] = regard(*train, "--dry-run")
    save_and_load(report)
    lock_twice(report)
    from regard.machine import c_compiler, free_memory, number_of_cores, total_memory

    report["machine"] = {
        "cores": number_of_cores(), "total": total_memory("cpu"), "free": free_memory("cpu"), "compiler": c_compiler(),
    }  # fmt: skip
    report["refused"] = refused


def save_and_load(report: dict[str, Any]) -> None:
    """Save a model into the folder that it was loaded from, while it is in use."""
    import regard

    model = regard.load_model("runs/mine")
    regard.save_model(model, "saved")
    again = regard.load_model("saved")
    regard.save_model(again, "saved")
    weights = regard.load_model("saved").state_dict()
    report["saved"] = all(torch.equal(weights[name], weight) for name, weight in model.state_dict().items())
    report["beside"] = sorted(path.name for path in Path().iterdir() if "saved" in path.name)


def lock_twice(report: dict[str, Any]) -> None:
    from regard.errors import UsageError
    from regard.system.files import locked

    lock = Path("locked/training/lock")
    with locked(lock, holder="a training"):
        try:
            with locked(lock, holder="another"):
                report["second"] = "was not refused"
        except UsageError as error:
            report["second"] = str(error)
    report["lock"] = lock.exists()
    lock.write_text("a training that was killed", encoding="utf-8")
    with locked(lock, holder="a training") as previous:
        report["previous"] = previous


def explore() -> None:
    """Start the server, ask it for a trace, and press Ctrl-C."""

    class Announced(io.StringIO):
        def write(self, text: str) -> int:
            if text.startswith("http"):
                threading.Thread(target=visit, args=[text.strip()], daemon=True).start()
            return len(text)

    def visit(address: str) -> None:
        body = json.dumps({"model": "fr-en", "text": "Jane visite l'Afrique"}).encode()
        request = urllib.request.Request(f"{address}api/trace", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            Path("trace.json").write_bytes(answer.read())
        signal.raise_signal(signal.SIGINT)

    from regard.cli import main

    sys.stdout, sys.argv = Announced(), ["regard", "explore", "fr-en", "--port", "0", "--no-browser"]
    main()


if __name__ == "__main__":
    become_windows()
    run_everything(Path(sys.argv[1]))
    explore()
