"""The votes of a class on one question: anonymous, one for each device, bounded in number and rate.

A device is a cookie with a random number that this process has signed; nothing else is stored of it. Somebody who
throws the cookie away would count twice, so an address gets only a few devices. Everything is forgotten with the next
question.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from regard.errors import DataError
from regard.serving.model_threads import BusyError

DEVICES_PER_ADDRESS = 8  # of one question
MAX_VOTES = 1_000  # of one question
MAX_CHOICES = 8
MAX_LETTERS = 300  # of a choice
REQUESTS, SECONDS = 30, 10.0  # an address may send so many requests in so many seconds
MAX_ADDRESSES = 2_000  # whose requests are counted; the oldest is forgotten first


@dataclass
class Question:
    """An open or closed question with its votes."""

    id: str
    choices: tuple[str, ...]
    votes: dict[str, int] = field(default_factory=dict)  # device -> choice
    addresses: dict[str, set[str]] = field(default_factory=dict)  # address -> its devices
    open: bool = True

    @property
    def counts(self) -> list[int]:
        """The number of votes for each choice."""
        chosen = list(self.votes.values())
        return [chosen.count(i) for i in range(len(self.choices))]


class Ballot:
    """The question that is being voted on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.address = ""  # of the page for voters; set when the port is known
        self.question: Question | None = None
        self._secret = secrets.token_bytes(32)
        self._clock = clock
        self._requests: OrderedDict[str, list[float]] = OrderedDict()  # by address: when the last ones came

    def ask(self, choices: Sequence[str]) -> Question:
        """Open a question and forget the last one."""
        if not 2 <= len(choices) <= MAX_CHOICES or any(not 0 < len(choice) <= MAX_LETTERS for choice in choices):
            raise DataError(f"a question has 2 to {MAX_CHOICES} choices of 1 to {MAX_LETTERS} characters")
        self.question = Question(secrets.token_urlsafe(6), tuple(choices))
        return self.question

    def close(self) -> None:
        """Accept no more votes; the result stays."""
        if self.question is not None:
            self.question.open = False

    def new_device(self) -> str:
        """Return a signed random number for a device."""
        number = secrets.token_urlsafe(16)
        return f"{number}.{self._sign(number)}"

    def knows(self, device: str) -> bool:
        """Return whether this process has signed the device's number."""
        number, _, signature = device.partition(".")
        return hmac.compare_digest(signature.encode(), self._sign(number).encode())

    def vote(self, question: str, choice: int, device: str, address: str) -> None:
        """Count the first vote of a device, or change it while the question is open."""
        current = self.question
        if current is None or current.id != question or not current.open:
            raise DataError("this question is closed: wait for the next one")
        if not 0 <= choice < len(current.choices):
            raise DataError(f"there are {len(current.choices)} choices, and {choice} is none of them")
        devices = current.addresses.setdefault(address, set())
        if device not in devices and len(devices) >= DEVICES_PER_ADDRESS:
            raise BusyError("too many devices vote from this address")
        if device not in current.votes and len(current.votes) >= MAX_VOTES:
            raise BusyError("this question has all the votes that it can take")
        devices.add(device)
        current.votes[device] = choice

    def check_rate(self, address: str) -> None:
        """Raise BusyError if an address sends too many requests."""
        now = self._clock()
        times = self._requests.pop(address, [])
        times = [moment for moment in times if now - moment < SECONDS]
        self._requests[address] = times
        while len(self._requests) > MAX_ADDRESSES:
            self._requests.popitem(last=False)
        if len(times) >= REQUESTS:
            raise BusyError("too many requests: wait some seconds")
        times.append(now)

    def _sign(self, number: str) -> str:
        return hmac.new(self._secret, number.encode(), sha256).hexdigest()[:32]


def qr_code(address: str) -> str:
    """Return a QR code of an address as an SVG data URI."""
    import segno

    uri: str = segno.make(address, error="m").svg_data_uri(border=2, omitsize=True, nl=False)
    return uri
