"""Word vectors: tables of vectors that are trained to predict which words occur near each other.

Skip-gram and CBOW with negative sampling (Mikolov et al. 2013a, 2013b); GloVe (Pennington et al. 2014); A2.

    n examples   c input words of an example   k negative examples   V vocabulary   D width
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models.config.word_vectors import WordVectorConfig

NOISE_POWER = 0.75  # of the counts, in the noise distribution (Mikolov et al. 2013b, section 2.2)
WEIGHT_POWER = 0.75  # of the counts, in the weights of GloVe's loss (Pennington et al. 2014, eq. 9)


class WordVectorModel(nn.Module):
    """Two vectors for each word: one as a word, one as the context of other words; A2.

    `counts` says how often each word occurs in the training text. Rows of the special tokens are never trained.
    """

    counts: Tensor

    def __init__(self, config: WordVectorConfig) -> None:
        super().__init__()
        self.config = config
        V, D = config.vocabulary, config.dim
        self.words = nn.Embedding(V, D, sparse=True)
        self.contexts = None if config.method == "imported" else nn.Embedding(V, D, sparse=True)
        is_glove = config.method == "glove"
        self.word_biases = nn.Embedding(V, 1, sparse=True) if is_glove else None
        self.context_biases = nn.Embedding(V, 1, sparse=True) if is_glove else None
        self.register_buffer("counts", torch.zeros(V))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin with small vectors. Without GloVe, the context vectors begin with 0: every word is equally likely."""
        for name, table in self.named_parameters():
            nn.init.uniform_(table, -0.5 / self.config.dim, 0.5 / self.config.dim)
            if name.startswith("contexts") and self.config.method != "glove":
                nn.init.zeros_(table)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name; see regard.traits."""
        return frozenset({"WordVectorModel"})

    @property
    def vectors(self) -> Tensor:
        """The vectors to use, (V, D): the word vectors; of GloVe the sum of both tables (section 4.2)."""
        if self.config.method == "glove":
            assert self.contexts is not None
            return self.words.weight + self.contexts.weight
        return self.words.weight

    @property
    def noise(self) -> Tensor:
        """The noise distribution that negative examples are drawn from, (V,)."""
        weights = self.counts.double() ** NOISE_POWER
        return weights / weights.sum()

    @property
    def keep_probability(self) -> Tensor:
        """The probability that an occurrence of each word is used, (V,): frequent words are subsampled.

        As in word2vec.c; Mikolov et al. 2013b, eq. 5 is a variant.
        """
        ratio = self.counts.double() / (self.config.subsample * self.counts.double().sum())
        return ((ratio.sqrt() + 1) / ratio).nan_to_num(1.0).clamp(max=1.0)

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Score outputs (n, 1 + k) for the mean of the inputs (n, c) -> (n, 1 + k).

        Skip-gram has one input, the word in the middle. The inputs of CBOW are the words around it; `pad_id` is none.
        """
        assert self.contexts is not None
        present = (inputs != self.config.pad_id)[..., None]  # (n, c, 1)
        hidden = (self.words(inputs) * present).sum(1) / present.sum(1)  # (n, D)
        return (self.contexts(outputs) @ hidden[..., None]).squeeze(-1)  # (n, 1 + k)

    def log_counts(self, entries: Tensor) -> Tensor:
        """GloVe's estimate of the logarithm of co-occurrence counts, w_i . w_j + b_i + b_j: (n, 2) -> (n,)."""
        assert self.contexts is not None
        assert self.word_biases is not None
        assert self.context_biases is not None
        i, j = entries.unbind(1)
        biases = self.word_biases(i) + self.context_biases(j)  # (n, 1)
        return (self.words(i) * self.contexts(j)).sum(1) + biases.squeeze(1)


def negative_sampling_loss(scores: Tensor, keep: Tensor) -> Tensor:
    """-log sigma(u_o . h) - sum over k of log sigma(-u_k . h), for each example: (n, 1 + k) -> (n,).

    Mikolov et al. 2013b, eq. 4. The first score of a row is that of the true output; `keep` is False where a word of
    the noise is the true output itself, which does not count.
    """
    signs = torch.full_like(scores, -1.0)
    signs[:, 0] = 1.0
    return -(F.logsigmoid(signs * scores) * keep).sum(1)


def glove_loss(log_counts: Tensor, counts: Tensor, max_count: float) -> Tensor:
    """f(X) (w_i . w_j + b_i + b_j - log X)^2 with f(X) = min(1, (X / max_count)^0.75): (n,), (n,) -> (n,).

    Pennington et al. 2014, eq. 8 and 9.
    """
    weights = (counts / max_count).clamp(max=1.0) ** WEIGHT_POWER
    return weights * (log_counts - counts.log()) ** 2
