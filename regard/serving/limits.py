"""Limits of requests, so that no single request can occupy the machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of `regard explore`. All are active by default and printed at startup."""

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


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of `regard serve`. All are active by default and printed at startup."""

    bytes: int = 2**20  # of a request's body
    header_bytes: int = 2**14
    characters: int = 5_000  # of a text
    texts: int = 64  # of a request
    all_characters: int = 40_000  # of all texts of a request
    alternatives: int = 8  # of a text: translations, or completions of a prompt
    rows: int = 256  # of a request: texts x alternatives
    tokens: int = 8_192  # of all texts of a request, as the model reads them
    new_tokens: int = 1_024  # of a completion
    seconds: float = 60.0  # from the request to the end of the response
    queue: int = 128  # unfinished requests of a model
    connections: int = 1_024

    def __str__(self) -> str:
        return (
            f"{self.bytes:,} bytes, {self.texts} texts, {self.all_characters:,} characters, {self.tokens:,} tokens and "
            f"{self.seconds:g} seconds per request; "
            f"{self.characters:,} characters, {self.alternatives} alternatives and {self.new_tokens:,} new tokens per "
            f"text; {self.queue} unfinished requests per model; {self.connections:,} connections"
        )


SERVICE_LIMITS = ServiceLimits()
