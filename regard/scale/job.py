"""`regard translate FILE… --workers N -o FOLDER`: translate files in several processes, as a job that can be resumed.

This process reads the files, hands their blocks to the workers (pool.py) and is the only one that writes to the folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import StoppedError, UsageError
from regard.scale.blocks import Block, Row, read_blocks
from regard.scale.job_folder import JobFolder, fingerprint_inputs
from regard.scale.pool import BlockWorker, Pool
from regard.system import HAS_SEVERAL_PROCESSES
from regard.training.signals import StopFlag

REPORT_SECONDS = 10.0


@dataclass(frozen=True)
class Job:
    """What to translate, and how. `fingerprint` describes the model and the options; a resumed job must have the same.

    `command` starts a worker process, which calls `answer_blocks`; `models` are the names of the models that it loads,
    with their fingerprints; `failed_output` is the output for a line that cannot be translated, given its number and
    the reason.
    """

    files: Sequence[Path]
    fingerprint: Mapping[str, Any]
    command: Sequence[str]
    models: Mapping[str, Any]
    batch: int
    failed_output: Callable[[int, str], str]


@dataclass
class Count:
    """Lines of the job so far."""

    lines: int
    done: int = 0
    failed: int = 0
    resumed: int = 0
    began: float = field(default_factory=time.monotonic)
    reported: float = field(default_factory=time.monotonic)


def run_job(job: Job, folder: Path, workers: Sequence[BlockWorker], *, say: Callable[[str], object]) -> int:
    """Translate all files into a folder, or continue; return the number of lines that failed."""
    if not HAS_SEVERAL_PROCESSES:
        raise UsageError("jobs are not supported on Windows: leave out --workers and --out, and redirect the output")
    with StopFlag() as stop:  # a signal is obeyed between two blocks of reading, and while the workers are busy
        inputs = fingerprint_inputs(job.files)
        entry = {"inputs": inputs, "order": [*inputs], **job.fingerprint}
        files = JobFolder(folder)
        with files.locked():
            if (summary := files.open(entry, job.files)) is not None:
                say(f"{folder} is already complete: {summary['lines']:,} lines, {summary['failed']:,} failed")
                return int(summary["failed"])
            count = Count(sum(len(block.lines) for file in job.files for block in read_blocks(file, job.batch)))
            say(f"files: {len(job.files)}, lines: {count.lines:,}, workers: {len(workers)}")
            parts: dict[str, range] = {}
            pool = Pool(workers, job.failed_output)
            try:
                for block, rows in pool.run(_missing(job, files, inputs, parts, count, say), lambda: _check(stop)):
                    files.write(block, rows)
                    _report(block, rows, count, say)
            finally:
                pool.close()
            files.merge(entry, parts, {"lines": count.lines, "failed": count.failed})
    seconds = time.monotonic() - count.began
    say(f"{count.lines:,} lines are in {folder}; this run translated {count.done:,} in {seconds:.0f} s")
    return count.failed


def _check(stop: StopFlag) -> None:
    if stop.signal:
        raise StoppedError(f"stopped by {stop.name}; run the same command again to continue", stop.signal)


def _missing(
    job: Job,
    folder: JobFolder,
    names: Mapping[str, Any],
    parts: dict[str, range],
    count: Count,
    say: Callable[[str], object],
) -> Iterator[Block]:
    """Yield the blocks whose parts are missing, and enter which parts belong to the result of each file."""
    number = 0
    for file, name in zip(job.files, names, strict=True):
        first = number
        for block in read_blocks(file, job.batch, number=number):
            number = block.number + 1
            if (rows := folder.rows(block)) is None:
                yield block
            else:
                count.resumed += len(rows)
                _name_failures(block, rows, count, say)
        parts[name] = range(first, number)


def _report(block: Block, rows: Sequence[Row], count: Count, say: Callable[[str], object]) -> None:
    _name_failures(block, rows, count, say)
    count.done += len(rows)
    now = time.monotonic()
    if now - count.reported >= REPORT_SECONDS:
        count.reported = now
        speed = count.done / (now - count.began)
        left = (count.lines - count.resumed - count.done) / speed
        done = count.resumed + count.done
        say(f"{done:,} of {count.lines:,} lines, {speed:,.0f} lines per second, {left / 60:,.0f} minutes left")


def _name_failures(block: Block, rows: Sequence[Row], count: Count, say: Callable[[str], object]) -> None:
    for row in rows:
        if row.error:
            count.failed += 1
            say(f"{block.file}:{row.number}: {row.error}")
