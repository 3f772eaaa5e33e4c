"""Compare an imported model with the original in transformers: both read the same texts.

transformers is needed only here. It reads the folder without running code from it.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from regard.errors import ModelError, UsageError
from regard.interop.importing import Imported
from regard.machine.lazy_torch import torch
from regard.models.config import TransformerConfig, TransformerLMConfig
from regard.text.chat import ChatFormat
from regard.text.text_frame import TextFrame

TEXTS = (
    "The cat sat on the mat.",
    "Once upon a time there was",
    "In 1984, 3.14 times 42 was 131.88.",
    "def main():\n    return None\n",
    "Les élèves sont allés à la plage.",
    "ΑΒΓ αβγ, 中文, 🙂",
    "a",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen",
)
CONVERSATION = (
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of Italy?"},
)
MAX_DIFFERENCE = 1e-3  # of an output, relative to the largest one; float32 sums in another order give about 1e-6


def compare(imported: Imported) -> float:
    """Return the largest difference of an output on some texts, in float32; ModelError if it is no rounding error.

    The outputs are the logits of a language model or translator, and the token vectors of an encoder.
    """
    if importlib.util.find_spec("transformers") is None:
        raise UsageError("the comparison needs transformers: pip install transformers, or import without --check")
    from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if isinstance(imported.config, TransformerConfig):
        return compare_translators(imported, options)
    writes = isinstance(imported.config, TransformerLMConfig)
    theirs = (AutoModelForCausalLM if writes else AutoModel).from_pretrained(
        imported.folder.root, dtype=torch.float32, **options
    )
    their_tokenizer = AutoTokenizer.from_pretrained(imported.folder.root, **options)
    if "chat" in imported.info:
        check_chat(ChatFormat.from_dict(imported.info["chat"]), their_tokenizer)
    model: Any = imported.model()
    frame = imported.info["frame"]["target" if writes else "source"]
    largest = 0.0
    for text in TEXTS:
        ids = [*frame["before"], *imported.tokenizer.encode(text), *frame.get("after", [])]
        expected_ids = their_tokenizer(text)["input_ids"]
        if ids != expected_ids:
            raise ModelError(f"transformers reads {text!r} as the tokens {expected_ids}, and regard as {ids}")
        if not ids:
            continue
        with torch.inference_mode():
            tokens = torch.tensor([ids[: imported.info["context"]]])
            output = theirs.eval()(tokens)
            expected, result = (
                (output.logits, model(tokens)) if writes else (output.last_hidden_state, model.encode(tokens).states)
            )
        largest = max(largest, _difference(text, result, expected))
    return largest


def compare_translators(imported: Imported, options: dict[str, Any]) -> float:
    """Return the largest difference of a logit; each text is source and target at once."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    root = imported.folder.root
    theirs = AutoModelForSeq2SeqLM.from_pretrained(root, dtype=torch.float32, **options).eval()
    their_tokenizer = AutoTokenizer.from_pretrained(root, **options)
    model: Any = imported.model()
    special, frame = model.config.special_tokens, TextFrame.from_info(imported.info, model.config.special_tokens)
    if frame.codes:
        frame = frame.between(*((next(iter(frame.codes)) if place else None) for place in frame.code_places))
    before, after = frame.around_source()
    source_tokenizer, target_tokenizer = imported.tokenizers
    kept = torch.ones(model.config.target_vocabulary, dtype=torch.bool)
    kept[imported.table.excluded] = False
    largest = 0.0
    for text in TEXTS:
        content = source_tokenizer.encode(text)
        ids = [*before, *content, *after]
        their_ids = their_tokenizer(text, add_special_tokens=False)["input_ids"]
        if content != their_ids:
            raise ModelError(f"transformers reads {text!r} as the tokens {their_ids}, and regard as {content}")
        target = torch.tensor([[special.start, *frame.before_target(), *target_tokenizer.encode(text)]])
        with torch.inference_mode():
            expected = theirs(input_ids=torch.tensor([ids]), decoder_input_ids=target).logits
            result = model(torch.tensor([ids]), target)
        largest = max(largest, _difference(text, result[..., kept], expected[..., kept]))
    return largest


def _difference(text: str, result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference of an output; ModelError if it is no rounding error."""
    difference = (result - expected).abs().max().item()
    if not difference <= MAX_DIFFERENCE * max(1.0, expected.abs().max().item()):
        raise ModelError(f"on {text!r} the output differs from that of transformers by {difference:.1e}")
    return difference


def check_chat(form: ChatFormat, tokenizer: Any) -> None:
    """Raise ModelError unless a tokenizer of transformers writes the same chat prompts."""
    for messages in (CONVERSATION[1:2], CONVERSATION[1:], CONVERSATION[:2], CONVERSATION):
        expected = tokenizer.apply_chat_template([*messages], tokenize=False, add_generation_prompt=True)
        if (prompt := form.render(messages)) != expected:
            raise ModelError(f"transformers writes the chat prompt {expected!r}, and regard {prompt!r}")
