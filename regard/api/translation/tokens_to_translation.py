"""From the tokens that a model wrote to a translation: copied words and placeholders become text again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.api.results import Translation
from regard.api.translation.alignment.alignment_head import weights_of_head
from regard.api.translation.copy_unknown_words import fit_copies, most_attended_words
from regard.api.translation.placeholder_reader import restore_all
from regard.api.translation.source_text import Source
from regard.api.translation.tokens_and_words import SentenceTokens
from regard.text.tokenizers.placeholder_tokens import ANY_PLACEHOLDER

if TYPE_CHECKING:
    from regard.api.translator import Translator


def make_translation(
    translator: Translator, source: Source, ids: list[int], score: float, finished: bool
) -> Translation:
    """Make a translation of tokens; each UNKNOWN becomes its most attended source word, placeholders their text."""
    tokenizer, special = translator.target_tokenizer, translator.special
    written = [token for token in ids if token not in special.ends]
    result = Translation(
        source=source.text,
        text=tokenizer.decode(written),
        source_ids=source.ids,
        ids=ids,
        score=score,
        finished=finished,
        translator=translator,
        pieces=(pieces := SentenceTokens(translator, source, ids)),
    )
    unknown = special.unknown
    if unknown in written and result.attention.cross is not None:
        weights = weights_of_head(result.attention.layers, translator.info, translator.model.config)
        copies = most_attended_words(weights, source.ids, source.units, ids, unknown)
        pieces.copies = fit_copies(copies, ids, result.tokens, unknown)
        result.text = tokenizer.decode(written, unknown=pieces.copies)
    if translator.reader.placeholders.symbols and (source.carried or ANY_PLACEHOLDER.search(result.text)):
        result.text = restore_all(result.text, source.carried)
    return result
