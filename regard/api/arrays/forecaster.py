"""A forecaster: it continues a series of numbers, and says which part of the past it attended to.

G6; Nie et al. 2023.

    T points in time   C columns   L points that are read   F points that are forecast   n patches
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.api.html import describe_model, model_html, model_repr
from regard.api.saving import learned_from_demo, save_face
from regard.arrays.series import Scale, Series, make_series, read_rows, read_series
from regard.attention.recording.recorder import record
from regard.decoding.model_step import evaluating
from regard.demo.series import demo_series
from regard.errors import DataError, UsageError
from regard.look.trace.inputs.input_trace import InputTrace
from regard.look.trace.inputs.series import trace_series
from regard.models.config import ForecasterConfig, LinearForecasterConfig
from regard.models.folder.weights_file import Storage
from regard.models.protocols import config_of
from regard.text.tokenizers.tokenizer import NO_TOKENIZER

BATCH_WINDOWS = 256  # of one forward pass
EXAMPLE_HOURS = 3_000
SeriesLike = str | Path | Series | NDArray | Tensor | Sequence[Sequence[float]] | Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Forecast:
    """The next values of a series."""

    values: NDArray[np.float64]  # (F, C)
    columns: tuple[str, ...]
    times: tuple[str, ...] | None = None  # of the rows, if the series has times


class Forecaster:
    """Forecasts series; `regard.load` makes one from a folder."""

    def __init__(self, model: nn.Module, *, info: Mapping[str, Any] | None = None) -> None:
        self.model: Any = model
        self.info = dict(info or {})
        config = config_of(model)
        if not isinstance(config, ForecasterConfig | LinearForecasterConfig):
            raise TypeError(f"model must be a forecaster, got one of kind {config.kind!r}")
        self.lookback, self.horizon = config.lookback, config.horizon

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the series that the model was trained on."""
        return tuple(self.info.get("series", {}).get("columns", ()))

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        return save_face(self.model, folder, tokenizer=NO_TOKENIZER, info=self.info, storage=storage)

    def __repr__(self) -> str:
        return model_repr("Forecaster", describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return model_html("Forecaster", describe_model(self.model, self.info), 'forecaster.forecast("series.csv")')

    def forecast(self, series: SeriesLike, *, steps: int | None = None) -> Forecast:
        """Forecast the next `steps` points of a series, by default as many as the model was trained for.

        A series is a CSV file, an array (T, C) or (T,), or lists by column. For more steps than the model's horizon,
        its own forecasts are read as if they were observed.
        """
        steps = self.horizon if steps is None else steps
        if steps < 1:
            raise UsageError(f"steps must be at least 1, got {steps}")
        history = self.read(series)
        past = history.standardised[-self.lookback :]  # (L, C)
        while len(past) < self.lookback + steps:
            window = torch.from_numpy(past[-self.lookback :].T.copy())[None]  # (1, C, L)
            past = np.concatenate([past, self._predict(window)[0].T.double().numpy()])
        values = self._scale(history).restore(past[self.lookback : self.lookback + steps])
        return Forecast(values, history.columns, next_times(history.times, steps))

    def evaluate(self, series: SeriesLike, *, first: int | None = None, last: int | None = None) -> dict[str, float]:
        """Return the mean squared and the mean absolute error over all windows of rows `first` to before `last`.

        Every window reads the rows before its forecast, also those before `first`. Errors are those of values that
        are standardised as in training, so that columns of all sizes count the same.
        """
        history = self.read(series)
        first, last = self.lookback if first is None else first, len(history) if last is None else last
        if last > len(history):
            raise DataError(f"the rows to evaluate end at {last:,}, but the series has {len(history):,}: end there")
        if not self.lookback <= first <= last - self.horizon:
            raise DataError(
                f"no window can be evaluated on rows {first:,} to {last:,} of {len(history):,}: {self.lookback} rows "
                f"before the first are read, and {self.horizon} rows are forecast. Begin at {self.lookback} or "
                f"later, and end at least {self.horizon} rows after that"
            )
        values = torch.from_numpy(history.standardised.T[:, first - self.lookback : last].astype(np.float32))  # (C, T)
        windows = values.unfold(-1, self.lookback + self.horizon, 1).transpose(0, 1)  # (N, C, L + F)
        squared = absolute = 0.0
        for batch in windows.split(BATCH_WINDOWS):
            errors = self._predict(batch[..., : self.lookback]).double() - batch[..., self.lookback :]
            squared, absolute = squared + float(errors.square().sum()), absolute + float(errors.abs().sum())
        count = windows[..., self.lookback :].numel()
        return {"mse": squared / count, "mae": absolute / count, "windows": len(windows)}

    def attention(self, series: SeriesLike) -> Tensor:
        """Return the weights of each layer and head on the patches of the last window, (layers, heads, C, n, n)."""
        if not isinstance(config_of(self.model), ForecasterConfig):
            raise UsageError("DLinear is linear and has no attention")
        history = self.read(series)
        window = torch.from_numpy(history.standardised[-self.lookback :].T.copy())[None]
        with record(self.model) as maps:
            self._predict(window)
        return torch.stack([maps[layer].float().cpu().transpose(0, 1) for layer in maps])  # (B = C) rows

    def trace(
        self, series: SeriesLike, *, at: int | None = None, source: str | None = None, name: str | None = None
    ) -> InputTrace:
        """Return everything that the model does when it forecasts a series from row `at`, for the explorer page.

        By default, the last rows are forecast and compared with the truth. `source` is the name of the series, by
        default the file's; `name` is that of the model.
        """
        if source is None:
            source = Path(series).name if isinstance(series, str | Path) else "series"
        return trace_series(self, series, at=at, source=source, name=name)

    def examples(self) -> dict[str, Series]:
        """Return series to try by name: the demo series, if the model was trained on it."""
        if not learned_from_demo(self.info):
            return {}
        return {"demo series": demo_series(EXAMPLE_HOURS)}

    def _predict(self, windows: Tensor) -> Tensor:
        """Return the forecasts of standardised windows (B, C, L) -> (B, C, F), on the CPU."""
        weight = next(self.model.parameters())
        with torch.inference_mode(), evaluating(self.model):
            return self.model(windows.to(weight.device, weight.dtype)).float().cpu()

    def read(self, series: SeriesLike) -> Series:
        """Return a series that is long enough, on the scale of the training data where its columns are known."""
        if isinstance(series, str | Path):
            series = read_series(series, self._known_columns(Path(series)))
        elif isinstance(series, Mapping):
            series = make_series(np.stack([np.asarray(series[name], float) for name in series], axis=1), list(series))
        elif not isinstance(series, Series):
            array = np.asarray(series)
            names = self.columns if array.ndim == 2 and array.shape[1] == len(self.columns) else None
            series = make_series(array, names)
        if len(series) < self.lookback:
            raise DataError(
                f"{series.report.files[0]}: {len(series)} rows are too few: the model reads the last {self.lookback}"
            )
        return replace(series, scale=self._scale(series))

    def _known_columns(self, path: Path) -> tuple[str, ...]:
        """Return the columns to read: those of the training data if the file has them all, else all of its own."""
        header = next(read_rows(path), "")
        names = [name.strip(' "') for name in re.split(r"[,;\t]", header)]
        return self.columns if all(name in names for name in self.columns) else ()

    def _scale(self, series: Series) -> Scale:
        """Return the scale of the training data if it had these columns, else that of the last window."""
        if not set(series.columns) <= set(self.columns):
            return Scale.of(series.values[-self.lookback :])
        numbers, chosen = self.info["series"], [self.columns.index(name) for name in series.columns]
        return Scale(np.array(numbers["mean"])[chosen], np.array(numbers["deviation"])[chosen])


def next_times(times: Sequence[str] | None, steps: int) -> tuple[str, ...] | None:
    """Continue times at the distance of the last two; None without times."""
    if times is None or len(times) < 2:
        return None
    try:
        before, last = (float(time) for time in times[-2:])
        return tuple(f"{last + (last - before) * i:g}" for i in range(1, steps + 1))
    except ValueError:
        earlier, latest = (datetime.fromisoformat(time) for time in times[-2:])
        separator = "T" if "T" in times[-1] else " "
        later = [latest + (latest - earlier) * i for i in range(1, steps + 1)]
        if len(times[-1]) == len("2024-01-01") and all(time.time() == datetime.min.time() for time in later):
            return tuple(time.date().isoformat() for time in later)
        return tuple(time.isoformat(sep=separator) for time in later)
