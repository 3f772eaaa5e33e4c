"""Which models run in the browser (web/src/engine), and the files of their folders that it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

KINDS = ("transformer", "transformer-lm", "encoder", "classifier", "rnn-attention", "rnn-seq2seq", "rnn-lm")
TOKENIZER_FILES = ("tokenizer.model", "characters.json", "labels.json")
SIDES = ("", "source.", "target.")
# The values that the browser knows of the settings of blocks, and of recurrent models; of others it knows all.
BLOCKS: dict[str, tuple[Any, ...]] = {
    "position": ("none", "sinusoidal", "learned", "rotary", "alibi"),
    "score": ("scaled", "dot"),
    "attention": ("softmax",),
    "decoder_self": ("attention",),
    "rope_scaling": ("none", "linear"),
    "source_start": (False,),
}
RECURRENT: dict[str, tuple[Any, ...]] = {
    "attention": ("none", "dot", "scaled", "bilinear", "additive", "concat"),
}


def folder_files(folder: Path) -> list[str]:
    """Return the names of the files that the browser reads."""
    names = ["config.json", "model.safetensors", *(side + name for name in TOKENIZER_FILES for side in SIDES)]
    return [name for name in names if (folder / name).is_file()]


def why_not(folder: Path, info: dict[str, Any]) -> str | None:
    """Return why a model with this config.json does not run in the browser; None if it does."""
    kind, settings = info.get("kind"), info.get("model") or {}
    if kind not in KINDS:
        return f"models of kind {kind!r} do not run in the browser; {', '.join(KINDS)} do"
    if info.get("special_tokens", {}).get("<pad>", 0) != 0 or "frame" in info or "language_codes" in info:
        return "it is an imported model with special tokens of its own"
    if not any(name.endswith(TOKENIZER_FILES) for name in folder_files(folder)):
        return f"it has none of the tokenizers that the browser reads ({', '.join(TOKENIZER_FILES)})"
    for name, known in (BLOCKS if "dim" in settings else RECURRENT).items():
        if name in settings and settings[name] not in known:
            values = ", ".join(map(repr, known))
            return f"the browser does not know its setting {name} = {settings[name]!r}, only {values}"
    return None
