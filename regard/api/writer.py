"""A language model with its tokenizer: it continues and scores texts.

C2, E10.

    m tokens   V vocabulary
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any, cast

from torch import nn

from regard.api.draft_model import check_draft
from regard.api.growing_text import new_text, stop_texts, until_stop
from regard.api.html import describe_model, model_html, model_repr
from regard.api.results import ScoredText
from regard.api.saving import save_face
from regard.decoding.cpu.packed_copy import PackedCopy
from regard.decoding.engine import generate_tokens, stream_tokens
from regard.decoding.forced import score_tokens
from regard.decoding.requests import longest_text
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Search
from regard.errors import ModelError, UsageError
from regard.evaluation.perplexity import Likelihood
from regard.models.folder.weights_file import Storage
from regard.models.protocols import TextModel, config_of
from regard.text.chat import ChatFormat, Message
from regard.text.tokenizers.tokenizer import Tokenizer

SAMPLE = Sample()
MAX_TOKENS = 200
WINDOW_TOKENS = 1024  # that a recurrent model reads at a time when it scores a text


class Writer:
    """Writes texts with a language model; `regard.load` makes one from a folder.

    A Transformer sees at most `context` tokens, as in training. When the context is full, it continues with the last
    half of it. A recurrent model has no such limit, and `context` is None. With `pack`, a float32 model on a CPU
    decodes with packed weights, which is faster and takes more memory.
    """

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, *, info: Mapping[str, Any] | None = None, pack: bool = False
    ) -> None:
        self.model = cast(TextModel, model)
        self._packed = PackedCopy() if pack else None
        self.tokenizer = tokenizer
        self.info = dict(info or {})
        config = config_of(model)
        (vocabulary,) = config.vocabularies
        self.special = config.special_tokens
        vocabulary = self.special.tokenizer_size or vocabulary
        frame = self.info.get("frame", {}).get("target", {}).get("before")
        self.before: list[int] = [self.special.start] if frame is None else list(frame)  # what precedes a text
        if wrong := [token for token in self.before if token >= vocabulary]:
            raise ModelError(f"config.json: frame has the token {wrong[0]}, but there are tokens 0 to {vocabulary - 1}")
        if tokenizer.size != vocabulary:  # with fewer, the model could write tokens that have no text
            only = "only " if tokenizer.size > vocabulary else ""
            raise ModelError(f"the tokenizer has {tokenizer.size} tokens, but the model {only}{vocabulary}")
        self.context: int | None = None
        if not config.reads_any_length:
            limits = [limit for limit in (self.info.get("context"), longest_text(self.model)) if limit is not None]
            if wrong := [limit for limit in limits if not isinstance(limit, int) or limit < 2]:
                raise ModelError(f"config.json: context must be a whole number from 2, got {wrong[0]!r}")
            self.context = min(limits, default=None)

    @property
    def decoding_model(self) -> TextModel:
        """The model that decodes: `model`, or a copy with packed weights if that is faster (on a CPU)."""
        return self.model if self._packed is None else self._packed.of(self.model)

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        return save_face(self.model, folder, tokenizer=self.tokenizer, info=self.info, storage=storage)

    def __repr__(self) -> str:
        return model_repr("Writer", describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return model_html("Writer", describe_model(self.model, self.info), 'writer.write("…")')

    def write(
        self,
        prompt: str = "",
        *,
        search: Search = SAMPLE,
        max_tokens: int = MAX_TOKENS,
        stop: str | Sequence[str] | None = None,
    ) -> str:
        """Continue the prompt up to `max_tokens` tokens, the end of the text, or the first text of `stop`, excluded."""
        if search.streams:
            return "".join(self.stream(prompt, search=search, max_tokens=max_tokens, stop=stop))
        check_draft(self, search)
        tokens = self._prefix(prompt)
        limit = max_tokens if self.context is None else min(max_tokens, self.context - len(tokens))
        ((best, *_),) = generate_tokens(self.decoding_model, None, search=search, prefixes=[tokens], max_tokens=limit)
        return "".join(until_stop(new_text(self.tokenizer, best.tokens, after=tokens), stop_texts(stop)))

    def stream(
        self,
        prompt: str = "",
        *,
        search: Search = SAMPLE,
        max_tokens: int = MAX_TOKENS,
        stop: str | Sequence[str] | None = None,
    ) -> Iterator[str]:
        """Yield the same text as `write` in parts, each as soon as it is final."""
        if not search.streams:
            name = type(search).__name__
            raise UsageError(f"{name} cannot stream, because its first word depends on its last: use Greedy or Sample")
        if max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
        tokens = self._prefix(prompt)
        written = self._tokens(tokens, search, max_tokens)
        return until_stop(new_text(self.tokenizer, written, after=tokens), stop_texts(stop))

    @property
    def chat_format(self) -> ChatFormat | None:
        """The form of the conversations that the model was trained on, if it is known."""
        stored = self.info.get("chat")
        return None if stored is None else ChatFormat.from_dict(stored)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        search: Search = SAMPLE,
        max_tokens: int = MAX_TOKENS,
        stop: str | Sequence[str] | None = None,
    ) -> str:
        """Answer the last of the messages, each like {"role": "user", "content": "Hello"}; other arguments as in write.

        The roles are system (first, if at all), user and assistant. The model must be one that was trained to chat.
        """
        return "".join(self.stream_chat(messages, search=search, max_tokens=max_tokens, stop=stop))

    def stream_chat(
        self,
        messages: Sequence[Message],
        *,
        search: Search = SAMPLE,
        max_tokens: int = MAX_TOKENS,
        stop: str | Sequence[str] | None = None,
    ) -> Iterator[str]:
        """Yield the same answer as `chat` in parts, each as soon as it is final."""
        if not search.streams:
            raise UsageError(f"{type(search).__name__} cannot answer in a chat: use Greedy or Sample")
        if max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, got {max_tokens}")
        tokens = self.chat_tokens(messages, room=max_tokens)
        limit = max_tokens if self.context is None else min(max_tokens, self.context - len(tokens))
        written = stream_tokens(self.decoding_model, tokens, search=search, max_tokens=limit)
        answer = takewhile(lambda token: token not in self.chat_ends, written)
        return until_stop(new_text(self.tokenizer, answer, after=tokens), stop_texts(stop))

    def chat_tokens(self, messages: Sequence[Message], *, room: int = MAX_TOKENS) -> list[int]:
        """Return the tokens of a conversation, up to where the answer begins.

        If `room` tokens for the answer, or a quarter of the context, do not fit after them, the oldest messages are
        left out, with a warning. UsageError if the model has no chat format, or the last message alone is too long.
        """
        form = self.chat_format
        if form is None:
            raise UsageError("this model has no chat format: it continues texts, and does not answer messages")
        tokens = self.tokenizer.encode(form.render(messages))
        if self.context is None:
            return tokens
        first = int(messages[0]["role"] == "system")
        limit, start = self.context - min(room, self.context // 4), first
        while len(tokens) > limit:
            start = next((n for n in range(start + 1, len(messages)) if messages[n]["role"] == "user"), len(messages))
            if start == len(messages):
                raise UsageError(f"the last message is too long for the {self.context} tokens that the model sees")
            tokens = self.tokenizer.encode(form.render([*messages[:first], *messages[start:]]))
        if start > first:
            warnings.warn(
                f"the conversation is too long: its oldest {start - first} messages are left out", stacklevel=3
            )
        return tokens

    @property
    def chat_ends(self) -> frozenset[int]:
        """The tokens that end an answer: those that end a text, and the one that closes a message of the model."""
        form = self.chat_format
        closing = [] if form is None else self.tokenizer.encode(form.close["assistant"].strip())
        return frozenset((*self.special.ends, *(closing if len(closing) == 1 else ())))

    @property
    def window(self) -> int:
        """The number of tokens that are read at a time when a text is scored."""
        return self.context or WINDOW_TOKENS

    def score(self, text: str, *, stride: int | None = None) -> ScoredText:
        """Return the log-probability of each token of a text, which is the beginning of a document.

        A text that is longer than the context is read in windows that advance by `stride` tokens, by default half a
        window. In each window only the last `stride` tokens are scored, so every token is scored once, and all but the
        first tokens of the text are predicted from more than `window - stride` tokens. A small stride shows what the
        model can do; published losses mostly use a whole window.
        """
        window = self.window
        stride = window // 2 if stride is None else stride
        if not 1 <= stride <= window:
            raise UsageError(f"stride must be between 1 and the {window} tokens of a window, got {stride}")
        tokens = self.begin(text)
        prefixes, targets = [tokens[:1]], [tokens[1 : window + 1]]
        for start in range(window + 1, len(tokens), stride):
            prefixes.append(tokens[start - (window - stride) - 1 : start])
            targets.append(tokens[start : start + stride])
        scored = score_tokens(self.decoding_model, None, targets, prefixes=prefixes) if len(tokens) > 1 else []
        logps = [logp for window_scores in scored for logp in window_scores.logps]
        return ScoredText(text, self.tokenizer.pieces(tokens[1:]), logps)

    def perplexity(self, text: str, *, stride: int | None = None) -> Likelihood:
        """Return nats per token, perplexity and bits per character of a text; `stride` as in score."""
        return self.score(text, stride=stride).likelihood

    def begin(self, text: str) -> list[int]:
        """Return the tokens that the model reads for the beginning of a document, at least one.

        They begin with what training put before a document: the start token, or nothing in some imported models.
        """
        return [*self.before, *self.tokenizer.encode(text)] or [self.special.start]

    def _prefix(self, prompt: str) -> list[int]:
        """Return the prompt as tokens, or its last tokens if it does not fit."""
        tokens = self.begin(prompt)
        if self.context is None or len(tokens) < self.context:
            return tokens
        read = self.context // 2
        warnings.warn(
            f"the prompt has {len(tokens) - len(self.before)} tokens, but the model sees {self.context}: "
            f"only the last {read} are read",
            stacklevel=3,
        )
        return tokens[-read:]

    def _tokens(self, prefix: Sequence[int], search: Search, max_tokens: int) -> Iterator[int]:
        """Yield tokens until the text ends, at most `max_tokens`, in as many windows as necessary."""
        context, remaining, model = list(prefix), max_tokens, self.decoding_model
        for window in count():
            window_search = in_window(search, window, written=max_tokens - remaining)
            limit = remaining if self.context is None else min(remaining, self.context - len(context))
            for token in stream_tokens(model, context, search=window_search, max_tokens=limit):
                if token in self.special.ends:
                    return
                context.append(token)
                yield token
            remaining -= limit
            if self.context is None or not remaining:
                return
            context = context[-(self.context // 2) :]


def in_window(search: Search, window: int, *, written: int) -> Search:
    """Return the search for another window, after `written` tokens."""
    if isinstance(search, Sample):  # samples depend on the seed and the index in the window, so each needs its own seed
        search = replace(search, seed=search.seed + window)
    if isinstance(search, Greedy | Sample):  # earlier tokens count for the minimum length
        rules = (
            MinTokens(max(rule.count - written, 0)) if isinstance(rule, MinTokens) else rule for rule in search.rules
        )
        search = replace(search, rules=tuple(rules))
    return search
