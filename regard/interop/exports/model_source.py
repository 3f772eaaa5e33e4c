"""What an export reads: a model folder with its weights in float32, its settings, and its tokenizers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.machine.lazy_torch import torch
from regard.system import replace
from regard.text.tokenizers.characters import CharacterTokenizer
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.pieces import PieceTokenizer
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS, SpecialTokens
from regard.text.tokenizers.subword_file import read_pieces
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer, read_tokenizers


@dataclass(frozen=True)
class ModelSource:
    """A model to export."""

    folder: Path
    model: torch.nn.Module
    info: Mapping[str, Any]  # config.json
    tokenizers: tuple[Tokenizer, Tokenizer]

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def special(self) -> SpecialTokens:
        tokens: SpecialTokens = self.config.special_tokens
        return tokens

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights by name; shared ones once."""
        from regard.models.folder.weights_file import distinct_weights

        return {name: weight.detach() for name, weight in distinct_weights(self.model).items()}

    def around_source(self) -> tuple[list[int], list[int]]:
        """Return the tokens before and after a source text, or a text of an encoder."""
        frame = self.info.get("frame", {}).get("source", {})
        before = [self.special.start] if getattr(self.config, "source_start", False) else []
        return list(frame.get("before", before)), list(frame.get("after", [self.special.end]))

    def before_target(self) -> list[int]:
        """Return the tokens before a target text, or a text of a language model."""
        frame = self.info.get("frame", {}).get("target", {}).get("before")
        if hasattr(self.config, "target_vocabulary"):  # a frame follows the start token
            return [self.special.start, *(frame or [])]
        return [self.special.start] if frame is None else list(frame)


def open_source(folder: str | Path) -> ModelSource:
    """Read a model folder."""
    from regard.models.folder import load_with_config

    folder = Path(folder)
    model, info = load_with_config(folder)
    expected = bool(model.config.vocabularies)  # type: ignore[union-attr]
    return ModelSource(folder, model, info, read_tokenizers(folder, expected=expected))


def vocabulary_of(tokenizer: Tokenizer, size: int) -> list[str]:
    """Return the name of each token, as the tokenizer's own library writes it, for a table of this many rows."""
    if isinstance(tokenizer, SubwordTokenizer):
        names = read_pieces(tokenizer.save()[1])
    elif isinstance(tokenizer, PieceTokenizer):
        names = list(tokenizer.names)
    elif isinstance(tokenizer, ImportedTokenizer):
        names = [tokenizer.name(token) for token in range(tokenizer.size)]
    elif isinstance(tokenizer, CharacterTokenizer):
        count = len(SPECIAL_TOKENS)
        names = [*SPECIAL_TOKENS, *(tokenizer.decode([token]) for token in range(count, tokenizer.size))]
    else:
        raise UsageError(f"a {type(tokenizer).__name__} cannot be exported, because other tools have no such tokenizer")
    names += [""] * (size - len(names))
    return [name or f"<unused{number}>" for number, name in enumerate(names)]


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Write a folder completely or not at all: yield a temporary one, which gets its name at the end."""
    if out.exists():
        raise UsageError(f"{out} already exists: choose another name")
    fresh = out.with_name(f".{out.name}.writing-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        replace(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def new_file(out: Path) -> Iterator[Path]:
    """Write a file completely or not at all: yield a temporary name, and rename the file at the end."""
    if out.exists():
        raise UsageError(f"{out} already exists: choose another name")
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = out.with_name(f".{out.name}.writing-{os.getpid()}")
    try:
        yield fresh
        replace(fresh, out)
    finally:
        fresh.unlink(missing_ok=True)
