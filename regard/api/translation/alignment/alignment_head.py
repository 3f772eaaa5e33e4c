"""The attention heads that align a translation with its source, and the alignment that they give.

D16, H1.

    m target tokens   n source tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from regard.api.results import Alignment, Translation
from regard.api.translation.alignment.word_alignment import make_alignment
from regard.errors import ModelError, UsageError
from regard.evaluation.alignment import word_weights
from regard.evaluation.alignment_heads import AligningHead, mean_weights
from regard.models.layer_names import is_cross_attention
from regard.text.tokenizers.special_tokens import END, SPECIAL_TOKENS
from regard.text.tokenizers.tokenizer import Word

if TYPE_CHECKING:
    from torch import Tensor

Head = tuple[str, int | None]  # a layer and its head; None is the mean of all heads


def chosen_head(info: Mapping[str, Any], config: Any) -> Head:
    """Return the head that config.json names as the best at the step that writes a token.

    Without one, it is the mean of the heads of the last layer.
    """
    chosen = info.get("alignment")
    if chosen is None:
        return config.cross_layers[-1], None
    if not isinstance(chosen, dict) or not isinstance(chosen.get("layer"), str):
        raise ModelError(f"config.json: alignment must name a layer and a head, got {chosen!r}")
    return chosen["layer"], chosen.get("head")


def chosen_heads(info: Mapping[str, Any], config: Any) -> list[AligningHead]:
    """Return the heads whose mean is the alignment; in folders that name a single head, that head."""
    single = AligningHead(*chosen_head(info, config))
    heads = (info.get("alignment") or {}).get("heads")
    if heads is None:
        return [single]
    return [AligningHead(head["layer"], head.get("head"), head.get("shifted", False)) for head in heads]


def weights_of_head(layers: Mapping[str, Tensor], info: Mapping[str, Any], config: Any) -> Tensor:
    """Return the weights (m, n) of the head that aligns best at the step that writes a token."""
    _check_attention(layers, config)
    return _weights(layers, *chosen_head(info, config))


def alignment_weights(
    layers: Mapping[str, Tensor], tokens: Sequence[int], info: Mapping[str, Any], config: Any
) -> Tensor:
    """Return the weights (m, n) of the alignment of these m tokens: the mean of the chosen heads."""
    _check_attention(layers, config)
    heads = chosen_heads(info, config)
    maps = [_weights(layers, layer, head) for layer, head, _ in heads]
    return mean_weights(maps, [head.shifted for head in heads], tokens, config.special_tokens.ends)


def _check_attention(layers: Mapping[str, Tensor], config: Any) -> None:
    if not any(map(is_cross_attention, layers)):
        raise UsageError(f"a model of kind {config.kind!r} has no attention to the source, so it gives no alignment")


def _weights(layers: Mapping[str, Tensor], layer: str, head: int | None) -> Tensor:
    """Return the weights (m, n) of a head; ModelError if config.json names one that does not exist."""
    weights = layers.get(layer)
    if weights is None or not (head is None or (isinstance(head, int) and 0 <= head < len(weights))):
        raise ModelError(f"config.json: the alignment head does not exist: head {head!r} of layer {layer!r}")
    return weights.mean(0) if head is None else weights[head]


def align_translation(translation: Translation, weights: Tensor, level: Literal["word", "piece"]) -> Alignment:
    """Return the alignment of the words or subwords of a translation from the weights (m, n) of its tokens."""
    if level == "piece":
        sides = translation.source_tokens, translation.tokens
    else:
        source = [*translation.source_words, end_word(translation.source_ids)]
        target = [*translation.words, *([end_word(translation.ids)] if translation.finished else [])]
        weights = word_weights(weights, source, target)
        sides = [word.text for word in source], [word.text for word in target]
    return make_alignment(weights, *sides, finished=translation.finished)


def end_word(tokens: Sequence[int]) -> Word:
    """Return the last token, END, as a word of its own."""
    return Word(SPECIAL_TOKENS[END], len(tokens) - 1, len(tokens))
