"""`regard translate FILE… --ray`: the workers of a job on the machines of a Ray cluster (https://docs.ray.io).

Ray only places the workers: each is an actor that runs the same worker process as a job on one machine, so the results
are the same. Blocks and rows travel as bytes. Ray restarts nothing; the pool of the job does.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from regard.errors import ModelError, ResourceError, UsageError
from regard.scale.blocks import Block, Row, belongs_to, decode_block, decode_rows, encode_block, encode_rows
from regard.scale.job import Job
from regard.scale.workers import MAX_ATTEMPTS, LoadError, Worker, WorkerLostError

LOCAL = "local"  # instead of an address: a cluster on this machine, for this job
INSTALL = "install Ray with: pip install 'regard[ray]'"
MESSAGE_BYTES = 4_000  # of what a worker printed before it ended
STORE_BYTES = 100_000_000  # for objects of a local cluster; blocks are small
WAIT_SECONDS = 1.0  # between two looks whether the job has ended
PATIENCE_SECONDS = 30.0  # for a place in the cluster, before a message says what the job waits for


@contextmanager
def cluster(address: str, *, workers: int, threads: int) -> Iterator[None]:
    """Connect to a Ray cluster, or start one on this machine for as long as the block runs."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"--ray needs Ray: {INSTALL}") from error
    quiet: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
    here: Any = {"num_cpus": workers * threads, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    here |= {"_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address=address, **quiet, **(here if address == LOCAL else {}))
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ResourceError(f"--ray {address}: {str(error).partition(chr(10))[0]}") from error
    try:
        yield
    finally:
        ray.shutdown()


def ray_workers(job: Job, count: int, *, threads: int, say: Callable[[str], object]) -> list[RayWorker]:
    """Return the workers of a job; `cluster` must have been entered."""
    return [RayWorker(number, job, threads, say) for number in range(count)]


class RayWorker:
    """A worker somewhere in the cluster, as the pool of the job sees it."""

    def __init__(self, number: int, job: Job, threads: int, say: Callable[[str], object]) -> None:
        self.number, self.job, self.threads, self.say = number, job, threads, say
        self.actor: Any = None
        self.closed = False

    def start(self) -> None:
        """Start the actor and wait until its process has loaded the model; LoadError if it cannot."""
        import ray

        for _ in range(MAX_ATTEMPTS):
            make = ray.remote(RemoteWorker).options(num_cpus=self.threads, max_restarts=0, max_task_retries=0)
            self.actor = make.remote(self.number, [*self.job.command], self.threads, os.getcwd())
            try:
                failure = self._wait(self.actor.start.remote(dict(self.job.models)))
            except WorkerLostError:
                if self.closed:
                    raise
                continue
            if failure is None:
                return
            raise LoadError(*failure)
        raise LoadError(f"the process of a worker died {MAX_ATTEMPTS} times while it loaded the model", 6)

    def translate(self, block: Block) -> list[Row]:
        """Return the rows of a block; WorkerLostError if the process, the actor or its machine dies on the way."""
        content, reason = self._wait(self.actor.translate.remote(encode_block(block)))
        rows = None if content is None else decode_rows(content)
        if rows is None or not belongs_to(rows, block):
            self._end()
            raise WorkerLostError(reason or "its answer was damaged")
        return rows

    def close(self) -> None:
        """End the actor, whose process then ends by itself."""
        self.closed = True
        self._end()

    def _wait(self, reference: Any) -> Any:
        """Wait for the actor's answer; WorkerLostError if the actor dies, or the job ends."""
        import ray

        began, told = time.monotonic(), False
        while True:
            if self.closed:
                raise WorkerLostError("the job has ended")
            try:
                ready, _ = ray.wait([reference], timeout=WAIT_SECONDS)
                if ready:
                    return ray.get(reference)
            except ray.exceptions.RayTaskError:
                raise  # a bug
            except ray.exceptions.RayError as error:
                raise WorkerLostError(f"Ray lost it: {type(error).__name__}") from error
            if not told and time.monotonic() - began > PATIENCE_SECONDS and not free_cores(self.threads):
                self.say(f"worker {self.number + 1} waits for {self.threads} free CPU(s) of the cluster")
                told = True

    def _end(self) -> None:
        import ray

        if (actor := self.actor) is not None and ray.is_initialized():
            ray.kill(actor, no_restart=True)


def free_cores(count: int) -> bool:
    """Return whether the cluster has so many free cores."""
    import ray

    free: Mapping[str, float] = ray.available_resources()
    return free.get("CPU", 0) >= count


class RemoteWorker:
    """The actor: it runs the worker process on its machine."""

    def __init__(self, number: int, command: Sequence[str], threads: int, folder: str) -> None:
        self.messages = tempfile.TemporaryFile()  # noqa: SIM115  # open while the actor lives
        here = [sys.executable, *command[1:]]  # this machine may have its Python elsewhere
        at = Path(folder) if Path(folder).is_dir() else None
        environment = {"OMP_NUM_THREADS": str(threads)}
        self.worker = Worker(number, here, environment, folder=at, messages=self.messages)

    def start(self, models: Mapping[str, Any]) -> tuple[str, int] | None:
        """Load the model; return the message and the exit code if that is impossible."""
        try:
            for name, expected in models.items():
                check_model(name, expected, self.worker.folder)
            self.worker.start()
        except ModelError as error:
            return str(error), error.exit_code
        except LoadError as error:
            return f"{self._last_messages()}{error}", error.exit_code
        return None

    def translate(self, request: bytes) -> tuple[bytes | None, str]:
        """Return the rows of a block, or None and the reason if the process has died."""
        decoded = decode_block(BytesIO(request))
        assert decoded is not None
        try:
            return encode_rows(self.worker.translate(Block(0, Path(), *decoded))), ""
        except WorkerLostError as error:
            return None, str(error)

    def _last_messages(self) -> str:
        self.messages.seek(max(0, self.messages.seek(0, os.SEEK_END) - MESSAGE_BYTES))
        return self.messages.read().decode(errors="replace").strip().removeprefix("regard: ")


def check_model(name: str, expected: Mapping[str, Any], folder: Path | None) -> None:
    """Raise a ModelError if this machine lacks a model, or has another one under its name."""
    from regard.api.model_names import find_model
    from regard.system.files import fingerprint

    path = Path(name)
    found = find_model(str(folder / path) if folder is not None and (folder / path).is_dir() else name)
    if fingerprint(found / "manifest.json") != expected:
        raise ModelError(f"{found} on the machine {platform.node()} is not the model of this job: copy it there")
