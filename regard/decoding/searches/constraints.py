"""Lexical constraints: phrases that a text must contain, with a beam that has room for every stage on the way there.

Post and Vilar 2018, "Fast lexically constrained decoding with dynamic beam allocation". Hypotheses that lack equally
many tokens of their phrases form a bank. The beam takes the best of each bank, then the second best of each, and so on,
so that an unlikely phrase has a chance before it becomes urgent. When only as many tokens remain as are missing,
nothing else may be written.

    B inputs   w width   V vocabulary   P phrases   L longest phrase   D distinct tokens of the phrases   K candidates
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from regard.decoding.searches.search import stable_topk
from regard.errors import UsageError
from regard.machine.lazy_torch import torch
from regard.text.tokenizers.special_tokens import DEFAULT, SPECIAL_TOKENS, SpecialTokens, pad_batch

if TYPE_CHECKING:
    from torch import Tensor

Phrase = Sequence[int]
NO_TOKEN = -1


def needed_phrases(phrases: Sequence[Phrase], limit: int, special: SpecialTokens = DEFAULT) -> list[Phrase]:
    """Return the phrases that no other phrase contains; UsageError if they do not fit into `limit` tokens."""
    for phrase in phrases:
        reserved = range(len(SPECIAL_TOKENS)) if special == DEFAULT else (*special.barred, *special.ends)
        if not len(phrase) or any(token in reserved for token in phrase):
            raise UsageError(f"a constraint must be a list of tokens, none of them a special one, got {phrase!r}")
    needed: list[Phrase] = []
    for phrase in sorted(phrases, key=len, reverse=True):
        if not any(_contains(longer, phrase) for longer in needed):
            needed.append(phrase)
    if (tokens := sum(map(len, needed))) > limit:
        raise UsageError(f"constraints of {tokens} tokens do not fit into max_tokens={limit}")
    return needed


def _contains(text: Phrase, phrase: Phrase) -> bool:
    return any(list(text[i : i + len(phrase)]) == list(phrase) for i in range(len(text) - len(phrase) + 1))


class Candidates(NamedTuple):
    """Continuations of the live hypotheses, in the order in which the beam takes them."""

    totals: Tensor  # (B, K) scores with the new token; -inf where there is no candidate
    parents: Tensor  # (B, K) slots
    tokens: Tensor  # (B, K)


class PhraseProgress:
    """How many tokens of each phrase the live hypotheses contain, and what may follow them.

    Of an incomplete phrase, those first tokens count that the text ends with.
    """

    def __init__(
        self,
        phrases: Sequence[Sequence[Phrase]],
        width: int,
        device: torch.device,
        special: SpecialTokens = DEFAULT,
    ) -> None:
        batch, most = len(phrases), max(map(len, phrases))
        self.special = special
        padded = [phrase for several in phrases for phrase in (*several, *[()] * (most - len(several)))]
        self.phrases = pad_batch(padded, pad_id=NO_TOKEN).view(batch, most, -1).to(device)  # (B, P, L)
        self.lengths = (self.phrases != NO_TOKEN).sum(2)  # (B, P)
        wanted = [sorted({token for phrase in several for token in phrase}) for several in phrases]
        self.wanted = pad_batch(wanted, pad_id=special.pad).to(device)  # (B, D)
        self.banks = 1 + max(sum(map(len, several)) for several in phrases)
        self.tails = self.phrases.new_full((batch, width, self.phrases.shape[2]), special.pad)  # (B, w, L)
        self.covered = self.phrases.new_zeros(batch, width, most)  # (B, w, P) tokens of each phrase

    def candidates(self, scores: Tensor, logps: Tensor, model_logps: Tensor, left: Tensor) -> Candidates:
        """Return the first 2w continuations to take, of hypotheses with these scores (B, w).

        logps and model_logps (B, w, V) are those of Run.choose. After the next token, `left` (B,) more may follow.
        """
        width = scores.shape[1]
        wanted = self.wanted[:, None].expand(-1, width, -1)  # (B, w, D)
        missing = self._missing(self._after(wanted))  # (B, w, D)
        helps = missing < self._missing(self.covered)[..., None]
        totals = scores[..., None] + self._allowed(logps, model_logps, wanted, missing, helps, left)  # (B, w, V)
        # Tokens of no phrase all lead to one bank, which takes at most 2w of them; the wanted tokens lead to others.
        values, tokens = stable_topk(totals, min(2 * width + wanted.shape[2], totals.shape[2]))  # (B, w, ·)
        duplicate = (wanted[..., None] == tokens[:, :, None]).any(3)  # (B, w, D)
        values = torch.cat([values, totals.gather(2, wanted).masked_fill(duplicate, -math.inf)], dim=2)
        tokens = torch.cat([tokens, wanted], dim=2)
        banks = self._missing(self._after(tokens))
        parents = torch.arange(width, device=tokens.device)[:, None].expand_as(tokens)
        order = self._round_robin(values.flatten(1), banks.flatten(1))[:, : 2 * width]  # (B, K)
        return Candidates(*(x.flatten(1).gather(1, order) for x in (values, parents, tokens)))

    def advance(self, parents: Tensor, tokens: Tensor) -> None:
        """Let slot i continue what was in slot parents[:, i] with tokens[:, i]; both (B, w)."""
        self.tails = self.tails.gather(1, parents[..., None].expand_as(self.tails))
        self.covered = self.covered.gather(1, parents[..., None].expand_as(self.covered))
        self.covered = self._after(tokens[..., None])[:, :, 0]
        self.tails = torch.cat([self.tails[:, :, 1:], tokens[..., None]], dim=2)

    def select_inputs(self, inputs: Tensor) -> None:
        """Continue with these inputs only."""
        for name in ("phrases", "lengths", "wanted", "tails", "covered"):
            setattr(self, name, getattr(self, name)[inputs])

    def _after(self, tokens: Tensor) -> Tensor:
        """Return what is covered of each phrase, (B, w, K, P), after a slot's text continues with tokens (B, w, K)."""
        tails = self.tails[:, :, None, 1:].expand(-1, -1, tokens.shape[2], -1)
        tails = torch.cat([tails, tokens[..., None]], dim=3)[:, :, :, None]  # (B, w, K, 1, L)
        phrases, lengths = self.phrases[:, None, None], self.lengths[:, None, None]  # (B, 1, 1, P, L), (B, 1, 1, P)
        covered = torch.zeros_like(lengths)
        for length in range(1, phrases.shape[4] + 1):
            ends = (tails[..., -length:] == phrases[..., :length]).all(4)  # never with padding, which is no token
            covered = torch.where(ends, length, covered)
        before = self.covered[:, :, None]  # (B, w, 1, P)
        return torch.where(before == lengths, before, covered)

    def _missing(self, covered: Tensor) -> Tensor:
        """Return how many tokens complete all phrases, (B, …), of which this much is covered, (B, …, P).

        The phrase of which the text ends with the most tokens can continue; the others are written as a whole.
        """
        lengths = self.lengths.view(len(covered), *[1] * (covered.dim() - 2), -1)
        unfinished = covered < lengths
        return (lengths * unfinished).sum(-1) - (covered * unfinished).amax(-1)

    def _allowed(
        self, logps: Tensor, model_logps: Tensor, wanted: Tensor, missing: Tensor, helps: Tensor, left: Tensor
    ) -> Tensor:
        """Bar END before the phrases are complete, and tokens that leave too few; return (B, w, V)."""
        left = left[:, None]
        missing_otherwise = self._missing(self.covered * (self.covered == self.lengths[:, None]))  # (B, w)
        wanted_logps = logps.gather(2, wanted)
        # A phrase may continue whatever the rules say; model_logps bars only special tokens.
        wanted_logps = torch.where(helps & (wanted_logps == -math.inf), model_logps.gather(2, wanted), wanted_logps)
        wanted_logps = wanted_logps.masked_fill(missing > left[..., None], -math.inf)
        logps = logps.masked_fill((missing_otherwise > left)[..., None], -math.inf).scatter(2, wanted, wanted_logps)
        for end in self.special.ends:
            logps[:, :, end] = logps[:, :, end].masked_fill(missing_otherwise > 0, -math.inf)
        return logps

    def _round_robin(self, totals: Tensor, banks: Tensor) -> Tensor:
        """Return the order (B, K) of candidates with these totals (B, K): the best of each bank, the second best, …

        Within a round, those that lack the fewest tokens come first.
        """
        order = totals.argsort(dim=1, descending=True, stable=True)
        banks = banks.gather(1, order)
        one_hot = torch.nn.functional.one_hot(banks, self.banks)  # (B, K, banks)
        rounds = one_hot.cumsum(1).gather(2, banks[..., None])[..., 0]  # (B, K), from 1
        rank = rounds * self.banks + banks
        rank = rank.masked_fill(totals.gather(1, order) == -math.inf, torch.iinfo(rank.dtype).max)
        return order.gather(1, rank.argsort(dim=1, stable=True))
