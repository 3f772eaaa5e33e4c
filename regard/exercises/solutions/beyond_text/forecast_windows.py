"""Solution of forecast-windows."""

from torch import Tensor


def past_and_future(series: Tensor, past: int, horizon: int) -> tuple[Tensor, Tensor]:
    """Series (N); return all windows: past values, scaled (B, past), and the values after them, scaled (B, horizon)."""
    windows = series.unfold(0, past + horizon, 1)
    X, Y = windows[:, :past], windows[:, past:]
    mean = X.mean(dim=1, keepdim=True)
    deviation = X.std(dim=1, keepdim=True, unbiased=False)
    return (X - mean) / deviation, (Y - mean) / deviation
