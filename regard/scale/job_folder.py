"""The folder of a job.

job.json               the fingerprint of inputs, model and options, and whether the job is complete
part-00017.tsv         the rows of one block: line number, error message, output
NAME                   the result of the input NAME, written when all parts are there; then the parts are removed
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from regard.errors import DataError, ResourceError, UsageError
from regard.scale.blocks import Block, Row, belongs_to, decode_rows, encode_rows
from regard.system import DISK_FULL_CODES, replace, sync_folder
from regard.system.files import fingerprint, locked, replace_file, sync_file, write_synced
from regard.text.files.compressed import content_name, missing_file

JOB = "job.json"
PARTIAL = ".partial"


def fingerprint_inputs(files: Sequence[Path]) -> dict[str, Any]:
    """Return the size and sha256 of each input, under the name that its result will have."""
    inputs: dict[str, Any] = {}
    for file in files:
        if not file.exists():
            raise DataError(missing_file(file))
        if not file.is_file():
            raise UsageError(f"{file}: a job reads its files twice, so it needs regular files")
        name = content_name(file).name
        if name in inputs:
            raise UsageError(f"two inputs would both be written to {name}: rename one, or run two jobs")
        if name == JOB or name.startswith((".", "part-")) or name.endswith(PARTIAL):
            raise UsageError(f"{file}: a job needs this name for files of its own: rename the input")
        inputs[name] = fingerprint(file)
    return inputs


class JobFolder:
    """The files of one job. Only the holder of its lock may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; UsageError if another job is running in it. Explain a full disk."""
        lock = self.folder / ".job" / "lock"
        created = [path for path in (lock.parent, self.folder) if not path.exists()]
        try:
            with locked(lock, holder="a translation job"):
                yield
        except OSError as error:
            if error.errno not in DISK_FULL_CODES:
                raise
            raise ResourceError(
                f"the disk is full: {error}. The parts in {self.folder} are intact: make room, and run the same "
                f"command again to continue"
            ) from error
        finally:
            for path in [lock.parent, *created]:  # a job that could not begin leaves no folder
                with suppress(OSError):
                    path.rmdir()

    def open(self, job: Mapping[str, Any], files: Sequence[Path]) -> dict[str, Any] | None:
        """Begin a job or continue it; return its summary if it is complete. UsageError if it is another job."""
        for file, name in zip(files, job["inputs"], strict=True):
            output = self.folder / name
            if output.exists() and output.samefile(file):
                raise UsageError(f"{output} is an input, and its translation would replace it: pass another folder")
        if not (self.folder / JOB).exists():
            for name in job["inputs"]:
                if (self.folder / name).exists():
                    raise UsageError(f"{self.folder / name} exists and is not of this job: pass another folder")
            replace_file(self.folder / JOB, _as_json({"job": job}))
            return None
        try:
            entry = json.loads((self.folder / JOB).read_bytes())
            earlier, summary = entry["job"], entry.get("complete")
            changes = differences(earlier, job)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise UsageError(f"{self.folder / JOB} is not the record of a job: pass another folder") from None
        if changes:
            raise UsageError(
                f"{self.folder} has another job, which differs in {', '.join(changes)}: pass another folder"
            )
        return summary if summary and all((self.folder / name).exists() for name in job["inputs"]) else None

    def rows(self, block: Block) -> list[Row] | None:
        """Return the rows of a finished block; None if its part is missing or damaged."""
        try:
            rows = decode_rows(self._part(block.number).read_bytes())
        except FileNotFoundError:
            return None
        return rows if belongs_to(rows, block) else None

    def write(self, block: Block, rows: Sequence[Row]) -> None:
        """Write the part of a block: it is complete or absent."""
        part = self._part(block.number)
        partial = part.with_name(part.name + PARTIAL)
        try:
            write_synced(partial, encode_rows(rows))
            replace(partial, part)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(self.folder)

    def merge(self, job: Mapping[str, Any], blocks: Mapping[str, range], summary: Mapping[str, Any]) -> None:
        """Write the results, in the order of their lines, from the parts `blocks[name]` of each; remove the parts."""
        for name, numbers in blocks.items():
            partial = self.folder / (name + PARTIAL)
            try:
                with open(partial, "wb") as file:
                    for number in numbers:
                        self._append(number, file)
                sync_file(partial)
                replace(partial, self.folder / name)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        sync_folder(self.folder)
        replace_file(self.folder / JOB, _as_json({"job": job, "complete": summary}))
        for part in self.folder.glob("part-*.tsv*"):
            part.unlink()

    def _append(self, number: int, file: IO[bytes]) -> None:
        rows = decode_rows(self._part(number).read_bytes())
        if rows is None:
            raise DataError(f"{self._part(number)} is damaged: remove it, and run the same command again")
        file.write("".join(f"{row.output}\n" for row in rows).encode("utf-8", "surrogatepass"))

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.tsv"


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Name the entries in which two jobs differ, with their values where these are short."""
    changes: list[str] = []
    for key in dict.fromkeys([*earlier, *now]):
        before, after = earlier.get(key), now.get(key)
        if before == after:
            continue
        if prefix == "" and isinstance(before, dict) and isinstance(after, dict):
            changes += differences(before, after, f"{key}: ")
        elif isinstance(before, dict | None) and isinstance(after, dict | None) and (before or after):
            what = "only there" if after is None else "only in this command" if before is None else "other content"
            changes.append(f"{prefix}{key} ({what})")
        else:
            changes.append(f"{prefix}{key} ({before} there, {after} in this command)")
    return changes


def _as_json(entry: Mapping[str, Any]) -> bytes:
    return (json.dumps(entry, indent=1, ensure_ascii=False) + "\n").encode()
