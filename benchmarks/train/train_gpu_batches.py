"""What the contenders of train_gpu.py are trained on.

B batch   n source tokens   m target tokens   T tokens of a window
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.train.train_contenders import SPECIAL, Setting
from regard.text.batches.batch import Batch
from regard.text.files.corpus import Corpus, make_corpus, read_parallel
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import Tokenizer

PAIRS, LONGEST = 29_000, 48  # of Multi30k; tokens of its longest English sentence
SPREAD, APART = 0.32, 0.18  # of the logarithms: of a sentence's length, and of the target's over the source's
STATES, FOLLOWERS = 256, 4  # of the chain that GPT-2 is timed on


class InMemory:
    """Batches that lie on the device, the same in each epoch."""

    one_shape = True

    def __init__(self, batches: list[Batch]) -> None:
        self.all = batches

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        return iter(self.all)

    def location(self, sample: int, epoch: int) -> str:
        return f"row {sample}"


def chain_batches(setting: Setting, device: str, *, fixed: bool) -> list[Batch]:
    """Windows from a chain in which each of some tokens has few that may follow it: something to learn."""
    draw = torch.Generator().manual_seed(0)
    rows = setting.batch_tokens // setting.length
    follow = torch.randint(STATES, (STATES, FOLLOWERS), generator=draw)
    names = SPECIAL + torch.randperm(setting.vocabulary - SPECIAL, generator=draw)[:STATES]
    choices = torch.randint(FOLLOWERS, (setting.length, setting.batches * rows), generator=draw)
    states = [torch.randint(STATES, (setting.batches * rows,), generator=draw)]
    for choice in choices:
        states.append(follow[states[-1], choice])
    return windows(names[torch.stack(states, dim=1)].to(device), rows, fixed=fixed)


def smooth_batches(setting: Setting, device: str, *, count: int, fixed: bool) -> list[Batch]:
    """So many windows, none seen twice, from which a model learns a little at every step: for curves of losses.

    Words are as frequent as in a language (Zipf 1935: the k-th a k-th as often as the first), and every second one is
    the one that is known to follow the word before it. From windows that are seen again, or where all words are equally
    frequent, a model learns much within few steps, and rounding decides in which.
    """
    draw = torch.Generator().manual_seed(1)
    rows, words = setting.batch_tokens // setting.length, setting.vocabulary - SPECIAL
    up_to = (1 / torch.arange(1, words + 1, dtype=torch.float64)).cumsum(0)

    def drawn_words(*shape: int) -> Tensor:
        where = torch.rand(shape, generator=draw, dtype=torch.float64) * up_to[-1]
        return torch.searchsorted(up_to, where).clamp(max=words - 1)

    follow = drawn_words(words)
    states = list(drawn_words(setting.length + 1, count * rows))
    for i, follows in enumerate(torch.rand(setting.length, count * rows, generator=draw) < 0.5, start=1):
        states[i] = torch.where(follows, follow[states[i - 1]], states[i])
    names = SPECIAL + torch.randperm(words, generator=draw)
    return windows(names[torch.stack(states, dim=1)].to(device), rows, fixed=fixed)


def windows(tokens: Tensor, rows: int, *, fixed: bool) -> list[Batch]:
    """Tokens (N, T + 1), so many rows in a batch, in which each token is to be followed by the next."""
    return [
        Batch(
            list(range(rows)),
            None,
            part[:, :-1].contiguous(),
            part[:, 1:].contiguous(),
            part[:, 1:].numel(),
            fixed=fixed,
        )
        for part in tokens.split(rows)
    ]


def full_batches(setting: Setting, device: str, *, fixed: bool) -> list[Batch]:
    """Random sentences, both sides of one length."""
    draw, rows = torch.Generator().manual_seed(0), setting.batch_tokens // setting.length
    batches = []
    for _ in range(setting.batches):
        source, inputs, labels = torch.randint(
            SPECIAL, setting.vocabulary, (3, rows, setting.length), generator=draw
        ).to(device)
        batches.append(Batch(list(range(rows)), source, inputs, labels, labels.numel(), fixed=fixed))
    return batches


def sentences(setting: Setting, data: Path | None) -> tuple[Corpus, Tokenizer]:
    """Multi30k, English and German; without its folder, sentences as long as those are, of random tokens."""
    if data is not None:
        corpus = read_parallel(*([str(data / "tok" / f"train.lc.norm.tok.{side}.gz")] for side in ("en", "de")))
        texts = [*corpus.source, *(corpus.target or ())]
        return corpus, train_subwords(texts, size=setting.vocabulary, kind="bpe", lossless=False)
    draw = np.random.default_rng(0)
    source = setting.length * draw.lognormal(sigma=SPREAD, size=setting.batches)
    target = source * draw.lognormal(sigma=APART, size=setting.batches)
    sides = []
    for lengths in (source, target):
        counts = lengths.round().astype(int).clip(2, LONGEST)
        tokens = draw.integers(SPECIAL, setting.vocabulary, counts.sum()).astype(str)
        sides.append([" ".join(part) for part in np.split(tokens, counts.cumsum()[:-1])])
    return make_corpus(*sides, name="random sentences"), Numbers(setting.vocabulary)


class Numbers:
    """A tokenizer of text that is numbers already."""

    def __init__(self, size: int) -> None:
        self.size = size

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [[int(word) for word in text.split()] for text in texts]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return list(map(str, tokens))
