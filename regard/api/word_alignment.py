"""From weights between pieces to weights between words, where words and pieces need not end at the same places.

D16, H1. A share matrix S (pieces, words) says how much of each piece belongs to each word; its rows sum to 1. A source
word gets the weights of its pieces together, a target word the mean of its pieces' rows, so rows still sum to 1.

    m target pieces   n source pieces   M target words   N source words
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from regard.api.results import Alignment
from regard.evaluation.alignment import hard_alignment
from regard.text.tokenizers.tokenizer import Tokenizer, Word


def make_alignment(weights: Tensor, source: Sequence[str], target: Sequence[str], *, finished: bool) -> Alignment:
    """Weights (M, N) with their words; pairs are between words, so the end tokens, which come last, have none."""
    links = hard_alignment(weights[: len(target) - finished, :-1])
    return Alignment(weights.float(), list(source), list(target), sorted(links, key=lambda link: link[::-1]))


def shared_weights(weights: Tensor, source_shares: Tensor, target_shares: Tensor) -> Tensor:
    """(…, m, n) with shares (n, N) and (m, M) -> (…, M, N)."""
    mean = target_shares / target_shares.sum(0).clamp(min=1e-9)
    return mean.T.to(weights) @ weights @ source_shares.to(weights)


def piece_shares(ends: Sequence[int], words: Sequence[str]) -> Tensor:
    """(pieces + 1, words + 1): the share of its characters that a piece has in common with each word.

    `ends` are those of `piece_ends`. The end token is the last piece and the last word.
    """
    limits = list(accumulate(map(len, words), initial=0))
    shares = torch.zeros(len(ends) + 1, len(words) + 1)
    shares[-1, -1] = 1.0
    for i, (start, end) in enumerate(pairwise([0, *ends])):
        # A piece without characters (a space, half a letter) belongs to the character that follows it.
        end = max(end, start + 1)
        common = torch.tensor([max(0, min(end, high) - max(start, low)) for low, high in pairwise(limits)])
        if common.any():
            shares[i, :-1] = common / common.sum()
        else:
            shares[i, -1] = 1.0  # behind the last character
    return shares


def piece_ends(tokenizer: Tokenizer, tokens: Sequence[int], words: Sequence[Word]) -> list[int]:
    """How many characters, spaces left out, the text has up to the end of each token."""
    ends: list[int] = []
    done = 0
    for word in words:
        ends += [done] * (word.start - len(ends))
        length = len("".join(word.text.split()))
        for end in range(word.start + 1, word.end):
            # Bytes that are no whole letter yet read as replacement characters; an unknown letter is one letter.
            begun = tokens[word.start : end]
            text = tokenizer.decode(begun, unknown=["?"] * len(begun)).rstrip("\ufffd")
            ends.append(done + min(len("".join(text.split())), length))
        done += length
        ends.append(done)
    return ends + [done] * (len(tokens) - len(ends))
