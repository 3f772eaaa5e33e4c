"""Import translation models: their tokenizers, the tokens around a text, and the codes of languages."""

from __future__ import annotations

import re
from typing import Any

from regard.errors import ModelError, UsageError
from regard.interop.families import bart, marian, t5
from regard.interop.families.family import Plan
from regard.interop.files.hub_folder import HubFolder
from regard.interop.files.settings_file import SettingsFile
from regard.interop.marian_tokenizers import read_tokenizers
from regard.interop.translator_tokens import TranslatorTokens, read_tokens
from regard.models.folder.config_file import shortened
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer

FAMILIES = ("marian", "m2m_100", "mbart", "t5")
# Of tokens that are languages: NLLB's "fra_Latn", mBART's "fr_XX", M2M100's "__fr__".
CODE = re.compile(r"__([a-z]{2,3})__|([a-z]{2,3}_[A-Z][A-Za-z]{1,3})")


def read_translator(
    folder: HubFolder, settings: SettingsFile, tokenizer: ImportedTokenizer | None, *, positions: str
) -> tuple[Plan, tuple[Tokenizer, Tokenizer], dict[str, Any]]:
    """Return the plan of a translation model, its tokenizers, and its entries of config.json.

    `tokenizer` is that of tokenizer.json; Marian has other files.
    """
    try:
        if tokenizer is None:
            return _read_marian(folder, settings, positions)
        if positions != "hf":
            raise UsageError(f"positions={positions!r} is for Marian models")
        return _read_other(folder, settings, tokenizer)
    except UsageError as error:  # a setting out of range
        raise error if "positions" in str(error) else ModelError(f"{settings.path}: {shortened(error)}") from error


def _read_marian(
    folder: HubFolder, settings: SettingsFile, positions: str
) -> tuple[Plan, tuple[Tokenizer, Tokenizer], dict[str, Any]]:
    if positions not in marian.POSITIONS:
        raise UsageError(f"positions must be one of {', '.join(marian.POSITIONS)}, got {positions!r}")
    source, target, names = read_tokenizers(folder)
    generation = folder.settings("generation_config.json", required=False)
    size = min(source.size, target.size)
    tokens = read_tokens(settings, generation, unknown=target.token(names["unk_token"]), size=size)
    if tokens.ends[0] != target.token(names["eos_token"]) or source.token(names["eos_token"]) != tokens.ends[0]:
        raise ModelError(f"{settings.path}: eos_token_id is not the token {names['eos_token']!r} of the vocabulary")
    for tokenizer in (source, target):
        if tokenizer.token(names["pad_token"]) not in (None, tokens.pad):
            raise ModelError(f"{settings.path}: pad_token_id is not the token {names['pad_token']!r} of the vocabulary")
    if tokens.forced_first is not None:
        raise ModelError(f"{settings.path}: forced_bos_token_id is {tokens.forced_first}, which a Marian model has not")
    plan = marian.make_plan(settings, tokens, positions=positions)
    info = make_info(plan, tokens, [], [tokens.ends[0]])
    if len(source.codes) > 1:
        info["language_codes"] = {"tokens": source.codes, "source": None, "target": "before"}
    return plan, (source, target), info


def _read_other(
    folder: HubFolder, settings: SettingsFile, tokenizer: ImportedTokenizer
) -> tuple[Plan, tuple[Tokenizer, Tokenizer], dict[str, Any]]:
    """Read a model of M2M100, NLLB, mBART or T5, with one tokenizer."""
    family = settings.content["model_type"]
    generation = folder.settings("generation_config.json", required=False)
    start = settings.content.get("pad_token_id") if family == "t5" else None
    tokens = read_tokens(settings, generation, unknown=tokenizer.unknown, size=tokenizer.size, start=start)
    end = tokens.ends[0]
    if family == "t5":
        folder.open_weights()
        plan = t5.make_plan(settings, tokens, folder.shapes)
        return plan, (tokenizer, tokenizer), make_info(plan, tokens, [], [end])
    plan = bart.make_plan(settings, tokens)
    info = make_info(plan, tokens, [], [end])
    codes = {
        "".join(match.groups("")): token for name, token in tokenizer.special.items() if (match := CODE.fullmatch(name))
    }
    if not codes:
        raise ModelError(f"{folder.root}: tokenizer.json has no codes of languages among its special tokens")
    by_token = {token: name for name, token in codes.items()}
    places = {"source": "before", "target": "target"}
    defaults: dict[str, str] = {}
    if family == "mbart" and tokens.start in by_token:  # mBART-25: the code ends the source, and begins the target
        places = {"source": "after"}
    elif tokens.forced_first in by_token:
        defaults = {"default_target": by_token[tokens.forced_first]}
    elif tokens.forced_first is not None:
        raise ModelError(f"{settings.path}: forced_bos_token_id is {tokens.forced_first}, which is no language")
    config = folder.settings("tokenizer_config.json", required=False).content
    if config.get("legacy_behaviour"):
        raise ModelError(
            f"{folder.root}: legacy_behaviour of the tokenizer: the order of its first checkpoints is not read"
        )
    if config.get("src_lang") in codes:
        defaults["default_source"] = config["src_lang"]
    info["language_codes"] = {"tokens": codes, "source": None, "target": None, **places, **defaults}
    return plan, (tokenizer, tokenizer), info


def make_info(plan: Plan, tokens: TranslatorTokens, before: list[int], after: list[int]) -> dict[str, Any]:
    """Return the entries of config.json about what stands around a source, and the usual search."""
    return {
        "max_tokens": max(3, (plan.context or 512) - 1),
        "frame": {"source": {"before": before, "after": after}, "target": {"before": []}},
        "search": tokens.search,
    }
