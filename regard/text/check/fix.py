"""Write repaired copies of training data: `regard check --fix`.

    report = fix_data([ParallelFiles(Path("train.fr"), Path("train.en"))], [], Path("repaired"))

Only what is certain is changed. `changes.tsv` lists every change. A file without changes is copied byte for byte.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from regard.errors import DataError, UsageError
from regard.system import replace
from regard.text.check.aligned_files import examine_alignment
from regard.text.check.changes import CHANGES_FILE, ChangeLog, FixReport
from regard.text.check.raw_lines import RawLines, line_writer
from regard.text.check.repairs import repaired
from regard.text.check.report import DUPLICATE, EMPTY, UNEQUAL
from regard.text.files.encodings import EncodingSurvey, survey_encoding
from regard.text.files.lines import Fault
from regard.text.files.records import MALFORMED, JsonLines, RecordFormat, pair_format
from regard.text.files.rows import file_format
from regard.text.files.shards import PairsFile, ParallelFiles, Shard, TextFile

Line = tuple[int, str]  # number and text
Surveys = dict[Path, list[EncodingSurvey]]
MAX_MALFORMED_SHARE = 0.5  # of the rows of a file; with more, the format is not what its name says


def fix_data(train: Sequence[Shard], validation: Sequence[Shard], out: Path) -> FixReport:
    """Write repaired copies of the files into the folder `out`, which must be new or empty. Duplicates are dropped.

    The folder appears when it is complete.
    """
    paths = [Path(str(file)) for shard in (*train, *validation) for file in shard.files]
    _check_folder(out, paths)
    folder = Path(os.path.abspath(out))
    temporary = folder.with_name(f".{folder.name}.writing-{os.getpid()}")
    surveys = {path: [survey_encoding(path)] for path in paths}
    try:
        temporary.mkdir(parents=True)
        changes = _write_all((train, validation), temporary, surveys)
        while new_surveys := _surveys_with_news(paths, temporary, changes):
            for path, survey in new_surveys.items():
                surveys[path].append(survey)
            changes = _write_all((train, validation), temporary, surveys)
        for path in paths:
            if not changes.of_file(path):
                shutil.copyfile(path, temporary / path.name)
        if folder.exists():
            folder.rmdir()
        replace(temporary, folder)
    except OSError as error:
        raise UsageError(f"--fix {out}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return changes.report(out, paths)


def _write_all(corpora: Sequence[Sequence[Shard]], folder: Path, surveys: Surveys) -> ChangeLog:
    """Write the repaired files of training and validation data, and the list of changes."""
    with ChangeLog(folder / CHANGES_FILE) as changes:
        for shards in corpora:
            fixer = _Fixer(folder, changes, surveys)
            for shard in shards:
                fixer.fix(shard)
    return changes


def _surveys_with_news(paths: Sequence[Path], folder: Path, changes: ChangeLog) -> dict[Path, EncodingSurvey]:
    """Return the surveys of repaired files in which lines have become certain, because doubtful ones were dropped.

    Otherwise a second repair would change these lines.
    """
    changed = [path for path in paths if changes.of_file(path)]
    surveys = {path: survey_encoding(folder / path.name) for path in changed}
    return {path: survey for path, survey in surveys.items() if survey.certain}


def fixed_shards(shards: Sequence[Shard], out: Path) -> list[Shard]:
    """Return the repaired files in the folder `out`."""
    copies: list[Shard] = []
    for shard in shards:
        if isinstance(shard, ParallelFiles):
            copies.append(dataclasses.replace(shard, source=out / shard.source.name, target=out / shard.target.name))
        elif isinstance(shard, PairsFile | TextFile):
            copies.append(dataclasses.replace(shard, path=out / shard.path.name))
    return copies


def _check_folder(out: Path, paths: Sequence[Path]) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file: --fix needs a new folder")
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty: --fix needs a new folder, and never overwrites a file")
    names = [path.name for path in paths]
    for path in paths:
        if names.count(path.name) > 1:
            raise UsageError(f"several files are named {path.name}, and --fix writes them into one folder: rename them")
        if path.name == CHANGES_FILE:
            raise UsageError(f"{path}: --fix writes a file of this name: rename the input")
        if path.suffix.lower() == ".parquet":
            raise UsageError(f"{path}: --fix cannot write parquet files: export the pairs as .jsonl first")


class _Fixer:
    """Repairs the shards of one corpus: in all of them together, each pair is written once."""

    def __init__(self, out: Path, changes: ChangeLog, surveys: Surveys) -> None:
        self.out, self.changes, self._surveys = out, changes, surveys
        self._seen: set[bytes] = set()  # hashes of the pairs written so far

    def fix(self, shard: Shard) -> None:
        if isinstance(shard, ParallelFiles):
            self._fix_parallel(shard)
        elif isinstance(shard, PairsFile):
            self._fix_records(shard.path, pair_format(shard.path, file_format(shard.path), shard.columns))
        elif isinstance(shard, TextFile) and file_format(shard.path) == ".jsonl":
            self._fix_records(shard.path, JsonLines(shard.path, ("text",)), keep_breaks=True)
        elif isinstance(shard, TextFile):
            self._fix_text(shard.path)

    def _fix_parallel(self, files: ParallelFiles) -> None:
        source, target = (self._lines(path) for path in (files.source, files.target))
        pairs: Iterator[tuple[Line | None, Line | None]]
        pairs, are_paired = zip_longest(enumerate(source, start=1), enumerate(target, start=1)), True
        if self._count_lines(files.source) != self._count_lines(files.target):
            misalignment = examine_alignment(files.source, files.target, self._repaired_lines)
            are_paired = misalignment.is_certain
            if misalignment.aligned and are_paired:
                pairs = misalignment.aligned.pair_up(enumerate(source, start=1), enumerate(target, start=1))
        with (
            line_writer(self.out / files.source.name, source) as write_source,
            line_writer(self.out / files.target.name, target) as write_target,
        ):
            for pair in pairs:
                texts = self._fix_pair(files, pair) if are_paired else self._fix_sides(files, pair)
                self.changes.rows += bool(texts)
                for write, text in zip((write_source, write_target), texts, strict=False):
                    if text is not None:
                        write(text)

    def _fix_sides(self, files: ParallelFiles, pair: tuple[Line | None, Line | None]) -> list[str | None]:
        """Repair the lines of both files. It is not known which of them belong together, so none is dropped."""
        sides = zip((files.source, files.target), pair, strict=True)
        return [None if line is None else self._repaired(path, *line) for path, line in sides]

    def _fix_pair(self, files: ParallelFiles, pair: tuple[Line | None, Line | None]) -> list[str | None]:
        """Repair both lines of a pair; return no texts if it is dropped."""
        lines = [(path, *line) for path, line in zip((files.source, files.target), pair, strict=True) if line]
        texts = [self._repaired(*line) for line in lines] if len(lines) == 2 else []
        reason = self._reason_to_drop(texts) if texts else UNEQUAL
        if reason:
            self.changes.drop(reason, lines)
            return []
        return [*texts]

    def _fix_records(self, path: Path, rows: RecordFormat, *, keep_breaks: bool = False) -> None:
        lines = self._lines(path)
        faults: list[str] = []
        total = 0
        with line_writer(self.out / path.name, lines) as write:
            for record in rows.records(lines):
                total += 1
                if isinstance(record, Fault):
                    faults.append(record.message)
                    self.changes.drop(MALFORMED, [(path, record.line, record.text)])
                    continue
                texts = [self._repaired(path, record.number, text, keep_breaks=keep_breaks) for text in record.texts]
                if texts and (reason := self._reason_to_drop(texts)):
                    self.changes.drop(reason, [(path, record.number, record.line)])
                    continue
                self.changes.rows += bool(texts)
                write(record.line if tuple(texts) == record.texts else rows.line(record, texts))
        if len(faults) > MAX_MALFORMED_SHARE * total:
            raise DataError(f"{len(faults):,} of {total:,} rows cannot be read; {faults[0]}")

    def _fix_text(self, path: Path) -> None:
        """Repair the text of a language model: blank and repeated lines are part of it."""
        lines = self._lines(path)
        with line_writer(self.out / path.name, lines) as write:
            for number, text in enumerate(lines, start=1):
                write(self._repaired(path, number, text, keep_breaks=True))
                self.changes.rows += 1

    def _lines(self, path: Path) -> RawLines:
        return RawLines(path, self._surveys[path], self.changes)

    def _count_lines(self, path: Path) -> int:
        return sum(1 for _ in RawLines(path, self._surveys[path]))

    def _repaired_lines(self, path: Path) -> Iterator[str]:
        return (repaired(line).text for line in RawLines(path, self._surveys[path]))

    def _repaired(self, path: Path, number: int, text: str, *, keep_breaks: bool = False) -> str:
        repair = repaired(text, keep_breaks=keep_breaks)
        for change in repair.changes:
            self.changes.add(path, number, *change)
        return repair.text

    def _reason_to_drop(self, texts: Sequence[str]) -> str | None:
        if not all(text.strip() for text in texts):
            return EMPTY
        key = hashlib.blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=16).digest()
        if key in self._seen:
            return DUPLICATE
        self._seen.add(key)
        return None
