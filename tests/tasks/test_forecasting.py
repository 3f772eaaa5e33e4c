"""Forecasting from a CSV file to the next rows: training, the folder, the face and the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

import regard
from regard.arrays.batches import SeriesData
from regard.arrays.series import Scale, make_series
from regard.cli import app
from regard.errors import DataError, ModelError, UsageError
from regard.models.folder.config_file import read_checked_config
from regard.recipes.tables import DataRecipe
from regard.tasks.arrays.forecasting import TASK
from regard.tasks.folder_face import face_of
from regard.tasks.losses import forecast_loss
from regard.training.recipe.from_files import recipe_for_files
from regard.training.recipe.schema import Recipe

from ..repeats import some

SMALL = {
    "model.lookback": 24,
    "model.horizon": 6,
    "model.patch": 4,
    "model.stride": 2,
    "model.layers": 1,
    "model.dim": 16,
    "model.heads": 2,
    "model.hidden": 16,
    "model.dropout": 0.0,
    "training.steps": 60,
    "training.lr": 0.01,
    "training.warmup": 1,
    "training.batch_tokens": 24 * 24,
    "training.validate_every": 30,
}
LINEAR = {key: value for key, value in SMALL.items() if not key.startswith("model.") or key.endswith(("back", "zon"))}


def write_waves(path: Path, rows: int = 240) -> Path:
    """Two waves of period 12 on different levels, with hourly times."""
    time = np.arange(rows)
    hours = np.datetime64("2024-01-01T00:00:00") + time.astype("timedelta64[h]")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["date", "load", "heat"])
        for hour, t in zip(hours.astype(str), time, strict=True):
            wave = np.sin(2 * np.pi * t / 12)
            writer.writerow([hour.replace("T", " "), f"{100 + 10 * wave:.6f}", f"{-3 + 0.01 * wave:.6f}"])
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_waves(tmp_path_factory.mktemp("waves") / "waves.csv")


@pytest.fixture(scope="module", params=["forecaster", "dlinear"])
def run(request: pytest.FixtureRequest, file: Path) -> Any:
    settings = SMALL if request.param == "forecaster" else LINEAR | {"training.steps": 300}
    recipe = recipe_for_files([file], model=request.param)
    return regard.train(recipe, out=file.parent / request.param, overrides=settings, quiet=True)


def test_a_wave_goes_on(run: Any, file: Path) -> None:
    assert face_of(run.folder) == "forecaster" and run.scores["mse"] < 0.05
    forecaster = run.load(device="cpu")
    assert isinstance(forecaster, regard.Forecaster) and forecaster.columns == ("load", "heat")
    forecast = forecaster.forecast(file)
    wave = np.sin(2 * np.pi * np.arange(240, 246) / 12)
    np.testing.assert_allclose(forecast.values[:, 0], 100 + 10 * wave, atol=4)
    np.testing.assert_allclose(forecast.values[:, 1], -3 + 0.01 * wave, atol=0.004)
    assert forecast.times is not None and forecast.times[0] == "2024-01-11 00:00:00"
    assert "regard forecast -m THIS_FOLDER" in (run.folder / "README.md").read_text()
    assert not list(run.folder.glob("*tokenizer*"))  # a folder without a tokenizer


def test_more_and_fewer_steps(run: Any, file: Path) -> None:
    forecaster = run.load(device="cpu")
    usual, few, many = (forecaster.forecast(file, steps=steps).values for steps in (6, 2, 15))
    np.testing.assert_array_equal(usual[:2], few)
    np.testing.assert_array_equal(usual, many[:6])
    assert many.shape == (15, 2)
    extended = np.concatenate([np.loadtxt(file, delimiter=",", skiprows=1, usecols=(1, 2)), usual])
    np.testing.assert_allclose(forecaster.forecast(extended).values, many[6:12], rtol=1e-4)
    with pytest.raises(UsageError, match="at least 1"):
        forecaster.forecast(file, steps=0)


def test_a_folder_gives_the_same_forecast(run: Any, file: Path, tmp_path: Path) -> None:
    forecaster = run.load(device="cpu")
    again = regard.load(forecaster.save(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(again.forecast(file).values, forecaster.forecast(file).values)
    config = json.loads((tmp_path / "saved/config.json").read_text())
    config["series"]["deviation"] = [0.0, 1.0]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="series must be the names, means and deviations"):
        read_checked_config(tmp_path / "config.json")


def test_evaluation_is_the_mean_over_all_windows(run: Any, file: Path) -> None:
    """The errors are those of windows that are forecast one by one, on standardised values."""
    forecaster = run.load(device="cpu")
    values = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(1, 2))
    scale = Scale.of(values[: 240 - 48])  # the training part: a fifth is held out
    errors = []
    for start in range(200, 240 - 6 + 1):
        forecast = forecaster.forecast(values[start - 24 : start]).values
        errors.append(scale.standardise(forecast) - scale.standardise(values[start : start + 6]))
    result = forecaster.evaluate(file, first=200)
    assert result["windows"] == len(errors) == 35
    assert result["mse"] == pytest.approx(np.square(errors).mean(), rel=1e-3, abs=1e-9)
    assert result["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-3, abs=1e-6)
    for options in ({"first": 10}, {"first": 236}, {"first": 230, "last": 220}):
        with pytest.raises(DataError, match=r"no window can be evaluated.*Begin at 24 or later"):
            forecaster.evaluate(file, **options)
    with pytest.raises(DataError, match="is a folder: give a CSV file"):
        forecaster.forecast(file.parent)
    with pytest.raises(DataError, match="end at 999, but the series has 240"):
        forecaster.evaluate(file, last=999)


def test_other_columns_and_forms_of_input(run: Any, file: Path) -> None:
    """A model forecasts any number of columns; those that it does not know are scaled by themselves."""
    forecaster = run.load(device="cpu")
    values = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(1, 2))
    by_name = {"load": values[:, 0], "heat": values[:, 1]}
    np.testing.assert_array_equal(forecaster.forecast(values).values, forecaster.forecast(by_name).values)
    single = forecaster.forecast(values[:, 0] * 1000)
    assert single.values.shape == (6, 1) and single.times is None
    np.testing.assert_allclose(single.values[:, 0] / 1000, 100, atol=15)
    with pytest.raises(DataError, match="23 rows are too few: the model reads the last 24"):
        forecaster.forecast(values[:23])
    values[3, 0] = np.nan
    with pytest.raises(DataError, match="row 3"):
        forecaster.forecast(values)


def test_commands(run: Any, file: Path, tmp_path: Path) -> None:
    call = ["forecast", "-m", str(run.folder), str(file)]
    rows = list(csv.reader(CliRunner().invoke(app, call).stdout.splitlines()))
    assert rows[0] == ["time", "load", "heat"] and len(rows) == 7 and rows[1][0] == "2024-01-11 00:00:00"
    written = CliRunner().invoke(app, [*call, "-o", str(tmp_path / "out.csv"), "--steps", "2"])
    assert written.exit_code == 0 and len((tmp_path / "out.csv").read_text().splitlines()) == 3
    content = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)
    assert content["columns"] == ["load", "heat"] and len(content["values"]) == 6
    errors = json.loads(CliRunner().invoke(app, [*call, "--evaluate", "200:", "--json"]).stdout)
    assert errors["windows"] == 35
    assert "mean squared error 0.0" in CliRunner().invoke(app, [*call, "--evaluate", ":"]).stdout
    for wrong, code in (
        (["--evaluate", "5"], 2),
        (["--evaluate", ":", "--steps", "2"], 2),
        (["--json", "-o", "x.csv"], 2),
        (["-o", str(tmp_path / "no/x.csv")], 3),
    ):
        assert CliRunner().invoke(app, [*call, *wrong]).exit_code == code, wrong
    assert "no text" in CliRunner().invoke(app, ["info", str(run.folder)]).stdout


def test_plot(run: Any, file: Path, tmp_path: Path) -> None:
    call = ["plot", "forecast", "-m", str(run.folder), str(file), "-o", str(tmp_path / "forecast.png")]
    for options in ([], ["--at", "240"], ["--at", "24", "--column", "heat"]):
        done = CliRunner().invoke(app, [*call, *options])
        assert done.exit_code == 0, done.output
    layer = CliRunner().invoke(app, [*call, "--layer", "0"])
    assert layer.exit_code == (2 if run.folder.name == "dlinear" else 0)
    for wrong in (["--at", "23"], ["--at", "241"], ["--column", "cold"], ["--layer", "9"]):
        assert CliRunner().invoke(app, [*call, *wrong]).exit_code == 2, wrong


def test_windows_of_a_batch() -> None:
    series = make_series(np.arange(40, dtype=float).reshape(20, 2))
    data = SeriesData(series, lookback=5, horizon=3, batch_tokens=8, row_tokens=2, seed=1)
    assert len(data) == 13 and [len(ids) for ids in data.plan(0)] == [4, 4, 4, 1]
    assert sorted(i for ids in data.plan(0) for i in ids) == list(range(13)) and data.plan(0) != data.plan(1)
    batch = data.collate([3, 12], 0)
    expected = torch.tensor(series.standardised.T, dtype=torch.float32)
    torch.testing.assert_close(batch.source, torch.stack([expected[:, 3:8], expected[:, 12:17]]))
    torch.testing.assert_close(batch.labels, torch.stack([expected[:, 8:11], expected[:, 17:20]]))
    shares = [next(data.batches(0, rank=rank, world=3)).ids for rank in range(3)]
    assert sorted(i for share in shares for i in share) == sorted(data.plan(0)[0])
    assert next(data.batches(0, rank=2, world=5)).source is not None  # a share may be empty
    rest = [batch.ids for batch in data.batches(0, start=8)]
    assert rest == data.plan(0)[2:]


def test_loss_is_the_mean_squared_error_also_of_an_empty_share() -> None:
    torch.manual_seed(0)
    model = regard.DLinear(regard.LinearForecasterConfig(lookback=5, horizon=3, window=3))
    data = SeriesData(make_series(np.random.rand(20, 2)), lookback=5, horizon=3, batch_tokens=8, row_tokens=2)
    batch = data.collate([0, 4, 7], 0)
    loss = forecast_loss(model, batch)
    torch.testing.assert_close(loss.total / 3, F.mse_loss(model(batch.source), batch.labels))
    assert loss.tokens == 3
    empty = forecast_loss(model, data.collate([], 0))
    assert float(empty.nll) == 0 and empty.tokens == 0
    empty.total.backward()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"model.lookback": 230}, DataError, "240 rows are too few: with 48 of them held out"),
        ({"data.rows": 500}, DataError, "has 240 rows, and data.rows is 500"),
        ({"data.variables": "heta"}, DataError, "no column 'heta'"),
        ({"data.shift": 1}, UsageError, "data.shift"),
        ({"data.max_length": 9}, UsageError, "reads no text"),
        ({"tokenizer.kind": "bpe"}, UsageError, "tokenizer.kind"),
        ({"training.label_smoothing": 0.1}, UsageError, "predicts numbers"),
        ({"data.faults": "skip"}, UsageError, "cannot leave out a row"),
        ({"model.patch": 30}, UsageError, "longer than lookback=24"),
        ({"model.stride": 5}, UsageError, "would not be read"),
        ({"model.scale_embedding": True}, UsageError, "is for tokens"),
    ],
)
def test_wrong_settings(file: Path, tmp_path: Path, settings: Any, error: type[Exception], message: str) -> None:
    recipe = recipe_for_files([file], model="forecaster")
    with pytest.raises(error, match=message):
        regard.train(recipe, out=tmp_path / "run", overrides=SMALL | settings, quiet=True)


def test_the_split_is_that_of_the_recipe(file: Path) -> None:
    """Validation windows forecast only rows of the validation part, and read the ones before."""
    data = DataRecipe(series=(str(file),), rows=200, validation=50)
    recipe = Recipe(name="a", data=data, model={"kind": "forecaster", "lookback": 24, "horizon": 6})
    corpora = TASK.read(recipe)
    assert (len(corpora.train), len(corpora.validation), TASK.held_out(corpora)) == (150, 74, 50)
    assert corpora.validation.location(0).endswith(":128")  # row 126, two lines below the header's
    np.testing.assert_allclose(corpora.train.standardised.mean(0), 0, atol=1e-9)
    np.testing.assert_array_equal(corpora.validation.scale.mean, corpora.train.scale.mean)


@pytest.mark.parametrize(
    "settings", some([{"score": "fourier"}, {"attention": "random-features"}, {"position": "rotary"}], 2)
)
def test_other_attention_learns_too(file: Path, tmp_path: Path, settings: dict[str, str]) -> None:
    overrides = SMALL | {f"model.{key}": value for key, value in settings.items()}
    run = regard.train(recipe_for_files([file], model="forecaster"), out=tmp_path, overrides=overrides, quiet=True)
    assert run.scores["mse"] < 0.2
