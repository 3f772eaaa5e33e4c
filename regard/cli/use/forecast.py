"""`regard forecast`: the next values of a series."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from regard.cli.shared.model_options import Device, Dtype, Model, Threads, load_as
from regard.cli.shared.torch_import import import_torch
from regard.errors import DataError, UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.api.arrays.forecaster import Forecast


def forecast_series(
    file: Annotated[Path, typer.Argument(help="CSV file: names of columns in the first line, then rows of numbers.")],
    model: Model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", show_default="standard output", help="CSV file to write.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, show_default="the model's horizon", help="Number of rows to forecast.")
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST",
            help="Print the errors of all forecasts of rows FIRST to before LAST, counted from 0, instead; : is all.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of CSV.")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Forecast the next rows of a series, as CSV.

    Train a forecaster on a CSV file: regard train series.csv --model forecaster

    Examples:
      regard forecast -m runs/series series.csv -o next.csv
      regard forecast -m runs/series series.csv --evaluate 11520:14400
    """
    import_torch()
    set_threads(threads)
    from regard.api.arrays.forecaster import Forecaster

    forecaster = load_as(Forecaster, model, device, dtype)
    if evaluate is not None:
        if steps is not None or output is not None:
            raise UsageError("--evaluate prints errors: leave out --steps and --output")
        first, last = row_range(evaluate)
        errors = forecaster.evaluate(file, first=first, last=last)
        lines = f"mean squared error {errors['mse']:.4f}  mean absolute error {errors['mae']:.4f}"
        typer.echo(json.dumps(errors) if as_json else f"{lines}  ({errors['windows']:,} windows)")
        return
    forecast = forecaster.forecast(file, steps=steps)
    if as_json:
        if output is not None:
            raise UsageError("--json prints: leave out --output")
        content = {"times": forecast.times, "columns": forecast.columns, "values": forecast.values.tolist()}
        typer.echo(json.dumps(content, ensure_ascii=False))
    elif output is None:
        write_csv(sys.stdout, forecast)
    else:
        try:
            with output.open("w", encoding="utf-8", newline="") as stream:
                write_csv(stream, forecast)
        except OSError as error:
            raise DataError(f"cannot write {output}: {error.strerror or error}") from error
        typer.echo(output)


def row_range(text: str) -> tuple[int | None, int | None]:
    """Read FIRST:LAST; either may be missing."""
    first, colon, last = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return (int(first) if first else None), (int(last) if last else None)
    except ValueError:
        raise UsageError(f"--evaluate {text}: write FIRST:LAST, such as 11520:14400, or : for all rows") from None


def write_csv(stream: IO[str], forecast: Forecast) -> None:
    """Write a forecast as CSV, with the times in the first column if there are some."""
    writer = csv.writer(stream, lineterminator="\n")
    times = forecast.times
    writer.writerow([*(["time"] if times else []), *forecast.columns])
    for i, row in enumerate(forecast.values.tolist()):
        writer.writerow([*([times[i]] if times else []), *(f"{value:.6g}" for value in row)])
