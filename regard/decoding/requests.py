"""The inputs of a call: checked, numbered, and sorted into batches.

E8. The results of a search do not depend on the batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import DEFAULT, SpecialTokens

if TYPE_CHECKING:
    from regard.models.protocols import TextModel

Tokens = Sequence[int]
# The share of a batch that must be free before waiting inputs enter. On a CPU the whole batch: a step there takes time
# in proportion to its rows, so small batches cost nothing, and texts of different lengths in one batch cost 30 to 80%
# more time for 600 sentences.
FREE_SHARE = {"cpu": 1.0, "other": 0.5}


class Request(NamedTuple):
    """One input."""

    number: int  # its place in the caller's list, unless the caller numbers the inputs
    source: Tokens | None
    prefix: list[int]  # what the decoder reads before it writes, at least one token
    limit: int  # the most tokens to write
    constraints: Sequence[Tokens] = ()  # phrases that its texts must contain
    rule: Any = None  # a Rule (searches/logit_rules.py) besides those of the search, or None


def translates(model: TextModel) -> bool:
    """Whether a model encodes a source; a language model does not."""
    return hasattr(model, "encode")


def check_model(model: TextModel, source: Sequence[Tokens] | None) -> None:
    """Raise a UsageError unless the model writes text, with a source if and only if it translates."""
    if not all(hasattr(model, name) for name in ("decode", "project", "start")):
        raise UsageError(f"a {type(model).__name__} does not write text")
    if translates(model) != (source is not None):
        what = "translates: give it a source" if translates(model) else "is a language model: its source is None"
        raise UsageError(f"a {type(model).__name__} {what}")


def make_requests(
    source: Sequence[Tokens] | None,
    prefixes: Sequence[Tokens] | None,
    max_tokens: int | Sequence[int],
    numbers: Sequence[int] | None = None,
    *,
    special: SpecialTokens = DEFAULT,
) -> list[Request]:
    """Check the inputs and number them."""
    if source is None and prefixes is None:
        raise UsageError("a language model needs prefixes, one for each text to write; an empty one begins a new text")
    count = len(prefixes or ()) if source is None else len(source)
    prefixes = [()] * count if prefixes is None else prefixes
    limits = [max_tokens] * count if isinstance(max_tokens, int) else list(max_tokens)
    numbers = range(count) if numbers is None else numbers
    for name, values in (("prefixes", prefixes), ("max_tokens", limits), ("numbers", numbers)):
        if len(values) != count:
            raise UsageError(f"{name} has {len(values)} entries for {count} inputs: give one for each")
    if len({*numbers}) < count:
        raise UsageError("numbers must all be different")
    requests = []
    for i, (number, prefix, limit) in enumerate(zip(numbers, prefixes, limits, strict=True)):
        tokens = None if source is None else source[i]
        if tokens is not None and not len(tokens):
            raise UsageError(f"source {i} holds no token: an empty sentence is at least its END")
        begun = decoder_prefix(prefix, translates=source is not None, special=special)
        requests.append(Request(number, tokens, begun, limit))
    return requests


def decoder_prefix(prefix: Tokens, *, translates: bool, special: SpecialTokens = DEFAULT) -> list[int]:
    """Return what the decoder reads before the first token that it writes.

    A translator's target begins with START. A language model reads its prompt as it is, because a prompt need not be
    the beginning of a text; without a prompt it reads START.
    """
    return [special.start, *prefix] if translates or not prefix else list(prefix)


def longest_text(model: TextModel) -> int | None:
    """Return how many tokens the decoder has positions for, START and the prefix included; None: no limit."""
    models: Sequence[TextModel] = getattr(model, "models", [model])  # those of an ensemble
    limits = [getattr(member.config, "max_positions", None) for member in models]
    return min((limit for limit in limits if limit is not None), default=None)


def check_room(model: TextModel, requests: Sequence[Request]) -> None:
    """Raise a UsageError if a request asks for no token, or for more than there are learned positions."""
    positions = longest_text(model)
    for request in requests:
        if request.limit < 1:
            raise UsageError(f"max_tokens must be at least 1, got {request.limit} for input {request.number}")
        prefix = len(request.prefix)
        room = math.inf if positions is None else positions + 1 - prefix  # the last token is not read
        if request.limit > room:
            raise UsageError(
                f"max_tokens={request.limit} for input {request.number} is too much: the model has learned {positions} "
                f"positions and {prefix} are taken by what stands before the text, so {max(room, 0)} tokens can follow"
            )


def row_tokens(request: Request) -> tuple[int, int, int]:
    """Return the tokens that a request takes in a row: prefix, source, and the most that it may write."""
    return len(request.prefix), 0 if request.source is None else len(request.source), request.limit


def make_batches(requests: Sequence[Request], *, rows: int, batch_tokens: int) -> Iterator[list[Request]]:
    """Yield batches of similar requests, the longest first, so that a lack of memory shows early.

    The prefixes of a batch have the same length. A request that is too large for `batch_tokens` has its own batch.
    """
    queue = RequestQueue(requests, rows=rows, batch_tokens=batch_tokens)
    while batch := queue.take(0):
        yield batch


class RequestQueue:
    """Requests that wait for a batch, the longest first, so that a lack of memory shows early."""

    def __init__(self, requests: Sequence[Request], *, rows: int, batch_tokens: int, free_share: float = 0.5) -> None:
        if batch_tokens < 1:
            raise UsageError(f"batch_tokens must be at least 1, got {batch_tokens}")
        self.rows_per_request, self.batch_tokens, self.free_share = rows, batch_tokens, free_share
        self.waiting = sorted(requests, key=row_tokens)  # the next one is the last
        self.widest = 0  # tokens of the widest running row

    def take(self, running: int) -> list[Request]:
        """Return the requests that may enter beside `running` rows: as many as fit, with prefixes of one length.

        While rows are running, none enter before a share of `free_share` is free: a few at a time would split each
        choice into many small groups. A request that is too large for the batch runs alone.
        """
        if running and running * self.widest > self.batch_tokens * (1 - self.free_share):
            return []
        taken: list[Request] = []
        widest = self.widest if running else 0
        while self.waiting:
            request = self.waiting[-1]
            new_widest = max(widest, sum(row_tokens(request)))
            full = (running + self.rows_per_request * (len(taken) + 1)) * new_widest > self.batch_tokens
            if (full and (running or taken)) or (taken and len(request.prefix) != len(taken[0].prefix)):
                break
            taken.append(self.waiting.pop())
            widest = new_widest
        self.widest = widest
        return taken
