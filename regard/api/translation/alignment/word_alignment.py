"""Convert attention weights between tokens to weights between words, whose boundaries may differ from those of tokens.

D16, H1. A matrix of shares S (tokens, words) says how much of each token belongs to each word; its rows sum to 1. The
weight of a source word is the sum over its tokens, that of a target word the mean over its tokens' rows, so rows still
sum to 1.

    m target tokens   n source tokens   M target words   N source words
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from regard.api.results import Alignment
from regard.evaluation.alignment import mutual_alignment
from regard.machine.lazy_torch import torch
from regard.text.tokenizers.tokenizer import Tokenizer, Word

if TYPE_CHECKING:
    from torch import Tensor


def make_alignment(weights: Tensor, source: Sequence[str], target: Sequence[str], *, finished: bool) -> Alignment:
    """Make an alignment of weights (M, N) and their words; the end tokens, which come last, have no pairs."""
    links = mutual_alignment(weights[: len(target) - finished, :-1].float())
    return Alignment(weights.float(), list(source), list(target), sorted(links, key=lambda link: link[::-1]))


def shared_weights(weights: Tensor, source_shares: Tensor, target_shares: Tensor) -> Tensor:
    """Return word weights (…, M, N) from token weights (…, m, n) with shares (n, N) and (m, M)."""
    mean = target_shares / target_shares.sum(0).clamp(min=1e-9)
    return mean.T.to(weights) @ weights @ source_shares.to(weights)


def token_shares(ends: Sequence[int], words: Sequence[str]) -> Tensor:
    """Return (tokens + 1, words + 1): the share of each token's characters that belongs to each word.

    `ends` are those of `token_ends`. The end token is the last token and the last word.
    """
    limits = list(accumulate(map(len, words), initial=0))
    shares = torch.zeros(len(ends) + 1, len(words) + 1)
    shares[-1, -1] = 1.0
    for i, (start, end) in enumerate(pairwise([0, *ends])):
        # A token without characters (a space, half a letter) belongs to the character that follows it.
        end = max(end, start + 1)
        common = torch.tensor([max(0, min(end, high) - max(start, low)) for low, high in pairwise(limits)])
        if common.any():
            shares[i, :-1] = common / common.sum()
        else:
            shares[i, -1] = 1.0  # after the last character
    return shares


def token_ends(tokenizer: Tokenizer, tokens: Sequence[int], words: Sequence[Word]) -> list[int]:
    """Return the number of characters, without spaces, up to the end of each token."""
    ends: list[int] = []
    done = 0
    for word in words:
        ends += [done] * (word.start - len(ends))
        length = len("".join(word.text.split()))
        for end in range(word.start + 1, word.end):
            # Incomplete letters in bytes decode to replacement characters; an unknown letter is one letter.
            beginning = tokens[word.start : end]
            text = tokenizer.decode(beginning, unknown=["?"] * len(beginning)).rstrip("\ufffd")
            ends.append(done + min(len("".join(text.split())), length))
        done += length
        ends.append(done)
    return ends + [done] * (len(tokens) - len(ends))
