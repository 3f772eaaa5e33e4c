"""Faults inside a training process: armed by the environment variable FAULTS, a JSON list.

    {"kind": "hold", "where": "step", "at": 5, "folder": F}  touch F/reached and wait for F/go, in a step, "validation",
                                                             "save", "load" or "data" (there `at` counts batches);
                                                             when a signal has come, touch F/interrupted
    {"kind": "die", "event": 17}                             kill -9 at that event; see below
    {"kind": "die", "at": 7, "once": F}                      kill -9 in the midst of step 7; once: F is made then
    {"kind": "signal", "at": 7}                              SIGTERM in step 7; 0: before the first one
    {"kind": "refuse", "errno": 28, "words": "step-0006"}    writes to such a path fail: 28 disk full, 30 read-only
    {"kind": "small files", "at": 6, "bytes": 8192}          from that step on the kernel takes no larger file
    {"kind": "full disk", "free": 1000}                      what the system says of the disk
    {"kind": "spoil", "at": [3], "how": "nan", "what": "loss"}   NaN or inf in the loss, or in the "gradient" alone
    {"kind": "memory", "at": [3], "times": 1, "cells": 9}    OutOfMemoryError, so many times, from so many labels on
    {"kind": "float64"}                                      all arithmetic in double precision
    {"kind": "note events", "file": F}                       write down what happens
    {"kind": "note threads", "file": F}                      and at the end the native threads that are still there
    {"kind": "note batches", "file": F}                      and what is trained on: step, rank, ids, ids of all ranks

"rank": r limits a fault to that process. An event is a write in the run's folder: a file opened for writing, a rename,
a removal, an fsync; also the start of a step. Kills at random events hit saves far more often than kills at random
times.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST_HOLD = 200.0  # seconds; a test that failed leaves nobody behind for longer
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}


class Events:
    """Counts what a process writes into the folder of a run and beside it, and calls back at each event."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.inside = str(folder.resolve().parent), 0, False
        self.listeners: list[Callable[[int, str], None]] = []
        self.main = threading.get_ident()
        fsync = os.fsync

        def noted(handle: int) -> None:
            self.event(f"fsync {path_of(handle)}")
            fsync(handle)

        os.fsync = noted
        sys.addaudithook(self.heard)

    def heard(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, mode, flags = arguments
            if (flags or 0) & WRITES or set(mode or "") & set("wax+"):
                self.event(f"write {os.fsdecode(path)}")
            elif ".json" in os.fsdecode(path) or ".safetensors" in os.fsdecode(path):
                self.event(f"read {os.fsdecode(path)}")
        elif name in CHANGES:
            self.event(" ".join([name[3:], *(os.fsdecode(one) for one in arguments if isinstance(one, str | bytes))]))
        elif name == "shutil.rmtree":
            self.event(f"rmtree {arguments[0]}")

    def event(self, what: str) -> None:
        if self.inside or not (self.folder in what or what.startswith("step")):
            return
        self.inside = True  # what listeners write is no event
        try:
            self.count += 1
            for listener in self.listeners:
                listener(self.count, what)
        finally:
            self.inside = False


def arm() -> None:
    """Bring the faults of the environment into regard; once a process."""
    faults = [fault for fault in json.loads(os.environ["FAULTS"]) if mine(fault)]
    events = Events(Path(os.environ["FAULTS_FOLDER"]))
    armed = Armed(events)
    for fault in faults:
        options = {key: value for key, value in fault.items() if key not in ("kind", "rank")}
        getattr(armed, fault["kind"].replace(" ", "_"))(**options)


def path_of(handle: int) -> str:
    """The file that an open handle is of."""
    if sys.platform == "linux":
        return os.readlink(f"/proc/self/fd/{handle}")
    import fcntl

    return fcntl.fcntl(handle, 50, bytes(1024)).rstrip(b"\0").decode()  # macOS' F_GETPATH


def mine(fault: dict[str, Any]) -> bool:
    return "rank" not in fault or str(fault["rank"]) == os.environ.get("RANK", "")


class Armed:
    """One method a kind of fault."""

    def __init__(self, events: Events) -> None:
        from regard.training.loop.loop import Loop
        from regard.training.signals import StopFlag

        self.events, self.loop, self.stop = events, None, None
        self.before_loss: list[Callable[[int, Any], None]] = []
        self.after_loss: list[Callable[[int, Any], Any]] = []
        original = Loop.__init__

        def init(loop: Any, *arguments: Any, **options: Any) -> None:
            original(loop, *arguments, **options)
            self.loop, loss_function = loop, loop.step.loss_function
            self.loop_begins()

            def disturbed(model: Any, batch: Any) -> Any:
                step = loop.state.progress.step + 1
                events.event(f"step {step}")
                for disturb in self.before_loss:
                    disturb(step, batch)
                loss = loss_function(model, batch)
                for disturb in self.after_loss:
                    loss = disturb(step, loss)
                return loss

            loop.step.loss_function = disturbed

        Loop.__init__ = init
        enter = StopFlag.__enter__

        def entered(stop: Any) -> Any:
            self.stop = stop
            return enter(stop)

        StopFlag.__enter__ = entered

    def loop_begins(self) -> None:
        """Called when the loop is made."""

    def hold(self, where: str, folder: str, at: int = 1) -> None:
        held = Path(folder)

        def wait() -> None:
            (held / "reached").touch()
            end = time.monotonic() + LONGEST_HOLD
            while time.monotonic() < end and not (held / "go").exists():
                if self.stop is not None and self.stop.signal is not None:
                    (held / "interrupted").touch()
                time.sleep(0.01)

        if where == "step":
            self.before_loss.append(lambda step, batch: wait() if step == at and not (held / "go").exists() else None)
        elif where == "validation":
            from regard.tasks.validation import Validator

            likelihood = Validator.likelihood

            def slow(validator: Any) -> Any:
                wait()
                return likelihood(validator)

            Validator.likelihood = slow
        elif where in ("save", "load"):
            what = "write" if where == "save" else "read"
            words = re.compile(rf"{what} .*step-{at:08d}.*state\.json")
            self.events.listeners.append(lambda count, what: wait() if words.match(what) else None)
        else:
            from regard.text.batches.pairs import PairData

            batches, taken = PairData.batches, [0]

            def slow_batches(data: Any, *arguments: Any, **options: Any) -> Any:
                for batch in batches(data, *arguments, **options):
                    taken[0] += data.shuffle  # not those of validation
                    if data.shuffle and taken[0] == at:
                        wait()
                    yield batch

            PairData.batches = slow_batches

    def die(self, event: int = 0, at: int = 0, once: str = "") -> None:
        def kill() -> None:
            if not once or not Path(once).exists():
                Path(once or os.devnull).touch()
                os.kill(os.getpid(), signal.SIGKILL)

        self.events.listeners.append(lambda count, what: kill() if count == event else None)
        self.before_loss.append(lambda step, batch: kill() if step == at else None)

    def signal(self, at: int) -> None:
        if at == 0:
            begin = self.loop_begins

            def begin_with_it() -> None:
                begin()
                os.kill(os.getpid(), signal.SIGTERM)

            self.loop_begins = begin_with_it
        self.before_loss.append(lambda step, batch: os.kill(os.getpid(), signal.SIGTERM) if step == at else None)

    def refuse(self, errno: int, words: str) -> None:
        def refuse(count: int, what: str) -> None:
            if words in what and what.startswith(("write", "mkdir")):
                raise OSError(errno, os.strerror(errno))

        self.events.listeners.append(refuse)

    def spoil(self, at: list[int], how: str = "nan", what: str = "loss") -> None:
        def spoil(step: int, loss: Any) -> Any:
            if step not in at:
                return loss
            if what == "gradient":
                loss.total.register_hook(lambda gradient: gradient * float(how))
                return loss
            return loss._replace(total=loss.total * float(how))

        self.after_loss.append(spoil)

    def memory(self, at: list[int], times: int = 1, cells: int = 0) -> None:
        import torch

        left = [times]

        def too_much(step: int, batch: Any) -> None:
            if step in at and left[0] and batch.labels.numel() >= cells:
                left[0] -= 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB (injected)")

        self.before_loss.append(too_much)

    def float64(self) -> None:
        import torch

        torch.set_default_dtype(torch.float64)

    def full_disk(self, free: int) -> None:
        import shutil

        usage = shutil.disk_usage
        shutil.disk_usage = lambda path: usage(path)._replace(free=free)

    def small_files(self, at: int, bytes: int) -> None:
        import resource

        def limit(step: int, batch: Any) -> None:
            if step == at:
                resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, resource.RLIM_INFINITY))

        self.before_loss.append(limit)

    def note_events(self, file: str) -> None:
        self.events.listeners.append(lambda count, what: append(file, f"{count} {what}"))

    def note_threads(self, file: str) -> None:
        def note() -> None:
            names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
            append(file, " ".join(names))

        atexit.register(note)

    def note_batches(self, file: str) -> None:
        def note(step: int, batch: Any) -> None:
            if self.loop.state.model.training:
                rank = int(os.environ.get("RANK", 0))
                append(file, json.dumps([step, rank, batch.ids, getattr(batch, "global_ids", batch.ids)]))

        self.before_loss.append(note)


def append(file: str, line: str) -> None:
    with open(file, "a") as handle:
        handle.write(line + "\n")
