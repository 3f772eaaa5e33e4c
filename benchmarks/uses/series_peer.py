"""PatchTST as its authors train it on the ETT data, to compare the forecaster with, measured side by side.

Nie et al. 2023, sections 3.1 and A.1, and the settings that they publish for these data: three blocks of width 16 with
batch normalization, residual attention scores (He et al. 2021), dropout of 0.3, and a rate of 1e-4 that shrinks by a
tenth per epoch after the third. The epoch with the lowest validation error counts.

    B windows   C columns   L points that are read   F points that are forecast   n patches   d width   H heads
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.arrays.series import Scale, Series

PATCH, STRIDE, WIDTH, HEADS, HIDDEN, BLOCKS, DROPOUT = 16, 8, 16, 4, 128, 3, 0.3
BATCH, RATE, STEADY_EPOCHS, SHRINK = 128, 1e-4, 3, 0.9
EPSILON = 1e-5
WARM_RATE = 1e-9  # of the steps before a capture, which hardly change a weight


class BatchNorm(nn.Module):
    """Normalize each of the d numbers over the batch and the patches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class ResidualBlock(nn.Module):
    """A post-norm block whose attention adds its scores to those of the block before."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Dropout(DROPOUT), nn.Linear(HIDDEN, WIDTH), nn.Dropout(DROPOUT)
        )
        self.drop, self.norm, self.feed_norm = nn.Dropout(DROPOUT), BatchNorm(), BatchNorm()

    def forward(self, x: Tensor, before: Tensor | float) -> tuple[Tensor, Tensor]:
        """(B, n, d) and scores (B, H, n, n) -> both of this block."""
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5 + before
        x = self.norm(x + self.drop(self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))))
        return self.feed_norm(x + self.feed(x)), scores


class PatchTST(nn.Module):
    """Instance normalization, patches, the blocks, and a linear layer on all states."""

    def __init__(self, lookback: int, horizon: int) -> None:
        super().__init__()
        patches = (lookback - PATCH) // STRIDE + 2
        self.embedding = nn.Linear(PATCH, WIDTH)
        self.places = nn.Parameter(torch.empty(patches, WIDTH).uniform_(-0.02, 0.02))
        self.drop = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(ResidualBlock() for _ in range(BLOCKS))
        self.output = nn.Linear(WIDTH * patches, horizon)

    def forward(self, series: Tensor) -> Tensor:
        """(B, C, L) -> (B, C, F)."""
        mean = series.mean(-1, keepdim=True)
        deviation = (series.var(-1, keepdim=True, correction=0) + EPSILON).sqrt()
        patches = F.pad((series - mean) / deviation, (0, STRIDE), mode="replicate").unfold(-1, PATCH, STRIDE)
        x, scores = self.drop(self.embedding(patches.flatten(0, 1)) + self.places), 0.0
        for block in self.blocks:
            x, scores = block(x, scores)
        return self.output(x.transpose(1, 2).flatten(1)).unflatten(0, series.shape[:2]) * deviation + mean


class Windows(NamedTuple):
    """All windows whose forecasts are in some rows of a series, (N, C, L + F)."""

    values: Tensor
    lookback: int

    @classmethod
    def of(cls, series: Series, rows: tuple[int, int], lookback: int, horizon: int, device: torch.device) -> Windows:
        """The rows before the first are read, where there are any."""
        values = torch.from_numpy(series.standardised[max(0, rows[0] - lookback) : rows[1]]).float().to(device)
        return cls(values.T.unfold(-1, lookback + horizon, 1).transpose(0, 1), lookback)

    def loss(self, model: nn.Module, chosen: Tensor) -> Tensor:
        batch = self.values[chosen]
        return F.mse_loss(model(batch[..., : self.lookback]), batch[..., self.lookback :])

    @torch.no_grad()
    def error(self, model: nn.Module, count: int | None = None) -> float:
        """Return the mean squared error of the first `count` windows; of all without a number above 0."""
        model.eval()
        ids = torch.arange(count or len(self.values), device=self.values.device)
        return sum(float(self.loss(model, part)) * len(part) for part in ids.split(BATCH)) / len(ids)


class PeerStep:
    """A step of Adam on the windows of some numbers; on a GPU a captured graph."""

    def __init__(self, model: nn.Module, windows: Windows) -> None:
        self.model, self.windows, device = model, windows, windows.values.device
        self.rate = torch.tensor(0.0, device=device)
        capturable = device.type == "cuda"
        self.optimizer = torch.optim.Adam(model.parameters(), lr=self.rate, capturable=capturable)
        self.chosen = torch.arange(BATCH, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        if capturable:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            self.rate.fill_(WARM_RATE)
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self._step()
            torch.cuda.current_stream().wait_stream(stream)
            self.optimizer.zero_grad(set_to_none=True)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._step()

    def __call__(self, chosen: Tensor, rate: float) -> None:
        self.chosen.copy_(chosen)
        self.rate.fill_(rate)
        if self.graph is None:
            self._step()
        else:
            self.graph.replay()

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.windows.loss(self.model, self.chosen).backward()
        self.optimizer.step()


def train_patchtst(
    series: Series,
    rows: tuple[int, int, int],
    *,
    lookback: int,
    horizon: int,
    seed: int,
    epochs: int,
    device: torch.device,
    steps: int | None = None,
) -> dict[str, float]:
    """Train on the rows before the first number, choose the epoch on those before the second, test on the last ones."""
    torch.manual_seed(seed)
    first, second, last = rows
    scaled = Series(series.values, series.columns, series.times, series.report, scale=Scale.of(series.values[:first]))
    train, validation, test = (
        Windows.of(scaled, part, lookback, horizon, device) for part in ((0, first), (first, second), (second, last))
    )
    model = PatchTST(lookback, horizon).to(device)
    model.train()
    step = PeerStep(model, train)
    best, best_weights = float("inf"), copy.deepcopy(model.state_dict())
    for epoch in range(1, epochs + 1):
        model.train()
        order = torch.randperm(len(train.values)).to(device)
        for chosen in order[: len(order) // BATCH * BATCH].view(-1, BATCH)[:steps]:
            step(chosen, RATE * SHRINK ** max(0, epoch - STEADY_EPOCHS))
        error = validation.error(model)
        if error < best:
            best, best_weights = error, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    return {
        "validation": best,
        "mse": test.error(model),
        "mse_full_batches": test.error(
            model, max(1, len(test.values) // BATCH) * BATCH if len(test.values) >= BATCH else None
        ),
        "windows": len(test.values),
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }
