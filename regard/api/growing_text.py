"""Text that grows token by token: decode new tokens, and find the first stop text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from regard.errors import UsageError
from regard.text.tokenizers.tokenizer import Tokenizer

CONTEXT_TOKENS = 8  # the text of a token may depend on the previous ones


class TextDecoder:
    """Returns the text that each token adds. Bytes of an incomplete character wait for the rest."""

    def __init__(self, tokenizer: Tokenizer, *, after: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.before = list(after[-CONTEXT_TOKENS:])
        self.waiting: list[int] = []

    def push(self, token: int) -> str:
        """Return the text that is final now."""
        self.waiting.append(token)
        new = self._new()
        if not new or new.endswith("\ufffd"):
            return ""
        self.before, self.waiting = self.waiting, []
        return new

    def flush(self) -> str:
        """Return the rest at the end of the text."""
        return self._new() if self.waiting else ""

    def _new(self) -> str:
        before = self.tokenizer.decode(self.before)
        return self.tokenizer.decode([*self.before, *self.waiting])[len(before) :]


class StopFinder:
    """Returns the text up to the first stop text, excluded. Text that may be the beginning of one waits."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self.pending, self.found = stops, "", False

    def push(self, part: str) -> str:
        """Return the text that is final now; after a stop text was found, nothing more is."""
        self.pending += part
        offsets = [offset for offset in (self.pending.find(stop) for stop in self.stops) if offset >= 0]
        if offsets:
            self.found = True
            return self.pending[: min(offsets)]
        wait = max(
            (n for stop in self.stops for n in range(1, len(stop)) if self.pending.endswith(stop[:n])), default=0
        )
        final = self.pending[: len(self.pending) - wait]
        self.pending = self.pending[len(final) :]
        return final

    def flush(self) -> str:
        """Return the rest at the end of the text."""
        return "" if self.found else self.pending


def new_text(tokenizer: Tokenizer, tokens: Iterable[int], *, after: Sequence[int]) -> Iterator[str]:
    """Yield the text that each token adds."""
    decoder = TextDecoder(tokenizer, after=after)
    for token in tokens:
        if new := decoder.push(token):
            yield new
    if new := decoder.flush():
        yield new


def until_stop(parts: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """Yield the parts up to the first stop text."""
    finder = StopFinder(stops)
    for part in parts:
        if final := finder.push(part):
            yield final
        if finder.found:
            return
    if rest := finder.flush():
        yield rest


def stop_texts(stop: str | Sequence[str] | None) -> list[str]:
    """Return the stop texts as a list, and check them."""
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    if "" in stops:
        raise UsageError("stop must not be an empty text, because nothing would be written")
    return stops
