"""Import translation models: their tokenizers, the tokens around a text, and the codes of languages."""

from __future__ import annotations

from typing import Any

from regard.errors import ModelError, UsageError
from regard.interop.families import marian
from regard.interop.families.family import Plan
from regard.interop.files.hub_folder import HubFolder
from regard.interop.files.settings_file import SettingsFile
from regard.interop.marian_tokenizers import read_tokenizers
from regard.interop.translator_tokens import TranslatorTokens, read_tokens
from regard.models.folder.config_file import shortened
from regard.text.tokenizers.tokenizer import Tokenizer

FAMILIES = ("marian",)


def read_translator(
    folder: HubFolder, settings: SettingsFile, *, positions: str
) -> tuple[Plan, tuple[Tokenizer, Tokenizer], dict[str, Any]]:
    """Return the plan of a translation model, its tokenizers, and its entries of config.json."""
    source, target, names = read_tokenizers(folder)
    generation = folder.settings("generation_config.json", required=False)
    size = min(source.size, target.size)
    tokens = read_tokens(settings, generation, unknown=target.token(names["unk_token"]), size=size)
    if tokens.ends[0] != target.token(names["eos_token"]) or source.token(names["eos_token"]) != tokens.ends[0]:
        raise ModelError(f"{settings.path}: eos_token_id is not the token {names['eos_token']!r} of the vocabulary")
    for tokenizer in (source, target):
        if tokenizer.token(names["pad_token"]) not in (None, tokens.pad):
            raise ModelError(f"{settings.path}: pad_token_id is not the token {names['pad_token']!r} of the vocabulary")
    plan = make_plan(settings, tokens, positions=positions)
    info: dict[str, Any] = {
        "max_tokens": max(3, (plan.context or 512) - 1),
        "frame": {"source": {"before": [], "after": [tokens.ends[0]]}, "target": {"before": []}},
        "search": tokens.search,
    }
    if len(source.codes) > 1:
        info["language_codes"] = {"tokens": source.codes, "source": None, "target": "before"}
    return plan, (source, target), info


def make_plan(settings: SettingsFile, tokens: TranslatorTokens, *, positions: str) -> Plan:
    """Return the plan of the family."""
    if positions not in marian.POSITIONS:
        raise UsageError(f"positions must be one of {', '.join(marian.POSITIONS)}, got {positions!r}")
    try:
        return marian.make_plan(settings, tokens, positions=positions)
    except UsageError as error:  # a setting out of range
        raise ModelError(f"{settings.path}: {shortened(error)}") from error
