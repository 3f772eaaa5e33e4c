"""Lexical constraints: phrases that a text must hold, kept by a beam that has room for every stage on the way there.

Post and Vilar 2018, "Fast lexically constrained decoding with dynamic beam allocation". Hypotheses that
miss equally many tokens of their phrases make up a bank. The beam takes the best of each bank, then the second best of
each, and so on, so that an unlikely phrase has its chance before it must come. Where just as many tokens are left as
are missing, nothing else may be written.

    B inputs   w width   V vocabulary   P phrases   L longest phrase   D different tokens of the phrases   K candidates
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.searches.search import best
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, pad_batch

Phrase = Sequence[int]
NO_TOKEN = -1


def needed_phrases(phrases: Sequence[Phrase], limit: int) -> list[Phrase]:
    """The phrases without those that stand inside of others; a UsageError where `limit` tokens cannot hold them."""
    for phrase in phrases:
        if not len(phrase) or min(phrase) < len(SPECIAL_TOKENS):
            raise UsageError(f"a constraint must be a list of tokens, none of them a special one, got {phrase!r}")
    kept: list[Phrase] = []
    for phrase in sorted(phrases, key=len, reverse=True):
        if not any(_holds(other, phrase) for other in kept):
            kept.append(phrase)
    if (needed := sum(map(len, kept))) > limit:
        raise UsageError(f"constraints of {needed} tokens do not fit into max_tokens={limit}")
    return kept


def _holds(text: Phrase, phrase: Phrase) -> bool:
    return any(list(text[i : i + len(phrase)]) == list(phrase) for i in range(len(text) - len(phrase) + 1))


class Candidates(NamedTuple):
    """Continuations of the live hypotheses, in the order in which the beam takes them."""

    totals: Tensor  # (B, K) scores with the new token; -inf where there is none
    parents: Tensor  # (B, K) slots
    tokens: Tensor  # (B, K)


class Progress:
    """How many tokens of each phrase the live hypotheses hold, and what may follow them.

    Of a phrase that is not whole yet, those count that the text ends with.
    """

    def __init__(self, phrases: Sequence[Sequence[Phrase]], width: int, device: torch.device) -> None:
        batch, most = len(phrases), max(map(len, phrases))
        each = [phrase for few in phrases for phrase in (*few, *[()] * (most - len(few)))]
        self.phrases = pad_batch(each, pad_id=NO_TOKEN).view(batch, most, -1).to(device)  # (B, P, L)
        self.lengths = (self.phrases != NO_TOKEN).sum(2)  # (B, P)
        wanted = [sorted({token for phrase in few for token in phrase}) for few in phrases]
        self.wanted = pad_batch(wanted, pad_id=PAD).to(device)  # (B, D)
        self.banks = 1 + max(sum(map(len, few)) for few in phrases)
        self.tails = self.phrases.new_full((batch, width, self.phrases.shape[2]), PAD)  # (B, w, L), how each text ends
        self.held = self.phrases.new_zeros(batch, width, most)  # (B, w, P)

    def candidates(self, scores: Tensor, logps: Tensor, own: Tensor, left: Tensor) -> Candidates:
        """The 2w continuations to take first, of hypotheses with these scores (B, w).

        logps and own (B, w, V) are those of Run.choose. After the next token, `left` (B,) more can follow.
        """
        width = scores.shape[1]
        wanted = self.wanted[:, None].expand(-1, width, -1)  # (B, w, D)
        missing = self._missing(self._after(wanted))  # (B, w, D)
        gains = missing < self._missing(self.held)[..., None]
        totals = scores[..., None] + self._allowed(logps, own, wanted, missing, gains, left)  # (B, w, V)
        # Tokens of no phrase lead to one bank, which takes no more than 2w of them; to others lead all that are wanted.
        values, tokens = best(totals, min(2 * width + wanted.shape[2], totals.shape[2]))  # (B, w, ·)
        twice = (wanted[..., None] == tokens[:, :, None]).any(3)  # (B, w, D)
        values = torch.cat([values, totals.gather(2, wanted).masked_fill(twice, -math.inf)], dim=2)
        tokens = torch.cat([tokens, wanted], dim=2)
        banks = self._missing(self._after(tokens))
        parents = torch.arange(width, device=tokens.device)[:, None].expand_as(tokens)
        order = self._in_turns(values.flatten(1), banks.flatten(1))[:, : 2 * width]  # (B, K)
        return Candidates(*(x.flatten(1).gather(1, order) for x in (values, parents, tokens)))

    def advance(self, parents: Tensor, tokens: Tensor) -> None:
        """From now on slot i holds what was in slot parents[:, i], and tokens[:, i] after it; both (B, w)."""
        self.tails = self.tails.gather(1, parents[..., None].expand_as(self.tails))
        self.held = self.held.gather(1, parents[..., None].expand_as(self.held))
        self.held = self._after(tokens[..., None])[:, :, 0]
        self.tails = torch.cat([self.tails[:, :, 1:], tokens[..., None]], dim=2)

    def take(self, inputs: Tensor) -> None:
        """Go on with these inputs only."""
        for name in ("phrases", "lengths", "wanted", "tails", "held"):
            setattr(self, name, getattr(self, name)[inputs])

    def _after(self, tokens: Tensor) -> Tensor:
        """What is held of each phrase, (B, w, K, P), once a slot's text goes on with these tokens (B, w, K)."""
        tails = self.tails[:, :, None, 1:].expand(-1, -1, tokens.shape[2], -1)
        tails = torch.cat([tails, tokens[..., None]], dim=3)[:, :, :, None]  # (B, w, K, 1, L)
        phrases, lengths = self.phrases[:, None, None], self.lengths[:, None, None]  # (B, 1, 1, P, L), (B, 1, 1, P)
        held = torch.zeros_like(lengths)
        for length in range(1, phrases.shape[4] + 1):
            ends = (tails[..., -length:] == phrases[..., :length]).all(4)  # never with padding, which is no token
            held = torch.where(ends, length, held)
        before = self.held[:, :, None]  # (B, w, 1, P)
        return torch.where(before == lengths, before, held)

    def _missing(self, held: Tensor) -> Tensor:
        """How many tokens are enough to complete all phrases, (B, …), of which this is held, (B, …, P).

        The longest one that the text ends with can go on, and the others come whole.
        """
        lengths = self.lengths.view(len(held), *[1] * (held.dim() - 2), -1)
        unfinished = held < lengths
        return (lengths * unfinished).sum(-1) - (held * unfinished).amax(-1)

    def _allowed(
        self, logps: Tensor, own: Tensor, wanted: Tensor, missing: Tensor, gains: Tensor, left: Tensor
    ) -> Tensor:
        """The log-probabilities (B, w, V) with -inf for END before its time and for what leaves too few tokens."""
        left = left[:, None]
        whole = self._missing(self.held * (self.held == self.lengths[:, None]))  # (B, w): after any other token
        given = logps.gather(2, wanted)
        # Whatever the rules say, a phrase may go on; the model's own numbers have no bars but for special tokens.
        given = torch.where(gains & (given == -math.inf), own.gather(2, wanted), given)
        given = given.masked_fill(missing > left[..., None], -math.inf)
        logps = logps.masked_fill((whole > left)[..., None], -math.inf).scatter(2, wanted, given)
        logps[:, :, END] = logps[:, :, END].masked_fill(whole > 0, -math.inf)
        return logps

    def _in_turns(self, totals: Tensor, banks: Tensor) -> Tensor:
        """The order (B, K) of candidates with these totals (B, K): the best of each bank, the second of each, …

        In each turn those that miss the fewest tokens come first.
        """
        order = totals.argsort(dim=1, descending=True, stable=True)
        banks = banks.gather(1, order)
        turn = F.one_hot(banks, self.banks).cumsum(1).gather(2, banks[..., None])[..., 0]  # (B, K), from 1
        place = turn * self.banks + banks
        place = place.masked_fill(totals.gather(1, order) == -math.inf, torch.iinfo(place.dtype).max)
        return order.gather(1, place.argsort(dim=1, stable=True))
