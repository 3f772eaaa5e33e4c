"""How much one request may ask for, so that none of them takes the machine for itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """All are on by default, and told at the start."""

    bytes: int = 2**20  # of a request's body
    characters: int = 5_000  # of a text
    tokens: int = 512  # of a text, and of what is written: a map has as many rows as columns
    queue: int = 16  # requests that wait for one model

    def __str__(self) -> str:
        return (
            f"{self.bytes:,} bytes a request, {self.characters:,} characters and {self.tokens:,} tokens a text, "
            f"{self.queue} requests waiting for a model"
        )


LIMITS = Limits()
