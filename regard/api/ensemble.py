"""Combine several translators into one that decodes with the ensemble of their models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from regard.api.translator import Translator
from regard.decoding.ensemble import Ensemble
from regard.errors import UsageError


def join_translators(
    translators: Sequence[Translator], *, mean: Literal["probabilities", "logs"] = "probabilities"
) -> Translator:
    """Return a translator for the ensemble of their models; `mean` as in Ensemble.

    All must have the same tokenizers. The first translator provides the contents of config.json: the alignment head,
    and the tokens that training never saw.
    """
    if not translators:
        raise UsageError("an ensemble needs at least one translator")
    first = translators[0]
    for side in ("source_tokenizer", "target_tokenizer"):
        for number, other in enumerate(translators):
            if getattr(other, side).save() != getattr(first, side).save():
                raise UsageError(
                    f"the translators of an ensemble must have the same tokenizers, but the {side.replace('_', ' ')} "
                    f"of number {number + 1} differs from that of the first: train them with one tokenizer"
                )
    ensemble = Ensemble([translator.model for translator in translators], mean=mean)
    pack = all(translator.packs for translator in translators)
    return Translator(ensemble, first.source_tokenizer, first.target_tokenizer, info=first.info, pack=pack)
