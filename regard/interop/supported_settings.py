"""Which settings of a model another tool computes: all others must have their default, so that none is ignored."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from regard.models.config import Config

# Settings that act in training only.
TRAINING = ("dropout", "attention_dropout", "hidden_dropout")
TOKENS = ("pad_id", "unknown_id", "start_id", "end_ids", "barred_ids", "tokenizer_size")
SIZES = (
    *("layers", "decoder_layers", "dim", "heads", "hidden", "vocabulary", "source_vocabulary", "target_vocabulary"),
    *("max_length",),  # of learned positions; without them it has no effect
)


def unsupported(config: Config, *, free: Collection[str], values: Mapping[str, Collection[Any]]) -> str | None:
    """Return a setting that is neither free, nor one of its values, nor its default, as `name = value`."""
    known = {*TRAINING, *TOKENS, *SIZES, *free}
    for field in dataclasses.fields(config):
        if field.name in known:
            continue
        value = getattr(config, field.name)
        allowed = values.get(field.name, (field.default,))
        if value not in allowed:
            return f"{field.name} = {value!r}"
    return None
