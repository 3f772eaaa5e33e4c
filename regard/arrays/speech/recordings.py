"""Read recordings with their transcripts: a folder of WAV files, or a table of paths and texts.

In a folder, the transcript of `a.wav` is the text of `a.txt` beside it, or the digit that the name begins with, as in
`7_jackson_0.wav` (the Free Spoken Digit Dataset). A table (.tsv or .csv) has the path of a WAV file and its text in
each line; paths are relative to the table.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from regard.arrays.samples import ArrayReport
from regard.arrays.speech.resample import resample
from regard.arrays.speech.wave_file import Samples, read_wave
from regard.errors import DataError
from regard.text.files.compressed import content_name, missing_file
from regard.text.files.lines import read_lines

TABLES = {".tsv": "\t", ".csv": ","}
HEADERS = ("path", "file", "wav", "audio", "file_name", "filename")  # of the first column
DIGIT_NAME = re.compile(r"(\d)_[^_]+_\d+\.wav", re.IGNORECASE)
MAX_SECONDS = 3600  # of one recording
RATES_TO_SAMPLE = 200  # recordings whose rate is looked at


@dataclass(frozen=True)
class Recordings:
    """Recordings of one rate, with the text of each."""

    audio: list[Samples] = field(repr=False)
    texts: list[str] = field(repr=False)
    names: list[str] = field(repr=False)  # where each comes from
    rate: int
    report: ArrayReport

    def __len__(self) -> int:
        return len(self.audio)

    def location(self, i: int) -> str:
        """Return where recording i comes from."""
        return self.names[i]

    @property
    def seconds(self) -> float:
        """The length of all recordings together."""
        return sum(map(len, self.audio)) / self.rate

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the samples and the texts."""
        digest = hashlib.sha256(f"{self.rate} {list(map(len, self.audio))} {self.texts!r}".encode())
        for samples in self.audio:
            digest.update(np.ascontiguousarray(samples).data)
        return digest.hexdigest()

    def select(self, rows: Sequence[int]) -> Recordings:
        """Return some of the recordings, in that order."""
        audio, texts, names = ([values[i] for i in rows] for values in (self.audio, self.texts, self.names))
        return replace(self, audio=audio, texts=texts, names=names)  # type: ignore[arg-type]  # lists of three types


def make_recordings(audio: Sequence[Samples], texts: Sequence[str], rate: int, *, name: str) -> Recordings:
    """Make a set of recordings in memory; `name` replaces the file name in messages."""
    names = [f"{name}, recording {i}" for i in range(len(audio))]
    content = describe_recordings(audio, rate)
    return Recordings(list(audio), list(texts), names, rate, ArrayReport((name,), content))


def describe_recordings(audio: Sequence[Samples], rate: int) -> str:
    """Say how many recordings there are, and how long."""
    seconds = sum(map(len, audio)) / rate
    length = f"{seconds / 60:,.1f} minutes" if seconds >= 60 else f"{seconds:.1f} seconds"
    return f"{len(audio):,} recordings, {length} at {rate:,} Hz"


def read_recordings(sources: Sequence[str | Path], rate: int | None = None, *, skip: bool = False) -> Recordings:
    """Read recordings and their texts from folders and tables, at a rate; by default that of most of them.

    With `skip`, recordings that cannot be read or have no text are left out and counted; otherwise the first one is an
    error.
    """
    entries = [entry for source in sources for entry in _entries(Path(source))]
    rate = rate or usual_rate([path for path, _, _ in entries])
    audio, texts, names, broken, rates = [], [], [], [], Counter[int]()
    for path, text, where in entries:
        try:
            samples, file_rate = _read(path, text, where)
        except DataError as error:
            if not skip:
                raise DataError(f'{error}; data.faults = "skip" leaves out what cannot be read') from error
            broken.append(str(path))
            continue
        rates[file_rate] += file_rate != rate
        audio.append(resample(samples, file_rate, rate))
        texts.append(text or "")
        names.append(str(path))
    if not audio:
        raise DataError(f"{sources[0]}: none of {len(entries)} recordings can be read, first {broken[0]}")
    changes = [
        f"{count:,} recordings were resampled from {file_rate:,} Hz" for file_rate, count in rates.items() if count
    ]
    changes += [f"{len(broken):,} recordings are left out, first {broken[0]}"] if broken else []
    report = ArrayReport(tuple(map(str, sources)), describe_recordings(audio, rate), tuple(changes))
    return Recordings(audio, texts, names, rate, report)


def usual_rate(paths: Sequence[Path]) -> int:
    """Return the rate of most recordings; of many, only some are looked at, and unreadable ones are left out."""
    rates: Counter[int] = Counter()
    for path in paths[:: max(1, len(paths) // RATES_TO_SAMPLE)]:
        try:
            rates[read_wave(path)[1]] += 1
        except DataError:
            continue
    if not rates:
        return read_wave(paths[0])[1]  # raises an error with the reason
    return rates.most_common(1)[0][0]


Entry = tuple[Path, str | None, str]  # the WAV file, its text, and where the text is from, or should be


def _read(path: Path, text: str | None, where: str) -> tuple[Samples, int]:
    """Read a recording that must have a text."""
    if text is None or not text.strip():
        raise DataError(f"{path}: there is no transcript: {where}")
    try:
        samples, rate = read_wave(path)
    except DataError as error:
        if path.exists():
            raise
        raise DataError(f"{error} ({where} names it)") from error
    if len(samples) > MAX_SECONDS * rate:
        raise DataError(f"{path}: longer than {MAX_SECONDS // 60} minutes: split the recording")
    return samples, rate


def _entries(source: Path) -> list[Entry]:
    """Return the recordings of a folder or a table."""
    if source.is_dir():
        entries = [_beside(path) for path in sorted(source.rglob("*")) if path.suffix.lower() == ".wav"]
        if not entries:
            raise DataError(f"{source}: there are no WAV files in this folder")
        return entries
    if not source.exists():
        raise DataError(missing_file(source))
    if (delimiter := TABLES.get(content_name(source).suffix.lower())) is None:
        raise DataError(
            f"{source} is neither a folder of WAV files nor a table (.tsv or .csv) with a path and a text in each line"
        )
    entries = list(_table(source, delimiter))
    if not entries:
        raise DataError(f"{source}: there are no recordings in this table")
    return entries


def _beside(path: Path) -> Entry:
    """Return a recording of a folder with its text: a file beside it, or the digit in its name."""
    beside = path.with_suffix(".txt")
    if beside.is_file():
        return path, " ".join(line.strip() for line in read_lines(beside)).strip(), str(beside)
    digit = DIGIT_NAME.fullmatch(path.name)
    return path, digit[1] if digit else None, f"write it to {beside.name} beside it, or give a table of paths and texts"


def _table(source: Path, delimiter: str) -> Iterable[Entry]:
    """Yield the recordings of a table; a first line with names of columns is left out."""
    lines = read_lines(source)
    rows = csv.reader(lines) if delimiter == "," else (line.split(delimiter) for line in lines)
    for number, row in enumerate(rows, start=1):
        if not any(cell.strip() for cell in row) or (number == 1 and row[0].strip().lower() in HEADERS):
            continue
        where = f"{source}, line {number}"
        if len(row) < 2:
            raise DataError(
                f"{where}: expected a path and a text, separated by a {'tab' if delimiter == chr(9) else 'comma'}"
            )
        yield source.parent / row[0].strip(), row[1].strip(), where
