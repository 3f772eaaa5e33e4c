"""Check the file of an imported tokenizer, tokenizer.json of the `tokenizers` library, before that library reads it.

The file may come from a stranger. Only parts that are listed here are accepted, and of regular expressions only those
of known models, because a stranger's expression may run for ever.
"""

from __future__ import annotations

import json
from typing import Any

from regard.errors import ModelError, unknown_name

MAX_DEPTH = 8  # of parts inside parts
MAX_QUOTED_CHARACTERS = 80
MODELS = ("BPE", "Unigram", "WordPiece", "WordLevel")
# The accepted parts, by the key in the file.
PARTS = {
    "normalizer": (
        *("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "BertNormalizer", "Precompiled"),
        *("Replace", "Prepend", "Nmt", "Sequence"),
    ),
    "pre_tokenizer": (
        *("ByteLevel", "Metaspace", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits"),
        *("Split", "Sequence"),
    ),
    "post_processor": ("TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing", "Sequence"),
    "decoder": ("ByteLevel", "Metaspace", "WordPiece", "ByteFallback", "Fuse", "Replace", "Strip", "Sequence"),
}
INNER = ("normalizers", "pretokenizers", "processors", "decoders")  # the parts of a Sequence
KEYS = frozenset({"version", "truncation", "padding", "added_tokens", "model", *PARTS})
EACH_CHARACTER = r"[\s\S]"
BLANKS = r"[ \t-\r\x1c-\x1f\x{85}\x{2028}\x{2029}]+"
OUTER_SPACES = r"^ | $"
# How cl100k and Llama 3 split texts, and how Qwen2 does: they differ in their digits.
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace("{1,3}", "")
# The regular expressions of published models.
PATTERNS = frozenset(
    {
        # GPT-2
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        LLAMA3_SPLIT,
        QWEN2_SPLIT,
        # T5
        " {2,}",
        # regard's own exports
        EACH_CHARACTER,
        BLANKS,
        OUTER_SPACES,
    }
)


def check_tokenizer(content: bytes) -> dict[str, Any]:
    """Return the content of tokenizer.json; ModelError if it has a part that is not accepted."""
    try:
        settings = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"it is not valid JSON: {_shown(error)}") from error
    if not isinstance(settings, dict) or not isinstance(settings.get("model"), dict):
        raise ModelError("it is no tokenizer of the tokenizers library: the model is missing")
    if unknown := sorted(settings.keys() - KEYS):
        raise ModelError(f"it has the unknown part {_shown(repr(unknown[0]))}")
    kind = settings["model"].get("type")
    if kind not in MODELS:
        raise ModelError(_shown(unknown_name("kind of tokenizer", kind, MODELS)))
    for name, accepted in PARTS.items():
        _check_part(name, settings.get(name), accepted, MAX_DEPTH)
    if not isinstance(settings.get("added_tokens") or [], list):
        raise ModelError("added_tokens must be a list")
    return settings


def _check_part(name: str, part: Any, accepted: tuple[str, ...], depth: int) -> None:
    if part is None:
        return
    if not isinstance(part, dict) or not depth:
        raise ModelError(f"its {name} is damaged")
    kind = part.get("type")
    if kind not in accepted:
        raise ModelError(_shown(unknown_name(name, kind, accepted)))
    if kind == "Sequence":
        lists = [part[key] for key in INNER if isinstance(part.get(key), list)]
        if len(lists) != 1:
            raise ModelError(f"its {name} is damaged: a Sequence without parts")
        for inner in lists[0]:
            _check_part(name, inner, accepted, depth - 1)
    pattern = part.get("pattern")
    if pattern is None:
        return
    if not isinstance(pattern, dict) or pattern.keys() not in ({"String"}, {"Regex"}):
        raise ModelError(f"the pattern of its {name} is damaged")
    if "Regex" in pattern and pattern["Regex"] not in PATTERNS:
        raise ModelError(
            f"its {name} has the regular expression {_shown(repr(pattern['Regex']))}, which is none of a known model, "
            "and an unknown one may run for ever"
        )


def _shown(text: object) -> str:
    text = str(text)
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= MAX_QUOTED_CHARACTERS else text[: MAX_QUOTED_CHARACTERS - 1] + "…"
