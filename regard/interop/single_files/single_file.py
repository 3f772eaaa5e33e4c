"""A model of another library in one file, read as far as its settings go."""

from __future__ import annotations

from typing import NamedTuple

from regard.interop.families.family import Plan, TokenIds
from regard.interop.files.weight_source import WeightSource
from regard.text.tokenizers.imported import ImportedTokenizer


class SingleFile(NamedTuple):
    """What an import needs of a file."""

    family: str
    plan: Plan
    tokens: TokenIds
    tokenizer: ImportedTokenizer
    weights: WeightSource
    chat_template: str
    notes: tuple[str, ...]
