"""Limits of requests, so that no single request can occupy the machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of a server. All are active by default and printed at startup."""

    bytes: int = 2**20  # of a request's body
    file_bytes: int = 2**24  # of an image, a series or a recording
    characters: int = 5_000  # of a text
    tokens: int = 512  # of a text and of the output; an attention map grows with their product
    queue: int = 16  # requests waiting for a model

    def __str__(self) -> str:
        return (
            f"{self.bytes:,} bytes per request, {self.characters:,} characters and {self.tokens:,} tokens per text, "
            f"{self.file_bytes:,} bytes per file, "
            f"{self.queue} waiting requests per model"
        )


LIMITS = Limits()
