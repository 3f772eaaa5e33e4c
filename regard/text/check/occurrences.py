"""Where a kind of problem occurs in the data: its number of occurrences and the first few locations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from regard.text.check.report import MAX_EXAMPLES
from regard.text.files.shards import Shard


class Location(NamedTuple):
    """The location of a problem. Number 0 is the file as a whole; the remark then contains the message."""

    shard: Shard
    number: int
    side: int | None = None  # None: the pair
    offset: int = 0  # in characters
    remark: str = ""


@dataclass
class Occurrences:
    """The number of occurrences of one kind of problem, and the first few locations."""

    count: int = 0
    locations: list[Location] = field(default_factory=list)

    def add(self, location: Location, count: int = 1) -> None:
        self.count += count
        if len(self.locations) < MAX_EXAMPLES:
            self.locations.append(location)

    def merge(self, others: Occurrences) -> None:
        self.count += others.count
        self.locations = (self.locations + others.locations)[:MAX_EXAMPLES]
