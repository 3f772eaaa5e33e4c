"""Recognize the form of a model's chat prompts by the markers in its chat template.

A chat template is a program in the language Jinja, which is not run here. Its text shows which of the common forms it
writes, and the literals in it say where blanks stand, and what the system says by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from regard.text.chat import ROLES, ChatFormat

MAX_CHARACTERS = 2**17  # of a template
CUTTING = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"  # that Llama 3.1 puts before each system


def recognize_chat(template: str, *, start: str = "", end: str = "") -> ChatFormat | None:
    """Return the chat format of a template, or None if it is none of the known ones.

    `start` and `end` are the texts of the tokens that the template calls bos_token and eos_token.
    """
    if len(template) > MAX_CHARACTERS:
        return None
    begin = start if "bos_token" in template else ""
    for marker, make in FORMS.items():
        if marker in template:
            return make(template, begin, end)
    return None


def _chatml(template: str, begin: str, end: str) -> ChatFormat:
    default = re.search(r"<\|im_start\|>system(?:\\n|\n)([^'\"{}<]+)<\|im_end\|>", template)
    return ChatFormat(
        open={role: f"<|im_start|>{role}\n" for role in ROLES},
        close=dict.fromkeys(ROLES, "<|im_end|>\n"),
        answer="<|im_start|>assistant\n",
        begin=begin,
        default_system=None if default is None else default[1].replace("\\n", "\n"),
        thought_end="</think>" if "</think>" in template else "",
    )


def _llama3(template: str, begin: str, end: str) -> ChatFormat:
    dated = "Cutting Knowledge Date" in template
    opens = {role: f"<|start_header_id|>{role}<|end_header_id|>\n\n" for role in ROLES}
    return ChatFormat(
        open=opens,
        close=dict.fromkeys(ROLES, "<|eot_id|>"),
        answer=opens["assistant"],
        begin=begin,
        default_system=CUTTING if dated else None,
        system_prefix=CUTTING if dated else "",
        strip=True,
    )


def _instruct(template: str, begin: str, end: str) -> ChatFormat:
    """Llama 2 and Mistral, whose versions differ in their blanks."""
    if "<<SYS>>" in template:
        return ChatFormat(
            open={"system": "<<SYS>>\n", "user": f"{begin}[INST] ", "assistant": " "},
            close={"system": "\n<</SYS>>\n\n", "user": " [/INST]", "assistant": f" {end}"},
            answer="",
            system_place="first user",
            strip=True,
        )
    before = "[INST] " if re.search(r"\[INST\] ['\"]", template) else "[INST]"
    after = " [/INST]" if re.search(r"['\"] \[/INST\]", template) else "[/INST]"
    blank = " " if re.search(r"(['\"]) \1 ?(\+|~) ?(message|content)", template) else ""
    tail = " " if re.search(r"eos_token ?\+ ?(['\"]) \1", template) else ""
    return ChatFormat(
        open={"system": "", "user": before, "assistant": blank},
        close={"system": "\n\n", "user": after, "assistant": end + tail},
        answer="",
        begin=begin,
        system_place="last user" if re.search(r"loop\.last and system_message", template) else "first user",
    )


def _gemma(template: str, begin: str, end: str) -> ChatFormat:
    turns = {"user": "<start_of_turn>user\n", "assistant": "<start_of_turn>model\n"}
    return ChatFormat(
        open={"system": "", **turns},
        close={"system": "\n\n", **dict.fromkeys(turns, "<end_of_turn>\n")},
        answer=turns["assistant"],
        begin=begin,
        system_place="first user",
        strip=True,
    )


def _zephyr(template: str, begin: str, end: str) -> ChatFormat:
    """Zephyr, TinyLlama and, with an end of its own, Phi 3."""
    end = "<|end|>" if "<|end|>" in template else end
    return ChatFormat(
        open={role: f"<|{role}|>\n" for role in ROLES},
        close=dict.fromkeys(ROLES, f"{end}\n"),
        answer="<|assistant|>\n",
        begin=begin,
    )


# By a marker that only templates of this form have.
FORMS: dict[str, Callable[[str, str, str], ChatFormat]] = {
    "<|im_start|>": _chatml,
    "<|start_header_id|>": _llama3,
    "<start_of_turn>": _gemma,
    "[INST]": _instruct,
    "<|user|>": _zephyr,
}
