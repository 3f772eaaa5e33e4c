"""One pass over training data: check each row, and count each kind of problem with its first few locations."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.text.check import report as kinds
from regard.text.check.aligned_files import Misalignment, examine_alignment
from regard.text.check.length_rules import Rules
from regard.text.check.occurrences import Location, Occurrences
from regard.text.check.repairs import CHARACTER_KINDS, repaired
from regard.text.check.report import MAX_EXAMPLES
from regard.text.check.suspicious_characters import SCRIPT, SCRIPTS, CharacterChecker
from regard.text.files.encodings import survey_encoding
from regard.text.files.lines import CRLF, MARK, NOT_UTF8, NUL, Fault, Finding, count_lines, no_findings, try_lines
from regard.text.files.records import MALFORMED
from regard.text.files.rows import Row, UnequalFilesError
from regard.text.files.shards import ParallelFiles, Shard

MAX_LINE_CHARACTERS = 100_000  # of a line of a text
MAX_RATIO, IGNORED_CHARACTERS = 3, 10  # factor between a pair's length ratio and the usual one; small differences
SAMPLE_LINES, SAMPLE_CHARACTERS = 20_000, 1_000  # lines per side in which tokens are counted; characters of each
ALWAYS_FIXABLE = (NUL, MARK, CRLF)
PAIR_KINDS = (kinds.RATIO, kinds.IDENTICAL, kinds.DUPLICATE, kinds.LEAK)  # meaningless if lines are misaligned
NOTES = ("header row", "columns chosen")  # findings of the reader that are no problems
PROGRESS_ROWS = 10_000  # rows between two progress reports


class HeldOutSentence(NamedTuple):
    """A source sentence of the validation or test data: its first location and the number of its copies."""

    location: str
    copies: int


class SideCounts:
    """Counts of one side: words, scripts, and a sample of lines that are spread evenly over the data."""

    def __init__(self) -> None:
        self.character_checker = CharacterChecker()
        self.scripts: defaultdict[str, Occurrences] = defaultdict(Occurrences)
        self.lines = self.words = self.characters = 0
        self.sample: list[str] = []
        self._step = 1

    def count(self, text: str, words: int) -> None:
        if self.lines % self._step == 0:
            self.sample.append(text[:SAMPLE_CHARACTERS])
            if len(self.sample) > SAMPLE_LINES:
                self.sample, self._step = self.sample[::2], 2 * self._step
        self.lines += 1
        self.words += words
        self.characters += len(text) - text.count(" ")


class Scan:
    """One pass over the training data, or over held-out data."""

    def __init__(self, rules: Rules, *, held_out: dict[int, HeldOutSentence] | None = None) -> None:
        self.rules = rules
        self.occurrences: defaultdict[str, Occurrences] = defaultdict(Occurrences)
        self.rows = self.usable = 0
        self.sides = SideCounts(), SideCounts()
        self.sentences: dict[int, HeldOutSentence] = {}  # by the hash of the source
        self.advice: defaultdict[str, list[str]] = defaultdict(list)  # by kind of problem
        self.notes: list[str] = []
        self._is_fixable = False  # whether `regard check --fix` would change characters, encodings or the alignment
        self.faulty_share = 0.0  # the largest share of lines of a file that are in another encoding, if all of it is
        self._pairs_are_unclear = False  # whether it is unknown which lines of some files belong together
        self._not_utf8: set[Path] = set()  # files with such lines
        self._held_out = dict(held_out or {})  # held-out sentences that have not occurred yet
        self._collects = held_out is None
        self._shards: list[Shard] = []
        self._first_rows: list[int] = []  # the first row of each shard in the arrays below
        self._numbers, self._keys, self._lengths = array("q"), array("q"), (array("i"), array("i"))

    def read(self, shards: Sequence[Shard], on_progress: Callable[[int], None]) -> None:
        """Check all rows; call `on_progress` from time to time with the number of rows."""
        for shard in shards:
            shard = self._paired_part(shard) if isinstance(shard, ParallelFiles) else shard
            self._shards.append(shard)
            self._first_rows.append(len(self._keys))
            findings = no_findings()
            try:
                for row in shard.rows(findings):
                    self._check_row(shard, row)
                    self.rows += 1
                    if self.rows % PROGRESS_ROWS == 0:
                        on_progress(self.rows)
            except UnequalFilesError:  # has been reported
                self._pairs_are_unclear = True
            except DataError as error:
                self.occurrences[kinds.UNREADABLE].add(Location(shard, 0, remark=str(error)))
            for kind, finding in findings.items():
                self._add_finding(kind, finding, shard)
        self._add_encoding_advice()
        self._finish(shards)

    @property
    def can_be_fixed(self) -> bool:
        """Whether `regard check --fix` would change something."""
        if self._is_fixable or 0 < 2 * self.occurrences[MALFORMED].count < self.rows:
            return True
        fixable = ALWAYS_FIXABLE if self._pairs_are_unclear else (*ALWAYS_FIXABLE, kinds.EMPTY, kinds.DUPLICATE)
        return any(self.occurrences[kind].count for kind in fixable)

    def _check_row(self, shard: Shard, row: Row) -> None:
        """Check one row. A row that is unreadable or dropped is not checked further."""
        number, source, target = row[:3]
        for side, text in enumerate((source, target)):
            if isinstance(text, Fault):
                self._add_fault(shard, number, side, text)
        if isinstance(source, Fault) or isinstance(target, Fault):
            return
        if not source.strip() or (target is not None and not target.strip()):
            if not shard.is_prose:
                self.occurrences[kinds.EMPTY].add(Location(shard, number))
            return
        texts = (source,) if target is None else (source, target)
        words = [len(text.split()) for text in texts]
        if shard.is_prose:
            if len(source) >= MAX_LINE_CHARACTERS:
                self.occurrences[kinds.LONG_LINE].add(Location(shard, number, 0))
        elif target is not None:
            for side, text in enumerate(texts):
                if self.rules.is_too_long(side, text, words[side]):
                    self.occurrences[kinds.LONG].add(Location(shard, number, side))
                    return
        self.usable += 1
        identical = source == target and any(map(str.isalpha, source))
        if identical:
            self.occurrences[kinds.IDENTICAL].add(Location(shard, number))
        for side, text in enumerate(texts[:1] if identical else texts):
            self.sides[side].count(text, words[side])
            self._check_characters(shard, number, side, text)
        if not shard.is_prose:
            self._remember(shard, number, source, target)

    def _check_characters(self, shard: Shard, number: int, side: int, text: str) -> None:
        counts = self.sides[side]
        for kind, offset in counts.character_checker.find(text, has_breaks=shard.is_text).items():
            occurrences = counts.scripts[kind] if kind in SCRIPTS else self.occurrences[kind]
            occurrences.add(Location(shard, number, side, offset))
            if kind in CHARACTER_KINDS and not self._is_fixable:
                self._is_fixable = repaired(text, keep_breaks=shard.is_text).text != text
        if self.rules.is_foreign(side, text):
            self.occurrences[kinds.BYTES].add(Location(shard, number, side))

    def _add_fault(self, shard: Shard, number: int, side: int, fault: Fault) -> None:
        self.occurrences[fault.kind].add(Location(shard, number, side))
        if fault.kind == NOT_UTF8 and fault.text:
            self._not_utf8.add(fault.path)
        if fault.kind == MALFORMED and not self.advice[MALFORMED]:
            self.advice[MALFORMED].append(fault.message)

    def _add_encoding_advice(self) -> None:
        """Say for each file with lines that are not UTF-8 what to do about them."""
        for path in sorted(self._not_utf8):
            survey = survey_encoding(path)
            self.advice[NOT_UTF8].append(survey.advice())
            self._is_fixable |= survey.certain
            if survey.is_wholly_other:
                self.faulty_share = max(self.faulty_share, survey.other_lines / survey.lines)

    def _remember(self, shard: Shard, number: int, source: str, target: str | None) -> None:
        """Store what can be judged only by comparison with other rows. With hashes of 64 bits, collisions are rare."""
        self._numbers.append(number)
        self._keys.append(hash((source, target)))
        self._lengths[0].append(len(source))
        self._lengths[1].append(len(target or ""))
        key = hash(source)
        if self._collects:
            location, copies = self.sentences.get(key) or (shard.location(number), 0)
            self.sentences[key] = HeldOutSentence(location, copies + 1)
        elif leak := self._held_out.pop(key, None):
            remark = f"same as {leak.location}"
            self.occurrences[kinds.LEAK].add(Location(shard, number, remark=remark), leak.copies)

    def _finish(self, shards: Sequence[Shard]) -> None:
        """Find the problems that are known only after all rows have been read."""
        for side in self.sides:
            for script, occurrences in side.scripts.items():
                if not side.character_checker.is_common(script):
                    self.occurrences[f"{SCRIPT} ({script.title()})"].merge(occurrences)
        self._find_duplicates()
        for i in unusual_ratios(np.array(self._lengths[0]), np.array(self._lengths[1])):
            self.occurrences[kinds.RATIO].add(self._row_location(i))
        if self._pairs_are_unclear:
            for kind in PAIR_KINDS:
                self.occurrences.pop(kind, None)
        if (
            shards
            and not self.occurrences[kinds.UNEQUAL].count
            and not self.usable
            and not self.occurrences[kinds.UNREADABLE].count
        ):
            path = shards[0].location(0).removesuffix(":0")
            remark = f"{path}: no row that training could use"
            self.occurrences[kinds.NOTHING].add(Location(shards[0], 0, remark=remark))

    def _find_duplicates(self) -> None:
        keys = np.array(self._keys)
        order = np.argsort(keys, kind="stable")
        copies = np.sort(order[1:][keys[order[1:]] == keys[order[:-1]]])
        for i in copies[:MAX_EXAMPLES].tolist():
            first = self._row_location(int(np.flatnonzero(keys == keys[i])[0]))
            remark = f"same as {first.shard.location(first.number)}"
            self.occurrences[kinds.DUPLICATE].add(self._row_location(i)._replace(remark=remark))
        if len(copies):
            self.occurrences[kinds.DUPLICATE].count = len(copies)

    def _row_location(self, i: int) -> Location:
        """Return the location of row i of the arrays."""
        return Location(self._shards[bisect_right(self._first_rows, i) - 1], self._numbers[i])

    def _paired_part(self, shard: ParallelFiles) -> Shard:
        """Report unequal numbers of lines, and return the lines that pair up; return equal files unchanged."""
        try:
            if count_lines(shard.source) == count_lines(shard.target):
                return shard
            misalignment = examine_alignment(shard.source, shard.target, _readable_lines)
        except DataError:  # is reported when the file is read
            return shard
        self._add_misalignment(shard, misalignment)
        return misalignment.aligned or shard

    def _add_misalignment(self, shard: ParallelFiles, misalignment: Misalignment) -> None:
        sides = zip(misalignment.counts, shard.files, strict=True)
        (fewer, short), (more, long) = sorted(sides, key=lambda side: side[0])
        counts, line = f"{short} has {fewer} lines, {long} has {more}", misalignment.first_line
        if not fewer:
            location = Location(shard, 0, remark=f"{short}: empty; {counts}")
        elif line is None:
            location = Location(shard, fewer, remark=f"{counts}: {short} seems to be truncated after this line")
        else:
            location = Location(shard, line, remark=f"{counts}: from about this line on, they no longer match")
        self.occurrences[kinds.UNEQUAL].add(location, more - fewer)
        self._is_fixable |= misalignment.is_certain

    def _add_finding(self, kind: str, finding: Finding, shard: Shard) -> None:
        """Include what the reader has fixed and counted. Header rows are no problem."""
        if kind.startswith(NOTES):
            self.notes += [f"{location}: {kind}" for location in finding.locations]
            return
        for count, where in zip([finding.count, *[0] * MAX_EXAMPLES], finding.locations, strict=False):
            number = int(where.rpartition(":")[2])
            side = int(where != shard.location(number))
            self.occurrences[kind].add(Location(shard, number, side), count)


def _readable_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, empty ones instead of those that cannot be read."""
    return ("" if isinstance(line, Fault) else line for line in try_lines(path))


def unusual_ratios(source_lengths: NDArray[np.int32], target_lengths: NDArray[np.int32]) -> list[int]:
    """Return the pairs whose length ratio is several times the usual one; small differences do not count."""
    if not len(source_lengths) or not target_lengths.any():
        return []
    usual = np.median(target_lengths / source_lengths)
    ratios = (target_lengths + IGNORED_CHARACTERS) / (usual * source_lengths + IGNORED_CHARACTERS)
    return np.flatnonzero(np.abs(np.log(ratios)) > math.log(MAX_RATIO)).tolist()
