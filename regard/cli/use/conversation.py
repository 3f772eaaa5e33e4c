"""`regard generate --chat`: a conversation with a model that was trained to chat."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence

import typer

from regard.api.writer import Writer
from regard.cli.shared.model_options import check_utf8, plain_warnings
from regard.decoding.searches.search import Search
from regard.errors import DataError
from regard.system.terminal import edit_typed_lines

PROMPT = "> "


class Conversation:
    """The messages so far; each answer is printed as it is generated, and becomes one of them."""

    def __init__(
        self,
        writer: Writer,
        make_search: Callable[[int], Search],
        *,
        system: str | None,
        max_tokens: int,
        stop: Sequence[str] | None,
        as_json: bool,
    ) -> None:
        """`make_search` returns the search of an answer by its number, so that each one has a seed of its own."""
        self.writer, self.make_search = writer, make_search
        self.max_tokens, self.stop, self.as_json = max_tokens, stop, as_json
        self.messages = [] if system is None else [{"role": "system", "content": system}]

    def run(self, message: str | None) -> None:
        """Answer one message, or each line of stdin: typed in a terminal, or from a pipe."""
        with plain_warnings():
            if message is not None:
                self.answer(message)
            elif sys.stdin.isatty():
                for line in typed_lines():
                    self.answer(line, interruptible=True)
            else:
                for line in piped_lines():
                    self.answer(line)

    def answer(self, message: str, *, interruptible: bool = False) -> None:
        """Print the answer to a message. In a terminal, Ctrl-C ends the answer and not the conversation."""
        number = sum(each["role"] == "user" for each in self.messages)
        self.messages.append({"role": "user", "content": check_utf8(message, "the message")})
        parts: list[str] = []
        try:
            for part in self.writer.stream_chat(
                self.messages, search=self.make_search(number), max_tokens=self.max_tokens, stop=self.stop
            ):
                parts.append(part)
                if not self.as_json:
                    sys.stdout.write(part)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            if not interruptible:
                raise
        answer = "".join(parts)
        self.messages.append({"role": "assistant", "content": answer})
        if self.as_json:
            typer.echo(json.dumps({"message": message, "answer": answer}, ensure_ascii=False))
        else:
            typer.echo()


def typed_lines() -> Iterator[str]:
    """Yield what is typed in a terminal, until Ctrl-D or Ctrl-C at the prompt."""
    edit_typed_lines()
    while True:
        try:
            line = input(PROMPT)
        except (EOFError, KeyboardInterrupt):
            typer.echo()
            return
        if line.strip():
            yield line


def piped_lines() -> Iterator[str]:
    """Yield the lines of stdin that are not empty, each as soon as it arrives; DataError if one is not UTF-8."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            message = line.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"stdin, line {number}: not UTF-8 ({error.reason})") from None
        if message.strip():
            yield message
