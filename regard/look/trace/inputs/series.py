"""Trace a forecaster: the patches of the past that each layer and head attends to, and the forecast.

G6; Nie et al. 2023.

    T rows   C columns   L rows that are read   F rows that are forecast   n patches
"""

from __future__ import annotations

import dataclasses
from typing import Any

from regard.arrays.series import Series
from regard.attention.recording.recorder import record
from regard.errors import UsageError
from regard.look.trace.attention_map import Map
from regard.look.trace.from_weights import group_layers
from regard.look.trace.inputs.input_trace import Continuation, InputMap, InputTrace, Ruler
from regard.look.trace.inputs.places import span_places
from regard.look.trace.tracing import describe_model, has_features

MAX_COLUMNS = 12  # of a series that are shown


def trace_series(
    forecaster: Any, series: Any, *, at: int | None = None, source: str = "", name: str | None = None
) -> InputTrace:
    """Trace a `Forecaster` that forecasts a series from row `at`.

    By default, the last rows are forecast, so that the forecast can be compared with the truth. `source` is the name of
    the series, `name` that of the model.
    """
    history: Series = forecaster.read(series)
    lookback, horizon = forecaster.lookback, forecaster.horizon
    first = max(lookback, len(history) - horizon) if at is None else at
    if not lookback <= first <= len(history):
        raise UsageError(
            f"row {first} of {len(history)} cannot be forecast: the model reads {lookback} rows before it, so the "
            f"first row is {lookback} to {len(history)}"
        )
    notes: tuple[str, ...] = ()
    if len(history.columns) > MAX_COLUMNS:
        notes = (f"The first {MAX_COLUMNS} of {len(history.columns)} columns are shown.",)
        history = first_columns(history)
    past = history.rows(first - lookback, first)
    truth = history.values[first : first + horizon].T  # (C, up to F)
    with record(forecaster.model) as layers:
        forecast = forecaster.forecast(past)
    config = forecaster.model.config
    maps = []
    for column in range(len(history.columns)) if len(layers) else ():  # a linear model has no attention
        for kind, weights in group_layers({layer: rows[column] for layer, rows in layers.items()}).items():
            attention = Map("patches", "patches", weights, random_features=has_features(forecaster.model, kind))
            maps.append(InputMap("encoder", attention, column))
    axes = {}
    if maps:
        sizes = {"size": config.patch, "stride": config.stride, "columns": lookback, "rows": len(history.columns)}
        places = span_places(config.patches, name="patch", first=first - lookback, **sizes)
        axes = {"patches": places}
    else:
        notes += ("A linear forecaster has no attention.",)
    return InputTrace(
        model=describe_model(config, name or config.kind),
        form="lines",
        values=past.values.T[None, :, :, None],
        axes=axes,
        maps=tuple(maps),
        columns=Ruler("row", float(first - lookback), labels=(*(past.times or ()), *(forecast.times or ()))),
        rows=Ruler("column", labels=history.columns),
        source=source,
        continuation=Continuation(
            forecast.values.T, truth if truth.size else None, first, least=lookback, most=len(history)
        ),
        notes=notes,
    )


def first_columns(series: Series) -> Series:
    """Return a series with its first columns."""
    scale = series.scale and dataclasses.replace(
        series.scale, mean=series.scale.mean[:MAX_COLUMNS], deviation=series.scale.deviation[:MAX_COLUMNS]
    )
    return dataclasses.replace(
        series, values=series.values[:, :MAX_COLUMNS], columns=series.columns[:MAX_COLUMNS], scale=scale
    )
