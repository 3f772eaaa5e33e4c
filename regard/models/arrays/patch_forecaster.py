"""A forecaster: patches of a series are the tokens of a Transformer encoder.

Nie et al. 2023 (PatchTST), section 3.1; G6. Each column is forecast alone, with the same weights, so a model accepts
any number of columns. With `shortcut`, the Transformer only has to learn what a linear forecast misses (the global
residual connection of Das et al. 2023, section 4). That forecast is fitted by least squares before training begins.

    B windows   C columns   L points that are read   F points that are forecast   n patches   p model width
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models.config import ForecasterConfig
from regard.models.stack import make_stack, make_vector_position, residual_dtype

EPSILON = 1e-5  # added to the variance of a window, which is 0 if all its values are equal


class PatchForecaster(nn.Module):
    """Instance normalization, patches, a Transformer encoder, and a linear layer from all states to the forecast."""

    def __init__(self, config: ForecasterConfig) -> None:
        super().__init__()
        self.config = config
        width = config.dim - (config.position_width or 0)
        self.patches = nn.Linear(config.patch, width)
        self.position = make_vector_position(config)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = make_stack(config, config.layers, causal=False, cross=False)
        self.head_dropout = nn.Dropout(config.head_dropout)
        self.output = nn.Linear(config.patches * config.dim, config.horizon)
        self.shortcut = nn.Linear(config.lookback, config.horizon) if config.shortcut else None
        if self.shortcut is not None:
            self.shortcut.requires_grad_(False)  # fit_shortcut sets it
            nn.init.zeros_(self.output.weight)  # begin with the linear forecast alone
            nn.init.zeros_(self.output.bias)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name, its normalization and its shortcut; see regard.traits."""
        options = {"instance-norm": self.config.instance_norm, "shortcut": self.config.shortcut}
        return frozenset({"PatchForecaster", *(name for name, used in options.items() if used)})

    def forward(self, series: Tensor) -> Tensor:
        """series (B, C, L) -> the next points of each column (B, C, F)."""
        check_windows(series, self.config.lookback)
        if not self.config.instance_norm:
            return self._forecast(series)
        mean = series.mean(-1, keepdim=True)  # (B, C, 1)
        deviation = (series.var(-1, keepdim=True, correction=0) + EPSILON).sqrt()
        return self._forecast((series - mean) / deviation) * deviation + mean

    def _forecast(self, series: Tensor) -> Tensor:
        x = self.patches(self.cut(series).flatten(0, 1))  # (B C, n, p)
        if self.position is not None:
            x = self.position.embed(x, torch.arange(x.shape[1], device=x.device))
        x = self.encoder(self.dropout(x.to(residual_dtype(x))))
        forecast = self.output(self.head_dropout(x.flatten(1))).view(*series.shape[:2], -1).to(series.dtype)
        if self.shortcut is None:
            return forecast
        return forecast + self.shortcut(series).to(series.dtype)

    @torch.no_grad()
    def fit_shortcut(self, windows: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fit the linear forecast W by least squares to windows (B, C, L) and the points after them (B, C, F).

        It minimises the expected squared error when each point of a window is dropped with probability d,
        the model's `shortcut_dropout`, and the others are divided by 1 - d (Wager et al. 2013, section 2):

            (X^T X + d / (1 - d) diag(X^T X)) W^T = X^T Y
        """
        assert self.shortcut is not None
        points, horizon = self.config.lookback, self.config.horizon
        products = torch.zeros(points, points, dtype=torch.float64)
        targets = torch.zeros(points, horizon, dtype=torch.float64)
        for past, future in windows:
            level = past.mean(-1, keepdim=True) if self.config.instance_norm else torch.zeros(())  # (B, C, 1)
            X, Y = ((part - level).flatten(0, 1).double() for part in (past, future))  # (B C, L), (B C, F)
            products, targets = products + X.T @ X, targets + X.T @ Y
        d = self.config.shortcut_dropout
        penalty = products.diagonal() * d / (1 - d) + EPSILON * products.diagonal().mean() + EPSILON
        weight = torch.linalg.solve(products + torch.diag(penalty), targets).T
        self.shortcut.weight.copy_(weight)
        self.shortcut.bias.zero_()

    def cut(self, series: Tensor) -> Tensor:
        """Cut (B, C, L) into overlapping patches (B, C, n, patch); the last point is repeated for one more patch."""
        extended = F.pad(series, (0, self.config.stride), mode="replicate")
        return extended.unfold(-1, self.config.patch, self.config.stride)


def check_windows(series: Tensor, lookback: int) -> None:
    """Raise ValueError unless a series is (B, C, lookback)."""
    if series.dim() != 3 or series.shape[-1] != lookback:
        raise ValueError(f"series must be (B, C, {lookback}), got {tuple(series.shape)}")
