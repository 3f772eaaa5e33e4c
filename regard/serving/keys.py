"""API keys: named, hashed in memory, compared in constant time, each with its own limit."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from regard.errors import UsageError

MIN_KEY_CHARACTERS = 16
MAKE_KEY = 'python -c "import secrets; print(secrets.token_urlsafe())"'
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
LIMIT = re.compile(r"limit=(\d{1,9})/min")


@dataclass
class Allowance:
    """How many texts a key may still send: it refills at a constant rate, up to the texts of one minute."""

    per_minute: int
    available: float = field(init=False)
    updated: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.available = float(self.per_minute)

    def seconds_until(self, texts: int) -> float:
        """Return 0 and take the texts, or return in how many seconds they will be available; never is infinite."""
        now = time.monotonic()
        gained = (now - self.updated) * self.per_minute / 60
        self.available, self.updated = min(self.per_minute, self.available + gained), now
        if texts <= self.available:
            self.available -= texts
            return 0.0
        return math.inf if texts > self.per_minute else (texts - self.available) * 60 / self.per_minute


@dataclass(frozen=True)
class Key:
    """A key: its name, which logs and metrics show, and the hash of its text, which nothing shows."""

    name: str
    digest: bytes = field(repr=False)
    allowance: Allowance | None = None


ANONYMOUS = Key("anonymous", b"")  # every client of a server without keys


class KeyRing:
    """The valid keys. A key that was read from a file can be added or removed there: `reread`."""

    def __init__(self, keys: Iterable[Key], *, path: Path | None = None) -> None:
        self._keys, self.path = tuple(keys), path

    @classmethod
    def single(cls, text: str) -> KeyRing:
        """Return a ring with one key."""
        return cls([Key("key", digest(text))])

    @classmethod
    def from_file(cls, path: Path) -> KeyRing:
        """Read a key file, one `name:key` or `name:key:limit=60/min` a line; UsageError if a line is invalid."""
        return cls(read_keys(path), path=path)

    def reread(self) -> None:
        """Read the file again. A key whose limit has not changed keeps what it has used of it."""
        if self.path is None:
            return
        used = {key.name: key.allowance for key in self._keys}
        keys = []
        for key in read_keys(self.path):
            before = used.get(key.name)
            same = before is not None and key.allowance is not None and before.per_minute == key.allowance.per_minute
            keys.append(Key(key.name, key.digest, before) if same else key)
        self._keys = tuple(keys)

    def find(self, text: str) -> Key | None:
        """Return the key with this text. The time that it takes does not depend on the text."""
        presented, match = digest(text), None
        for key in self._keys:
            if hmac.compare_digest(presented, key.digest):
                match = key
        return match


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def read_keys(path: Path) -> list[Key]:
    """Read a key file. Empty lines and lines that begin with # are skipped; a lone key has the name `key`."""
    try:
        lines = path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--key-file {path}: {getattr(error, 'strerror', None) or 'not ASCII text'}") from error
    entries = [(number, line.strip()) for number, line in enumerate(lines, start=1)]
    keys = [
        parse_key(f"--key-file {path}, line {number}", line) for number, line in entries if line[:1] not in ("", "#")
    ]
    if not keys:
        raise UsageError(f"--key-file {path}: it contains no key. Make one with: {MAKE_KEY} > {path}")
    names = [key.name for key in keys]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--key-file {path}: two keys have the name {repeated!r}")
    return keys


def parse_key(where: str, line: str) -> Key:
    """Return the key of a line. Messages never show the line, because it contains the key."""
    name, *rest = line.split(":") if ":" in line else ("key", line)
    text, *limits = rest
    if not NAME.fullmatch(name):
        raise UsageError(f"{where}: the name before the colon must consist of at most 64 letters, digits, - and _")
    if len(text) < MIN_KEY_CHARACTERS or not text.isprintable() or " " in text:
        raise UsageError(
            f"{where}: a key has at least {MIN_KEY_CHARACTERS} characters, without spaces and colons. "
            f"Make one with: {MAKE_KEY}"
        )
    match = LIMIT.fullmatch(limits[0]) if len(limits) == 1 else None
    if limits and (match is None or not int(match[1])):
        raise UsageError(f"{where}: after the key only its limit may follow, such as `limit=60/min` (texts per minute)")
    return Key(name, digest(text), Allowance(int(match[1])) if match else None)
