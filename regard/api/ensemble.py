"""Several translators as one, that of the ensemble of their models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from regard.api.translator import Translator
from regard.decoding.ensemble import Ensemble
from regard.errors import UsageError


def join_translators(
    translators: Sequence[Translator], *, mean: Literal["probabilities", "logs"] = "probabilities"
) -> Translator:
    """A translator that writes what all of these would agree on; `mean` as in Ensemble.

    All must read and write the same tokens. What config.json says is taken from the first: how it aligns, and what was
    never met in training.
    """
    if not translators:
        raise UsageError("an ensemble needs at least one translator")
    first = translators[0]
    for side in ("source_tokenizer", "target_tokenizer"):
        for number, other in enumerate(translators):
            if getattr(other, side).save() != getattr(first, side).save():
                raise UsageError(
                    f"the translators of an ensemble must have the same tokenizers, and the {side.replace('_', ' ')} "
                    f"of number {number + 1} is another than that of the first: train them with one tokenizer"
                )
    ensemble = Ensemble([one.model for one in translators], mean=mean)
    pack = all(one.packs for one in translators)
    return Translator(ensemble, first.source_tokenizer, first.target_tokenizer, info=first.info, pack=pack)
