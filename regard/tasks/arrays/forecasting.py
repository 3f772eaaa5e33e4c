"""Forecasting: from a series of numbers to its next values.

G6; Nie et al. 2023. A series is split in time: the last rows are the validation part, whose windows read rows of the
training part. The measure is the mean squared error on values that are standardised by the training part.

    B windows   C columns   L points that are read   F points that are forecast
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.api.arrays.forecaster import Forecaster
from regard.arrays.batches import ArrayData, SeriesData
from regard.arrays.series import Scale, Series, read_series
from regard.errors import DataError
from regard.models.arrays.patch_forecaster import PatchForecaster
from regard.models.config import Config, ForecasterConfig, LinearForecasterConfig
from regard.models.presets import MODELS
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.required import required
from regard.recipes.tables import RecipeTables, TrainingRecipe
from regard.tasks.arrays.array_task import ArrayTask, network_config
from regard.tasks.corpora import Corpora
from regard.tasks.losses import Objective, Together, forecast_loss
from regard.tasks.task import Data, Misfit, Tokenizers
from regard.tasks.validation import Validator
from regard.text.batches.batch import Batch
from regard.text.tokenizers.tokenizer import NO_TOKENIZER, Tokenizer

VALIDATION_SHARE = 0.2  # of the rows, the last ones
BATCH_WINDOWS = 128
EPOCHS = 20
FITTED_WINDOWS = 20_000  # windows at most that a linear forecast is fitted to
WINDOWS_AT_A_TIME = 256
# Nie et al. 2023, appendix A.1.4: a small network for small data, a larger one otherwise.
SMALL = {"layers": 3, "dim": 16, "heads": 4, "hidden": 128, "dropout": 0.3}
LARGE = {"layers": 3, "dim": 128, "heads": 16, "hidden": 256, "dropout": 0.2}
SMALL_VALUES = 200_000  # values of the training part, up to which the small network is chosen
RATES = {"forecaster": 5e-4, "dlinear": 1e-3}


class Forecasting(ArrayTask):
    """Forecast the next points of a series from the last ones."""

    name = "forecasting"
    models: ClassVar = {kind: MODELS[kind] for kind in ("forecaster", "dlinear")}
    forms = ("series", "demo")
    needs = "series (a CSV file)"
    usage = "regard forecast -m FOLDER series.csv\nregard plot forecast -m FOLDER series.csv"
    face = "forecaster"
    reads = "series"
    array_keys = ("variables", "rows")
    length_key = "model.lookback"
    default_model = "patches of a series as tokens (Nie et al. 2023)"

    def read_corpora(self, recipe: RecipeTables) -> Corpora[Series]:
        """Read a series and split it in time; the validation part begins with the rows that its first window reads."""
        data, config = recipe.data, network_config(recipe)
        assert isinstance(config, ForecasterConfig | LinearForecasterConfig)
        if data.demo:
            from regard.demo.series import demo_series

            series = demo_series(data.demo, seed=recipe.training.seed)
        else:
            series = read_series(data.series[0], data.variables)
        if data.rows is not None and data.rows > len(series):
            raise DataError(f"{series.report.files[0]} has {len(series):,} rows, and data.rows is {data.rows:,}")
        series = series.rows(0, data.rows or len(series))
        held_out = data.validation or int(len(series) * VALIDATION_SHARE)
        first = len(series) - held_out
        if first < config.lookback + config.horizon or held_out < config.horizon:
            raise DataError(
                f"{series.report.files[0]}: {len(series):,} rows are too few: with {held_out:,} of them held out for "
                f"validation, training needs at least {config.lookback + config.horizon:,} (model.lookback and "
                f"model.horizon), and validation {config.horizon:,}"
            )
        scaled = dataclasses.replace(series, scale=Scale.of(series.values[:first]))
        return Corpora(scaled.rows(0, first), scaled.rows(first - config.lookback, len(series)))

    def held_out(self, corpora: Corpora[Series]) -> int:
        return len(corpora.validation) - (corpora.train.first_line + len(corpora.train) - corpora.validation.first_line)

    def facts(self, recipe: RecipeTables, corpora: Corpora[Series]) -> DataFacts:
        train, validation = corpora.train.values.size, corpora.validation.values.size
        patches = train * network_config(recipe).patches  # type: ignore[attr-defined]  # one of ours
        return DataFacts(
            samples=len(corpora.train),
            words=0,
            characters=train,
            distinct_words=0,
            validation_samples=len(corpora.validation),
            validation_characters=validation,
            tokens=patches,
            shape=corpora.train.values.shape,
        )

    def make_tokenizers(self, recipe: RecipeTables, corpus: Series) -> Tokenizers:
        return NO_TOKENIZER, NO_TOKENIZER

    def make_data(
        self, recipe: RecipeTables, corpus: Series, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> ArrayData:
        config: Any = network_config(recipe)
        return SeriesData(
            corpus,
            lookback=config.lookback,
            horizon=config.horizon,
            batch_tokens=required(recipe.training.batch_tokens),
            row_tokens=config.patches * len(corpus.columns),
            seed=recipe.training.seed,
            shuffle=training,
        )

    def longest_row(self, recipe: RecipeTables, corpora: Corpora[Series], tokenizers: Tokenizers) -> int:
        config: Any = network_config(recipe)
        return config.patches * len(corpora.train.columns)

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        assert isinstance(config, ForecasterConfig | LinearForecasterConfig)
        columns = max(1, length // config.patches)
        past = torch.zeros(rows, columns, config.lookback, device=device)
        future = torch.zeros(rows, columns, config.horizon, device=device)
        return Batch(list(range(rows)), past, future, future, rows * length)

    def start_model(self, model: nn.Module, tokenizers: Tokenizers, corpus: Series) -> None:
        """Fit the shortcut of a forecaster that has one."""
        if isinstance(model, PatchForecaster) and model.shortcut is not None:
            model.fit_shortcut(windows_of(corpus, model.config.lookback, model.config.horizon))

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return forecast_loss

    def validator(self, *args: Any, **options: Any) -> Validator:
        return ForecastValidator(*args, **options)

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        yield from super().misfits(recipe)
        if recipe.training.label_smoothing:
            yield "training.label_smoothing", "predicts numbers"
        if recipe.data.demo and recipe.data.variables:
            yield "data.variables", "learns from all columns of the demo series"
        if recipe.data.faults != "stop":
            yield "data.faults", "cannot leave out a row: the others would no longer be equally far apart"

    def input_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        if tables["model"]["kind"] == "dlinear":
            yield Choice("model.dropout", 0.0, "a linear model has none")
            return
        sizes = SMALL if facts.characters <= SMALL_VALUES else LARGE
        for key, value in sizes.items():
            yield Choice(f"model.{key}", value, f"for {facts.characters:,} values (Nie et al. 2023)")
        if tables["model"].get("position", ForecasterConfig.position) == "learned":
            patches = (facts.tokens or 0) // max(1, facts.characters)
            yield Choice("model.max_length", patches, "the patches of a window")

    def training_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        model, columns = tables["model"], facts.shape[1]
        kind = model["kind"]
        config: Any = MODELS[kind][0].from_dict({key: value for key, value in model.items() if key != "kind"})
        row_tokens = config.patches * columns
        yield Choice("training.batch_tokens", BATCH_WINDOWS * row_tokens, f"{BATCH_WINDOWS} windows of all columns")
        yield Choice("training.accumulate", 1, "a step learns from one batch")
        windows = max(1, facts.samples - config.lookback - config.horizon + 1)
        rows = max(1, (tables["training"]["batch_tokens"] or BATCH_WINDOWS * row_tokens) // row_tokens)
        yield Choice("training.steps", max(100, EPOCHS * windows // rows), f"about {EPOCHS} epochs")
        yield Choice("training.lr", RATES[kind], "suits a small network")
        yield Choice("training.label_smoothing", 0.0, "numbers are predicted")

    def info(self, recipe: RecipeTables, train: Data, tokenizers: Tokenizers) -> dict[str, Any]:
        assert isinstance(train, SeriesData)
        scale = required(train.series.scale)
        return {
            "series": {
                "columns": list(train.series.columns),
                "mean": scale.mean.tolist(),
                "deviation": scale.deviation.tolist(),
            }
        }

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Forecaster:
        return Forecaster(model, info=info)


def windows_of(series: Series, lookback: int, horizon: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield windows (B, C, L) and the points after them (B, C, F): all, or many that are equally far apart."""
    values = torch.from_numpy(series.standardised.T.astype(np.float32))  # (C, T)
    windows = values.unfold(1, lookback + horizon, 1).transpose(0, 1)  # (N, C, L + F), without a copy
    for part in windows[:: -(-len(windows) // FITTED_WINDOWS)].split(WINDOWS_AT_A_TIME):
        yield part[..., :lookback], part[..., lookback:]


class ForecastValidator(Validator):
    """A validator whose score is the mean squared error on standardised values."""

    def quality(self, loss: float, accuracy: float) -> dict[str, float]:
        return {"mse": loss}

    def summary(self) -> str:
        return f"mean squared error {self.scores['mse']:.4f}"


TASK = Forecasting()
