"""Chat prompts: each form as transformers writes it from a template with the same markers, and a conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_models import make_original, make_tokenizer
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.errors import ModelError, UsageError
from regard.interop import import_model
from regard.interop.chat_template import recognize_chat
from regard.interop.comparison import CONVERSATION, check_chat
from regard.text.chat import ChatFormat, is_chat_format

EACH = "{% for message in messages %}"
ASKED = "{% if add_generation_prompt %}"
FIRST_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set messages = messages[1:] %}"
    "{% else %}{% set system = '' %}{% endif %}"
)
CHATML = (
    EACH + "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    + ASKED
    + "{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}"
    + EACH
    + "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    + "{{ message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    + ASKED
    + "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
LLAMA2 = (
    FIRST_SYSTEM + EACH + "{% if message['role'] == 'user' %}"
    "{% if loop.first and system %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
MISTRAL = (
    FIRST_SYSTEM + "{{ bos_token }}" + EACH + "{% if message['role'] == 'user' %}"
    "{% if loop.first and system %}{{ '[INST] ' + system + '\\n\\n' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endif %}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
MISTRAL_3 = (
    FIRST_SYSTEM.replace("set system =", "set system_message =")
    + "{{ bos_token }}"
    + EACH
    + "{% if message['role'] == 'user' %}"
    "{% if loop.last and system_message %}{{ '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}"
    "{% else %}{{ '[INST] ' + message['content'] + '[/INST]' }}{% endif %}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
GEMMA = (
    FIRST_SYSTEM + "{{ bos_token }}" + EACH + "{% set role = 'model' if message['role'] == 'assistant' else 'user' %}"
    "{{ '<start_of_turn>' + role + '\\n' + (system + '\\n\\n' if loop.first and system else '')"
    " + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    + ASKED
    + "{{ '<start_of_turn>model\\n' }}{% endif %}"
)
ZEPHYR = (
    EACH + "{% if message['role'] == 'user' %}{{ '<|user|>\\n' + message['content'] + eos_token }}\n"
    "{% else %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token }}\n{% endif %}{% endfor %}"
    + ASKED
    + "{{ '<|assistant|>' }}\n{% endif %}"
)
CHATML_LINES = CHATML.replace("\\n", "\n")  # with line breaks in its literals, as in some files
PHI3 = ZEPHYR.replace("eos_token", "'<|end|>'")
HELLO = {"role": "user", "content": "Hello"}
TEMPLATES = {
    name: globals()[name]
    for name in ("CHATML", "CHATML_LINES", "LLAMA3", "LLAMA2", "MISTRAL", "MISTRAL_3", "GEMMA", "ZEPHYR", "PHI3")
}


def tokenizer_with(template: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=make_tokenizer(), bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("name", TEMPLATES)
def test_forms(name: str) -> None:
    form = recognize_chat(TEMPLATES[name], start="<s>", end="</s>")
    assert form is not None
    check_chat(form, tokenizer_with(TEMPLATES[name]))
    assert is_chat_format(form.to_dict()) and ChatFormat.from_dict(form.to_dict()) == form


def test_another_prompt_is_noticed() -> None:
    """A default that the template puts together is not found, and the comparison says so."""
    template = CHATML.replace("You help.", "You' + ' help.")
    form = recognize_chat(template)
    assert form is not None
    with pytest.raises(ModelError, match="transformers writes the chat prompt"):
        check_chat(form, tokenizer_with(template))
    assert recognize_chat("{{ messages }}") is None


def test_thoughts_of_earlier_answers_are_left_out() -> None:
    form = recognize_chat(CHATML + "{# content.split('</think>')[-1] #}")
    assert form is not None
    messages = [
        *CONVERSATION[1:2],
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nParis."},
        CONVERSATION[3],
    ]
    assert "assistant\nParis.<|im_end|>" in form.render(messages)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "with at least one"),
        ("Hello", "must be a list"),
        ([{"role": "robot", "content": "a"}], "message 0 must have a role, one of system, user, assistant"),
        ([{"role": "user"}], "message 0 must have a content"),
        (
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            "the last message must be of the user",
        ),
        ([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], "only the first message may be"),
    ],
)
def test_wrong_messages(messages: Any, message: str) -> None:
    form = recognize_chat(CHATML)
    assert form is not None
    with pytest.raises(UsageError, match=message):
        form.render(messages)


def test_damaged_formats() -> None:
    form = recognize_chat(CHATML)
    assert form is not None
    stored = form.to_dict()
    for change in (
        {"open": {"user": "a"}},
        {"answer": 3},
        {"strip": "no"},
        {"system_place": "last"},
        {"more": 1},
        {"begin": None},
    ):
        assert not is_chat_format({**stored, **change})
    assert not is_chat_format([]) and not is_chat_format({"open": {}, "close": {}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with a chat template, imported."""
    root = tmp_path_factory.mktemp("chat")
    original = make_original("llama", root / "original", vocabulary_margin=8, max_position_embeddings=160)
    tokenizer = json.loads((root / "original" / "tokenizer.json").read_text())
    markers = ("<|im_start|>", "<|im_end|>")
    size = len(tokenizer["model"]["vocab"])
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"] += [{"id": size + i, "content": text, **token} for i, text in enumerate(markers)]
    (root / "original" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (root / "original" / "chat_template.jinja").write_text(CHATML)
    import_model(original.folder, root / "imported", check=True)
    return root / "imported"


def test_a_chat_in_python(folder: Path) -> None:
    """The answer continues the tokens of transformers' prompt; the oldest messages make room."""
    import transformers

    writer = regard.load(folder, device="cpu")
    theirs = transformers.AutoTokenizer.from_pretrained(folder.parent / "original", local_files_only=True)
    expected = theirs.apply_chat_template([*CONVERSATION], add_generation_prompt=True)["input_ids"]
    assert writer.chat_tokens(CONVERSATION, room=1) == expected
    answer = writer.chat(CONVERSATION[1:2], search=regard.Greedy(), max_tokens=9)
    parts = list(writer.stream_chat(CONVERSATION[1:2], search=regard.Greedy(), max_tokens=9))
    assert answer == "".join(parts)
    assert theirs.convert_tokens_to_ids("<|im_end|>") in writer.chat_ends
    long = [*CONVERSATION[:3], *CONVERSATION[1:]]
    with pytest.warns(UserWarning, match="its oldest 2 messages are left out"):
        assert writer.chat_tokens(long, room=1) == expected
    with pytest.raises(UsageError, match="too long for the 160 tokens"):
        writer.chat_tokens([{"role": "user", "content": "a" * 400}])
    with pytest.raises(UsageError, match="cannot answer in a chat"):
        writer.chat(CONVERSATION, search=regard.Beam(2))


def test_a_chat_in_the_shell(folder: Path, tmp_path: Path) -> None:
    """Each line of a pipe is a message of one conversation; the answers are those of Python."""
    command = ["generate", "-m", str(folder), "--chat", "--greedy", "--max-tokens", "5"]
    done = CliRunner().invoke(app, [*command, "--json", "--system", "Be brief."], input="Hello\n\nAgain\n")
    assert done.exit_code == 0, done.stderr
    turns = [json.loads(line) for line in done.stdout.splitlines()]
    assert [turn["message"] for turn in turns] == ["Hello", "Again"]
    writer = regard.load(folder, device="cpu")
    messages = [{"role": "system", "content": "Be brief."}]
    for turn in turns:
        messages.append({"role": "user", "content": turn["message"]})
        assert turn["answer"] == writer.chat(messages, search=regard.Greedy(), max_tokens=5)
        messages.append({"role": "assistant", "content": turn["answer"]})
    one = CliRunner().invoke(app, [*command, "Hello"])
    default = writer.chat([HELLO], search=regard.Greedy(), max_tokens=5)
    assert one.stdout == default + "\n"
    wrong = CliRunner().invoke(app, [*command, "--n", "2", "Hello"])
    assert wrong.exit_code == 2
    assert CliRunner().invoke(app, ["generate", "-m", str(folder), "--system", "a", "b"]).exit_code == 2
    refused = CliRunner().invoke(app, ["generate", "--chat", "--seed", "1", "Hello"])
    assert refused.exit_code == 2
