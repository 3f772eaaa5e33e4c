"""Check files of students, each in a process of its own with a time limit."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.errors import UsageError
from regard.exercises.answer_file import read_answer, recognise
from regard.exercises.checking import check_file
from regard.exercises.verdict import Outcome, Verdict

TIME_LIMIT = 20.0  # seconds for the student's code
START_SECONDS = 120.0  # more than a slow machine needs to start Python and import PyTorch
MAX_PRINTED = 2000  # characters of the student's own output that are shown
SUFFIXES = (".py", ".toml")


def answer_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files, and of a folder all files in it that answer an exercise."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        answers = [file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES and is_answer(file)]
        if not answers:
            raise UsageError(f"{path} has no file that answers an exercise")
        yield from answers


def is_answer(path: Path) -> bool:
    """Whether a file answers an exercise."""
    try:
        recognise(path, read_answer(path))
    except ValueError:  # UsageError and DataError
        return False
    return True


def check_files(paths: Iterable[Path], *, limit: float = TIME_LIMIT) -> Iterator[tuple[Path, Verdict]]:
    """Check files and folders, several at a time; yield each file with its verdict, in order."""
    files = list(answer_files(paths))
    with ThreadPoolExecutor(max_workers=min(len(files), os.cpu_count() or 1) or 1) as pool:
        yield from zip(files, pool.map(lambda path: check_isolated(path, limit=limit), files), strict=True)


def check_isolated(path: Path, *, limit: float = TIME_LIMIT) -> Verdict:
    """Check one file; code in a process of its own, so that its endless loops and crashes become verdicts."""
    if path.suffix == ".toml":
        return check_file(path)
    name = recognise(path, read_answer(path))
    with TemporaryDirectory() as folder:
        result = Path(folder) / "verdict.json"
        command = [sys.executable, "-m", "regard.exercises.child", str(path.resolve()), str(result), str(limit)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit + START_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Verdict(name, Outcome.timeout, f"stopped: it did not end within {limit:g} seconds.")
        printed = done.stdout[:MAX_PRINTED].strip()
        if result.exists():
            verdict = Verdict.from_dict(json.loads(result.read_text(encoding="utf-8")))
            return dataclasses.replace(verdict, printed=printed)
        stuck = result.with_name(f"{result.name}.stuck")
        where = stuck_at(stuck.read_text(encoding="utf-8"), path) if stuck.exists() else ()
        if where:
            message = f"stopped after {limit:g} seconds: does a loop never end?"
            return Verdict(name, Outcome.timeout, message, evidence=where, printed=printed)
        last = tuple(done.stderr.strip().splitlines()[-3:])
        return Verdict(name, Outcome.error, f"the process ended with code {done.returncode}.", (), "", last, printed)


def stuck_at(dump: str, path: Path) -> tuple[str, ...]:
    """Return the lines of the student's file that ran when the time was over, the innermost last."""
    frames = re.findall(rf'File "{re.escape(str(path.resolve()))}", line (\d+) in (\S+)', dump)
    lines = read_answer(path).splitlines()
    shown = [f"line {line}, in {function}: {lines[int(line) - 1].strip()}" for line, function in reversed(frames)]
    return tuple(shown) or (("it was busy in a function that the file calls",) if dump else ())
