"""The attention between the words of a source and of a translation of it, by forced decoding.

H1.

    m target tokens   n source tokens   M target words   N source words
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from regard.api.results import Alignment
from regard.api.translation.alignment.alignment_head import alignment_weights, end_word
from regard.api.translation.alignment.word_alignment import make_alignment, shared_weights, token_ends, token_shares
from regard.api.translation.source_text import words_of
from regard.evaluation.alignment import word_weights
from regard.evaluation.alignment_heads import reading_steps
from regard.models.layer_names import is_cross_attention
from regard.text.placeholders.placeholders import restore
from regard.text.tokenizers.special_tokens import END, SPECIAL_TOKENS

if TYPE_CHECKING:
    from torch import Tensor

    from regard.api.translator import Translator

Splitter = Callable[[str], Sequence[str]]  # splits a text into words


class PairAttention:
    """A source and a translation of it, with the attention weights of the model that decodes this translation.

    Texts are split into words at spaces, or by the function `words`.
    """

    def __init__(self, translator: Translator, source: str, target: str, words: Splitter | None) -> None:
        from regard.decoding.forced import forced_attention

        self.translator = translator
        self.source = translator.read(source)
        before, end = translator.frame.before_target(), translator.special.end
        self.ids = [*before, *translator.encode_target(target, self.source), end]
        self.layers = forced_attention(translator.decoding_model, self.source.ids, self.ids)
        self.merge, self.source_words, self.target_words = self._merge_words(target, words)

    def alignment(self) -> Alignment:
        """Return the alignment by the heads that align best."""
        tokens = alignment_weights(self.layers, self.ids, self.translator.info, self.translator.model.config)
        return make_alignment(self.merge(tokens), self.source_words, self.target_words, finished=True)

    def maps(self, *, shifted: bool) -> dict[str, Tensor]:
        """Return the weights between words by layer (heads, M, N); `shifted` as in `Translator.word_attention`."""
        ends = self.translator.special.ends
        rows = reading_steps(self.ids, ends) if shifted else range(len(self.ids))
        cross = {name: weights for name, weights in self.layers.items() if is_cross_attention(name)}
        return {name: self.merge(weights[:, list(rows)]) for name, weights in cross.items()}

    def _merge_words(
        self, target: str, words: Splitter | None
    ) -> tuple[Callable[[Tensor], Tensor], list[str], list[str]]:
        """Return a function from weights of tokens (…, m, n) to those of words (…, M, N), and the words of both sides.

        The end tokens are the last words.
        """
        translator, source, ids = self.translator, self.source, self.ids
        spans = [
            word._replace(text=restore(word.text, source.carried))
            for word in words_of(translator.target_tokenizer, target, ids[:-1])
        ]
        if words is None:
            ours, theirs = [*source.words, end_word(source.ids)], [*spans, end_word(ids)]
            names = [word.text for word in ours], [word.text for word in theirs]
            return partial(word_weights, source=ours, target=theirs), *names
        source_words, target_words = (list(words(unicodedata.normalize("NFC", text))) for text in (source.text, target))
        source_ends = token_ends(translator.source_tokenizer, source.ids[:-1], source.words)
        target_ends = token_ends(translator.target_tokenizer, ids[:-1], spans)
        merge = partial(
            shared_weights,
            source_shares=token_shares(source_ends, source_words),
            target_shares=token_shares(target_ends, target_words),
        )
        return merge, [*source_words, SPECIAL_TOKENS[END]], [*target_words, SPECIAL_TOKENS[END]]
