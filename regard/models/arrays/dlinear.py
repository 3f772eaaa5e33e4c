"""DLinear, the linear baseline of forecasting: a moving average and the rest, each with one linear layer.

Zeng et al. 2023, section 4; G6. Forecasting Transformers are compared with it.

    B windows   C columns   L points that are read   F points that are forecast
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regard.models.arrays.patch_forecaster import check_windows
from regard.models.config import LinearForecasterConfig


class DLinear(nn.Module):
    """Forecast the trend and the rest of each column with one linear layer each; all columns share them."""

    def __init__(self, config: LinearForecasterConfig) -> None:
        super().__init__()
        self.config = config
        self.trend = nn.Linear(config.lookback, config.horizon)
        self.rest = nn.Linear(config.lookback, config.horizon)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name; see regard.traits."""
        return frozenset({"DLinear"})

    def forward(self, series: Tensor) -> Tensor:
        """series (B, C, L) -> the next points of each column (B, C, F)."""
        check_windows(series, self.config.lookback)
        trend = self.moving_average(series)
        return self.trend(trend) + self.rest(series - trend)

    def moving_average(self, series: Tensor) -> Tensor:
        """Return the mean of the points around each point, (B, C, L); the ends are repeated."""
        before = (self.config.window - 1) // 2
        extended = F.pad(series, (before, self.config.window - 1 - before), mode="replicate")
        return F.avg_pool1d(extended, self.config.window, stride=1)
