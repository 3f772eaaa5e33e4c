"""The simpler simple recurrent unit: a layer that can replace the self-attention of a decoder.

Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation", section 3; a
simplification of the SRU of Lei et al. 2018. Small translation models such as those of Firefox use it: a step costs two
products with a vector, however long the text is, where self-attention reads the keys and values of all earlier tokens.

    B batch   m new tokens   p model width
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.attention.masks.algebra import Mask


class SSRU(nn.Module):
    """Mix each token into a state that forgets the earlier ones, number by number.

        x̃_t = W x_t                             what the token brings
        f_t = σ(W_f x_t + b_f)                  how much of the state stays
        c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ x̃_t   the state; c_0 = 0
        h_t = relu(c_t)

    Unlike in a GRU or LSTM, the gate does not depend on the state before. All x̃ and f of a text are therefore two
    matrix products, and only the third line runs through time.

    The state is a weighted mean of the x̃ so far, with the weight (1 - f_s) · f_{s+1} · … · f_t of token s: one weight
    for each number of the vector, where a head of attention has one for all numbers. They follow from the tokens
    between s and t, not from how well a query matches a key, so the layer cannot look up a certain word far back.
    """

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        self.input = nn.Linear(dim, dim, bias=False)  # W
        self.forget = nn.Linear(dim, dim)  # W_f and b_f
        nn.init.xavier_uniform_(self.input.weight)
        nn.init.xavier_uniform_(self.forget.weight)
        nn.init.zeros_(self.forget.bias)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"ssru"})

    def forward(
        self,
        x: Tensor,  # (B, m, p)
        *,
        mask: Mask | Tensor | None = None,
        causal: bool = True,
        cache: SSRUCache | None = None,
    ) -> Tensor:
        """(B, m, p) -> (B, m, p), the states after each token. Padding must be at the end of a text."""
        if mask is not None or not causal:
            raise ValueError("an SSRU reads from left to right, and all tokens: it takes causal=True and no mask")
        new, keep = self.input(x), torch.sigmoid(self.forget(x))  # (B, m, p)
        state = torch.zeros_like(new[:, 0]) if cache is None else cache.state  # (B, p)
        states = []
        for t in range(x.shape[1]):
            state = keep[:, t] * state + (1 - keep[:, t]) * new[:, t]
            states.append(state)
        if cache is not None:
            cache.advance(state, x.shape[1])
        return torch.relu(torch.stack(states, dim=1))  # (B, m, p)

    def weights(self, x: Tensor) -> Tensor:
        """x (B, m, p) -> the weight of token s in the state after token t, for each number, (B, m, m, p)."""
        m = x.shape[1]
        log_keep = nn.functional.logsigmoid(self.forget(x)).cumsum(1)  # (B, m, p)
        decay = (log_keep[:, :, None] - log_keep[:, None]).exp()  # (B, t, s, p): f_{s+1} · … · f_t
        past = torch.ones(m, m, dtype=torch.bool, device=x.device).tril()[None, :, :, None]
        return torch.where(past, decay * torch.sigmoid(-self.forget(x))[:, None], 0.0)

    def new_cache(self, batch: int, capacity: int, *, static: bool = False) -> SSRUCache:
        """Return the state before the first token; it has the same size for texts of any length."""
        return SSRUCache(
            self.forget.weight.new_zeros(batch, len(self.forget.bias)),
            torch.zeros(batch, dtype=torch.long, device=self.forget.bias.device),
        )


class SSRUCache:
    """The state c (B, p) after the tokens so far, and their number (B,); it has the interface of KVCache."""

    def __init__(self, state: Tensor, lengths: Tensor) -> None:
        self.state, self.lengths = state, lengths

    def __len__(self) -> int:
        return len(self.state)

    def positions(self, m: int) -> Tensor:
        """Return the positions of each row's next m tokens, (B, m)."""
        return self.lengths[:, None] + torch.arange(m, device=self.lengths.device)

    def advance(self, state: Tensor, m: int) -> None:
        """Store the state after m more tokens."""
        self.state, self.lengths = state, self.lengths + m

    def select(self, rows: Tensor) -> SSRUCache:
        """Return a cache of the given rows in the given order (beams, finished sentences)."""
        return SSRUCache(self.state[rows], self.lengths[rows])

    def keep(self, rows: Tensor, moved: Tensor) -> None:
        """Become a cache of these rows; a state is small, so all of it is copied, whichever rows have `moved`."""
        self.state, self.lengths = self.state[rows], self.lengths[rows]

    @staticmethod
    def join(caches: Sequence[SSRUCache]) -> SSRUCache:
        """Return one cache with the rows of all, in this order."""
        return SSRUCache(torch.cat([cache.state for cache in caches]), torch.cat([cache.lengths for cache in caches]))
