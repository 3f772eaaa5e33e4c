"""A language model with its tokenizer: it goes on with a text, and says how likely one is.

C2, E10.

    m tokens   V vocabulary
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from torch import nn

from regard.api.draft_model import check_draft
from regard.api.results import ScoredText
from regard.decoding.cpu.packed_copy import PackedCopy
from regard.decoding.engine import generate_tokens, longest_text, stream_tokens
from regard.decoding.forced import score_tokens
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Search
from regard.errors import ModelError, UsageError
from regard.evaluation.perplexity import Likelihood
from regard.text.tokenizers.special_tokens import END, START
from regard.text.tokenizers.tokenizer import Tokenizer

SAMPLE = Sample()
MAX_TOKENS = 200
WINDOW = 1024  # tokens that a recurrent model reads at once when it scores a text


class Writer:
    """Writes with a language model of regard; `regard.load` makes one from a folder.

    A Transformer sees at most `context` tokens, those of its training. When they are full it goes on with the later
    half of them. A recurrent model has no such limit, and `context` is None. With `pack`, a model in float32 on a CPU
    decodes with packed weights, which is faster and takes more memory.
    """

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, *, info: Mapping[str, Any] | None = None, pack: bool = False
    ) -> None:
        self.model: Any = model
        self._packed = PackedCopy() if pack else None
        self.tokenizer = tokenizer
        self.info = dict(info or {})
        config: Any = model.config
        if tokenizer.size != config.vocabulary:  # with fewer, the model could write what nobody can read
            than = "only " if tokenizer.size > config.vocabulary else ""
            raise ModelError(f"the tokenizer has {tokenizer.size} tokens, the model {than}{config.vocabulary}")
        self.context: int | None = None
        if not hasattr(config, "cell"):
            limits = [limit for limit in (self.info.get("context"), longest_text(model)) if limit is not None]
            if wrong := [limit for limit in limits if not isinstance(limit, int) or limit < 2]:
                raise ModelError(f"config.json: context must be a whole number from 2, got {wrong[0]!r}")
            self.context = min(limits, default=None)

    @property
    def decoding_model(self) -> Any:
        """The model that decodes: `model`, or a copy of it with packed weights where that is faster (on a CPU)."""
        return self.model if self._packed is None else self._packed.of(self.model)

    def write(
        self,
        prompt: str = "",
        *,
        search: Search = SAMPLE,
        max_tokens: int = MAX_TOKENS,
        stop: str | Sequence[str] | None = None,
    ) -> str:
        """What follows the prompt: up to `max_tokens` tokens, the end of the text, or before a text of `stop`."""
        if search.streams:
            return "".join(self.stream(prompt, search=search, max_tokens=max_tokens, stop=stop))
        check_draft(self, search)
        tokens = self._prefix(prompt)
        room = max_tokens if self.context is None else min(max_tokens, self.context - len(tokens))
        ((best, *_),) = generate_tokens(self.decoding_model, None, search=search, prefixes=[tokens], max_tokens=room)
        return "".join(until_stop(new_text(self.tokenizer, best.tokens, after=tokens), stops_of(stop)))

    def stream(
        self,
        prompt: str = "",
        *,
        search: Search = SAMPLE,
        max_tokens: int = MAX_TOKENS,
        stop: str | Sequence[str] | None = None,
    ) -> Iterator[str]:
        """The same text as `write`, in parts, each as soon as it is certain."""
        if not search.streams:
            name = type(search).__name__
            raise UsageError(f"{name} does not know its first word before its last: stream with Greedy or Sample")
        if max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
        tokens = self._prefix(prompt)
        written = self._tokens(tokens, search, max_tokens)
        return until_stop(new_text(self.tokenizer, written, after=tokens), stops_of(stop))

    @property
    def window(self) -> int:
        """Tokens that are read at once when a text is scored."""
        return self.context or WINDOW

    def score(self, text: str, *, stride: int | None = None) -> ScoredText:
        """The log-probability of each token of a text, each predicted once, as the beginning of a document.

        Where the text is longer than the model sees, it is read in windows, each `stride` tokens further than the one
        before, half a window when not given. In a window only the last `stride` tokens count, so all but the first
        tokens of the text are predicted from at least `window - stride` others and the one before. A small stride
        is what the model can do; a whole window is how losses are mostly published.
        """
        window = self.window
        stride = window // 2 if stride is None else stride
        if not 1 <= stride <= window:
            raise UsageError(f"stride must be between 1 and the {window} tokens of a window, got {stride}")
        tokens = [START, *self.tokenizer.encode(text)]
        prefixes, targets = [tokens[:1]], [tokens[1 : window + 1]]
        for start in range(window + 1, len(tokens), stride):
            prefixes.append(tokens[start - (window - stride) - 1 : start])
            targets.append(tokens[start : start + stride])
        scored = score_tokens(self.decoding_model, None, targets, prefixes=prefixes) if len(tokens) > 1 else []
        logps = [logp for one in scored for logp in one.logps]
        return ScoredText(text, self.tokenizer.pieces(tokens[1:]), logps)

    def perplexity(self, text: str, *, stride: int | None = None) -> Likelihood:
        """How well the model predicts a text: nats per token, perplexity, bits per character; `stride` as in score."""
        return self.score(text, stride=stride).likelihood

    def _prefix(self, prompt: str) -> list[int]:
        """The prompt as tokens; where it does not fit, its last part."""
        tokens = [START, *self.tokenizer.encode(prompt)]  # as documents begin in training
        if self.context is None or len(tokens) < self.context:
            return tokens
        kept = self.context // 2
        warnings.warn(
            f"the prompt has {len(tokens) - 1} tokens and the model sees {self.context}: only the last {kept} are read",
            stacklevel=3,
        )
        return tokens[-kept:]

    def _tokens(self, prefix: Sequence[int], search: Search, left: int) -> Iterator[int]:
        """Tokens until the text ends, `left` at most, in as many windows as it takes."""
        seen, most, model = list(prefix), left, self.decoding_model
        for window in count():
            chance = in_window(search, window, written=most - left)
            room = left if self.context is None else min(left, self.context - len(seen))
            for token in stream_tokens(model, seen, search=chance, max_tokens=room):
                if token == END:
                    return
                seen.append(token)
                yield token
            left -= room
            if self.context is None or not left:
                return
            seen = seen[-(self.context // 2) :]


def in_window(search: Search, window: int, *, written: int) -> Search:
    """The search as it goes on in another window, after so many tokens."""
    if isinstance(search, Sample):  # draws follow from the seed and the place in the window, so each needs its own seed
        search = replace(search, seed=search.seed + window)
    if isinstance(search, Greedy | Sample):  # the tokens before count for the length
        left = (
            MinTokens(max(rule.count - written, 0)) if isinstance(rule, MinTokens) else rule for rule in search.rules
        )
        search = replace(search, rules=tuple(left))
    return search


def new_text(tokenizer: Tokenizer, tokens: Iterable[int], *, after: Sequence[int]) -> Iterator[str]:
    """The text that each token adds to the one before. Bytes that are no whole character yet wait for the rest."""
    before = list(after[-8:])  # how a piece is written may depend on what it follows
    waiting: list[int] = []
    for token in tokens:
        waiting.append(token)
        new = tokenizer.decode([*before, *waiting])[len(tokenizer.decode(before)) :]
        if new and not new.endswith("\ufffd"):
            yield new
            before, waiting = waiting, []
    if new := tokenizer.decode([*before, *waiting])[len(tokenizer.decode(before)) :]:
        yield new


def until_stop(parts: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The parts up to the first stop text. What may be the beginning of one waits."""
    held = ""
    for part in parts:
        held += part
        found = [place for place in (held.find(stop) for stop in stops) if place >= 0]
        if found:
            held = held[: min(found)]
            break
        wait = max((n for stop in stops for n in range(1, len(stop)) if held.endswith(stop[:n])), default=0)
        if sure := held[: len(held) - wait]:
            yield sure
        held = held[len(held) - wait :]
    if held:
        yield held


def stops_of(stop: str | Sequence[str] | None) -> list[str]:
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    if "" in stops:
        raise UsageError("stop must not be an empty text: nothing would ever be written")
    return stops
