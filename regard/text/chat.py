"""Chat prompts: how the messages of a conversation become the text that a language model continues.

A chat model was trained on conversations in one form, for example ChatML. The form is data in config.json of a model
folder, under "chat"; an import recognizes it (regard/interop/chat_template.py). No template is ever executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.errors import UsageError

ROLES = ("system", "user", "assistant")
PLACES = ("message", "first user", "last user")  # where the text of the system stands
MAX_TEXT = 20_000  # characters of a text in config.json

Message = Mapping[str, str]  # {"role": "user", "content": "Hello"}


@dataclass(frozen=True)
class ChatFormat:
    """What stands around the messages of a conversation, by role."""

    open: Mapping[str, str]
    close: Mapping[str, str]
    answer: str  # what precedes the answer of the model
    begin: str = ""  # what precedes the whole conversation
    default_system: str | None = None  # the text of the system where the messages have none
    system_prefix: str = ""  # what precedes the text of the system
    system_place: str = "message"  # one of PLACES: a message of its own, or inside a message of the user
    strip: bool = False  # whether blanks around a message are removed
    thought_end: str = ""  # the text after which an earlier answer begins, past the model's thoughts; or none

    def render(self, messages: Sequence[Message]) -> str:
        """Return the text of the conversation, up to where the answer to its last message begins."""
        check_messages(messages)
        turns = [(message["role"], self._content(message)) for message in messages]
        if turns[0][0] != "system" and self.default_system is not None:
            turns.insert(0, ("system", self.default_system))
        if self.system_place != "message" and turns[0][0] == "system":
            turns = self._system_in_user(turns)
        parts = [f"{self.open[role]}{content}{self.close[role]}" for role, content in turns]
        return self.begin + "".join(parts) + self.answer

    def to_dict(self) -> dict[str, Any]:
        """Return the format as config.json stores it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ChatFormat:
        """Return the format that config.json stores; `is_chat_format` must be true of it."""
        return cls(**stored)

    def _content(self, message: Message) -> str:
        role, content = message["role"], message["content"]
        if role == "assistant" and self.thought_end and self.thought_end in content:
            content = content.rpartition(self.thought_end)[2].lstrip("\n")
        content = content.strip() if self.strip else content
        return self.system_prefix + content if role == "system" else content

    def _system_in_user(self, turns: list[tuple[str, str]]) -> list[tuple[str, str]]:
        (_, system), *turns = turns
        users = [number for number, (role, _) in enumerate(turns) if role == "user"]
        number = users[0] if self.system_place == "first user" else users[-1]
        text = f"{self.open['system']}{system}{self.close['system']}{turns[number][1]}"
        turns[number] = "user", text.strip() if self.strip else text
        return turns


def check_messages(messages: Sequence[Message]) -> None:
    """Raise UsageError unless these are the messages of a conversation, the last one by the user."""
    if isinstance(messages, str | Mapping) or not messages:
        raise UsageError('messages must be a list such as [{"role": "user", "content": "Hello"}], with at least one')
    for number, message in enumerate(messages):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ROLES:
            raise UsageError(f"message {number} must have a role, one of {', '.join(ROLES)}, got {role!r}")
        if not isinstance(message.get("content"), str):
            raise UsageError(f"message {number} must have a content, a text")
        if role == "system" and number:
            raise UsageError(f"message {number} is of the system, which only the first message may be")
    if messages[-1]["role"] != "user":
        raise UsageError(f"the last message must be of the user, got {messages[-1]['role']}")


def is_chat_format(value: Any) -> bool:
    """Whether this is what `ChatFormat.to_dict` returns; an entry of a text that is missing has its default."""
    if not isinstance(value, dict) or not {"open", "close", "answer"} <= value.keys() <= FIELDS.keys():
        return False
    sides = value["open"], value["close"]
    if not all(isinstance(side, dict) and side.keys() == {*ROLES} for side in sides):
        return False
    texts = [text for side in sides for text in side.values()]
    for name, content in value.items():
        if name == "strip" and not isinstance(content, bool):
            return False
        if name == "system_place" and content not in PLACES:
            return False
        if name in TEXTS and not (content is None and name == "default_system"):
            texts.append(content)
    return all(isinstance(text, str) and len(text) <= MAX_TEXT for text in texts)


FIELDS = ChatFormat.__dataclass_fields__
TEXTS = ("answer", "begin", "default_system", "system_prefix", "system_place", "thought_end")
