"""One walk over training data: every row is looked at once, and what is odd is counted with the first few spots."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.text.check import report as kinds
from regard.text.check.misalignment import Traits, find_slip
from regard.text.check.report import EXAMPLES
from regard.text.check.suspicious_characters import SCRIPT, SCRIPTS, Oddities
from regard.text.files.lines import Fault, Finding, no_findings, try_lines
from regard.text.files.rows import Row, UnequalFilesError
from regard.text.files.shards import ParallelFiles, Shard
from regard.text.tokenizers.special_tokens import UNKNOWN
from regard.text.tokenizers.tokenizer import Tokenizer

LONGEST = 256  # tokens of a side that training takes when nobody says otherwise
LONGEST_PIECE = 16  # characters of a token of sentencepiece's, at most
LONGEST_LINE = 100_000  # characters of a text's line
TIMES, SHORT = 3, 10  # lengths so many times as far apart as usual are odd; characters that do not count
SAMPLE, SAMPLE_LINE = 20_000, 1_000  # lines of a side that tokens are counted in, and characters of each
PAIR_KINDS = (kinds.RATIO, kinds.IDENTICAL, kinds.DUPLICATE, kinds.LEAK)  # empty talk where lines are shifted
TOLD_EVERY = 10_000  # rows


@dataclass(frozen=True)
class Rules:
    """What training will do: its longest sentence, its tokenizers where they are known, its policy for faults."""

    limit: int = LONGEST  # tokens of a side, its end counted
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None
    by_characters: bool = False  # whether tokens will be characters
    faults: str = "stop"

    def is_too_long(self, side: int, text: str, words: int) -> bool:
        """Whether training leaves a sentence out; without a tokenizer, only where every one would have it so."""
        if self.by_characters:
            return len(text) >= self.limit
        if self.tokenizers is None:
            if len(text) >= self.limit * LONGEST_PIECE:
                return True
            # No token goes over a space; over other blanks, which `words` are parted by too, one may.
            return words >= self.limit and sum(map(bool, text.split(" "))) >= self.limit
        if 2 * len(text.encode()) < self.limit:  # there are no more tokens than bytes, give or take
            return False
        return len(self.tokenizers[side].encode(text)) >= self.limit

    def is_foreign(self, side: int, text: str) -> bool:
        """Whether the tokenizer has no tokens for the characters of a text: UNKNOWN, or several bytes for each."""
        if self.tokenizers is None:
            return False
        tokens = self.tokenizers[side].encode(text)
        return UNKNOWN in tokens or len(tokens) > len(text) + 1


class Spot(NamedTuple):
    """Where a finding is; number 0 is the file as a whole, of which the remark says all."""

    shard: Shard
    number: int
    side: int | None = None  # None: the pair
    at: int = 0  # the character
    remark: str = ""


@dataclass
class Found:
    """How often a kind was found, and the first few spots."""

    count: int = 0
    spots: list[Spot] = field(default_factory=list)

    def add(self, spot: Spot, count: int = 1) -> None:
        self.count += count
        if len(self.spots) < EXAMPLES:
            self.spots.append(spot)

    def include(self, more: Found) -> None:
        self.count += more.count
        self.spots = (self.spots + more.spots)[:EXAMPLES]


class HeldOut(NamedTuple):
    """A source of the validation or test data: where it stands first, and how often."""

    place: str
    copies: int


class SideCounts:
    """What is counted on one side: words, scripts, and a sample of lines, evenly spread over all."""

    def __init__(self) -> None:
        self.oddities = Oddities()
        self.scripts: defaultdict[str, Found] = defaultdict(Found)
        self.lines = self.words = self.characters = 0
        self.sample: list[str] = []
        self._step = 1

    def count(self, text: str, words: int) -> None:
        if self.lines % self._step == 0:
            self.sample.append(text[:SAMPLE_LINE])
            if len(self.sample) > SAMPLE:
                self.sample, self._step = self.sample[::2], 2 * self._step
        self.lines += 1
        self.words += words
        self.characters += len(text) - text.count(" ")


class Part:
    """One walk over the training data, or over what is held out."""

    def __init__(self, rules: Rules, *, held_out: dict[int, HeldOut] | None = None) -> None:
        self.rules = rules
        self.found: defaultdict[str, Found] = defaultdict(Found)
        self.rows = self.usable = 0
        self.sides = SideCounts(), SideCounts()
        self.sentences: dict[int, HeldOut] = {}  # by the hash of the source
        self._held_out = dict(held_out or {})  # what has not been met yet
        self._collects = held_out is None
        self._shards: list[Shard] = []
        self._firsts: list[int] = []  # the first row of each shard in the arrays below
        self._numbers, self._keys, self._lengths = array("q"), array("q"), (array("i"), array("i"))

    def walk(self, shards: Sequence[Shard], told: Callable[[int], None]) -> None:
        """Look at all rows; `told` hears now and then how many there were."""
        for shard in shards:
            self._shards.append(shard)
            self._firsts.append(len(self._keys))
            mended = no_findings()
            try:
                for row in shard.rows(mended):
                    self._look(shard, row)
                    self.rows += 1
                    if self.rows % TOLD_EVERY == 0:
                        told(self.rows)
            except UnequalFilesError as error:
                assert isinstance(shard, ParallelFiles)
                self._find_slip(shard, *error.counts)
            except DataError as error:
                self.found[kinds.UNREADABLE].add(Spot(shard, 0, remark=str(error)))
            for kind, finding in mended.items():
                self._add_mended(kind, finding, shard)
        self._finish(shards)

    def _look(self, shard: Shard, row: Row) -> None:
        """Look at one row: what cannot be read or is left out first, for then the rest does not matter."""
        number, source, target = row
        for side, text in enumerate((source, target)):
            if isinstance(text, Fault):
                self.found[text.kind].add(Spot(shard, number, side))
        if isinstance(source, Fault) or isinstance(target, Fault):
            return
        if not source.strip() or (target is not None and not target.strip()):
            if not shard.is_prose:
                self.found[kinds.EMPTY].add(Spot(shard, number))
            return
        texts = (source,) if target is None else (source, target)
        words = [len(text.split()) for text in texts]
        if shard.is_prose:
            if len(source) >= LONGEST_LINE:
                self.found[kinds.LONG_LINE].add(Spot(shard, number, 0))
        elif target is not None:
            for side, text in enumerate(texts):
                if self.rules.is_too_long(side, text, words[side]):
                    self.found[kinds.LONG].add(Spot(shard, number, side))
                    return
        self.usable += 1
        copied = source == target and any(map(str.isalpha, source))
        if copied:
            self.found[kinds.IDENTICAL].add(Spot(shard, number))
        for side, text in enumerate(texts[:1] if copied else texts):
            self.sides[side].count(text, words[side])
            self._look_closely(shard, number, side, text)
        if not shard.is_prose:
            self._remember(shard, number, source, target)

    def _look_closely(self, shard: Shard, number: int, side: int, text: str) -> None:
        """The characters of a text."""
        counts = self.sides[side]
        for kind, at in counts.oddities.look(text, breaks=shard.is_text).items():
            found = counts.scripts[kind] if kind in SCRIPTS else self.found[kind]
            found.add(Spot(shard, number, side, at))
        if self.rules.is_foreign(side, text):
            self.found[kinds.BYTES].add(Spot(shard, number, side))

    def _remember(self, shard: Shard, number: int, source: str, target: str | None) -> None:
        """What shows its sense only beside other rows. Hashes have 64 bits: no two of them meet by chance."""
        self._numbers.append(number)
        self._keys.append(hash((source, target)))
        self._lengths[0].append(len(source))
        self._lengths[1].append(len(target or ""))
        key = hash(source)
        if self._collects:
            place, copies = self.sentences.get(key) or (shard.place(number), 0)
            self.sentences[key] = HeldOut(place, copies + 1)
        elif leak := self._held_out.pop(key, None):
            self.found[kinds.LEAK].add(Spot(shard, number, remark=f"as {leak.place}"), leak.copies)

    def _finish(self, shards: Sequence[Shard]) -> None:
        """What is known only when all rows have been seen."""
        for side in self.sides:
            for script, found in side.scripts.items():
                if not side.oddities.at_home(script):
                    self.found[f"{SCRIPT} ({script.title()})"].include(found)
        self._find_duplicates()
        for i in odd_ratios(np.array(self._lengths[0]), np.array(self._lengths[1])):
            self.found[kinds.RATIO].add(self._spot(i))
        if self.found[kinds.UNEQUAL].count:
            for kind in PAIR_KINDS:
                self.found.pop(kind, None)
        elif shards and not self.usable and not self.found[kinds.UNREADABLE].count:
            place = shards[0].place(0).removesuffix(":0")
            self.found[kinds.NOTHING].add(Spot(shards[0], 0, remark=f"{place}: no row that training could use"))

    def _find_duplicates(self) -> None:
        keys = np.array(self._keys)
        order = np.argsort(keys, kind="stable")
        copies = np.sort(order[1:][keys[order[1:]] == keys[order[:-1]]])
        for i in copies[:EXAMPLES].tolist():
            first = self._spot(int(np.flatnonzero(keys == keys[i])[0]))
            self.found[kinds.DUPLICATE].add(self._spot(i)._replace(remark=f"as {first.shard.place(first.number)}"))
        if len(copies):
            self.found[kinds.DUPLICATE].count = len(copies)

    def _spot(self, i: int) -> Spot:
        """The row with number i in the arrays."""
        return Spot(self._shards[bisect_right(self._firsts, i) - 1], self._numbers[i])

    def _find_slip(self, shard: ParallelFiles, ours: int, theirs: int) -> None:
        """Where two files of different length cease to go together."""
        sides = [(ours, shard.source), (theirs, shard.target)]
        (fewer, short), (more, long) = sorted(sides)
        slip = find_slip(
            *(Traits("" if isinstance(t, Fault) else t for t in try_lines(path)) for path in (short, long))
        )
        told = f"{short} has {fewer} lines, {long} has {more}"
        if slip is None:
            spot = Spot(shard, fewer, remark=f"{told}: cut off after this line, it seems")
        else:
            spot = Spot(shard, slip, remark=f"{told}: from about this line on they do not go together")
        self.found[kinds.UNEQUAL].add(spot if fewer else Spot(shard, 0, remark=f"{short}: empty; {told}"), more - fewer)

    def _add_mended(self, kind: str, finding: Finding, shard: Shard) -> None:
        """What reading has counted."""
        for count, place in zip([finding.count, *[0] * EXAMPLES], finding.places, strict=False):
            number = int(place.rpartition(":")[2])
            side = int(place != shard.place(number))
            self.found[kind].add(Spot(shard, number, side), count)


def odd_ratios(ours: NDArray[np.int32], theirs: NDArray[np.int32]) -> list[int]:
    """The pairs whose lengths are several times as far apart as the usual pair's; a few characters do not count."""
    if not len(ours) or not theirs.any():
        return []
    usual = np.median(theirs / ours)
    ratios = (theirs + SHORT) / (usual * ours + SHORT)
    return np.flatnonzero(np.abs(np.log(ratios)) > math.log(TIMES)).tolist()
