"""The forecast: what is rehearsed adds up, the process is really measured, and nothing is changed by asking."""

from __future__ import annotations

import copy
import dataclasses
import random
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.machine import memory_in_use as held
from regard.tasks.objective import recipe_objective
from regard.text.batches.batch import Batch
from regard.training.budget import forecast as module
from regard.training.budget.forecast import (
    LATER_GROWTH,
    Counts,
    RunForecast,
    Seconds,
    counts_of,
    forecast,
    forecast_lines,
)
from regard.training.budget.memory import StepMemory
from regard.training.budget.trial_run import BatchSample, TrialRun
from regard.training.loop.train_step import TrainStep
from regard.training.prepared import Prepared
from regard.training.recipe.schema import TrainingRecipe
from regard.training.recipe.toml_file import read_recipe
from regard.training.run.dry_run import dry_run_report
from regard.training.run.prepare import prepare
from regard.training.signals import StopFlag
from regard.training.state.train_state import TrainState

CPU = torch.device("cpu")
MB = 1 << 20
QUICK = 0.01  # seconds a part


@pytest.fixture
def ready(make_recipe: Callable[..., Path]) -> Callable[..., Prepared]:
    """`ready(kind, **training)`: a small training that is prepared; a language model's is the quickest."""

    def ready(kind: str = "transformer-lm", **training: Any) -> Prepared:
        changes = {f"training.{key}": value for key, value in {"samples": 0, **training}.items()}
        return prepare(read_recipe(make_recipe(kind), changes), folder=None, say=lambda text: None)

    return ready


@pytest.mark.parametrize("kind", ["transformer", "rnn-seq2seq", "encoder", "transformer-lm"])
def test_every_kind_is_rehearsed(ready: Any, kind: str) -> None:
    found = forecast(ready(kind), seconds=QUICK)
    assert found.parameters == sum(one.numel() for one in ready(kind).model.parameters())
    assert found.step.weights < found.peak < found.room and found.fits and found.warning is None
    spent = found.seconds
    assert spent is not None and spent.steps == 12 * spent.step > 0
    assert min(spent.data, spent.validations, spent.saves) > 0 == spent.compiling
    assert spent.total == spent.steps + spent.data + spent.validations + spent.saves


@pytest.mark.parametrize(("kind", "training"), [("transformer", True), ("transformer-lm", False)])
def test_nothing_is_changed(
    ready: Any, kind: str, training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = ready(kind, freeze=["*norm*"], r_drop=1.0, ema=0.9)
    begun.model.train(training)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    files = sorted(tmp_path.rglob("*"))
    before, numbers = copy.deepcopy(begun.model.state_dict()), torch.get_rng_state()
    python, arrays = random.getstate(), np.random.get_state()[1].tolist()
    first = next(iter(begun.train.batches(0)))
    forecast(begun, seconds=QUICK)
    assert torch.equal(torch.get_rng_state(), numbers)
    assert random.getstate() == python and np.random.get_state()[1].tolist() == arrays
    assert all(torch.equal(weight, before[name]) for name, weight in begun.model.state_dict().items())
    assert all(one.grad is None and one.requires_grad for one in begun.model.parameters())
    assert begun.model.training == training
    again = next(iter(begun.train.batches(0)))
    assert again.ids == first.ids and torch.equal(again.labels, first.labels)
    assert sorted(tmp_path.rglob("*")) == files


def test_a_training_after_a_forecast_is_the_same(ready: Any) -> None:
    """Bit for bit, with dropout, subword sampling and a mean of the weights."""

    def trained(*, forecasts: bool) -> dict[str, torch.Tensor]:
        begun = ready("transformer", ema=0.9)
        if forecasts:
            forecast(begun, seconds=QUICK)
        loss = recipe_objective(begun.model, begun.recipe.training)
        state = TrainState(begun.model, begun.recipe.training, device=CPU)
        step = TrainStep(state, loss, begun.recipe.training)
        for _, batch in zip(range(4), begun.train.batches(0), strict=False):
            step([batch])
        assert state.ema is not None
        return {**begun.model.state_dict(), **{f"mean {name}": one for name, one in state.ema.weights.items()}}

    plain, after = trained(forecasts=False), trained(forecasts=True)
    assert len(plain) > 20 and all(torch.equal(weight, after[name]) for name, weight in plain.items())


# How often, and how long.


@pytest.mark.parametrize(
    ("settings", "start", "want"),
    [
        ({"steps": 100, "validate_every": 10, "save_every": 25}, 0, Counts(100, 10, 5)),  # a save before step 1
        ({"steps": 105, "validate_every": 10, "save_every": 25}, 0, Counts(105, 11, 6)),  # and at the last step
        ({"steps": 105, "validate_every": 10, "save_every": 25}, 60, Counts(45, 5, 3)),
        ({"steps": 100, "validate_every": 10, "save_every": 25, "average": 3}, 0, Counts(100, 11, 5)),
        ({"steps": 100, "validate_every": 10, "save_every": 25}, 100, Counts(0, 0, 0)),
        ({"steps": 100, "validate_every": 999, "save_every": 999}, 0, Counts(100, 1, 2)),
    ],
)
def test_counts(settings: dict[str, Any], start: int, want: Counts) -> None:
    assert counts_of(TrainingRecipe(**settings), start) == want


def test_times_add_up(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """12 steps of 3 micro-batches, 2 validations, three of four the best so far, 4 saves and one before step 1."""
    begun = ready(accumulate=3)
    plan = len(begun.train.plan(0))
    monkeypatch.setattr(TrialRun, "steps", lambda self: (2.0, 5.0))
    monkeypatch.setattr(TrialRun, "validation", lambda self, folder: (10.0, 7.0))
    monkeypatch.setattr(TrialRun, "save", lambda self, folder: 0.001)
    init = BatchSample.__init__

    epochs: list[int] = []

    def known(sample: BatchSample, data: Any, epoch: int = 0) -> None:
        epochs.append(epoch)
        init(sample, data, epoch)
        sample.seconds_an_epoch, sample.seconds_a_batch, sample.tokens_a_batch = 4.0, 0.5, 90.0

    monkeypatch.setattr(BatchSample, "__init__", known)
    found = forecast(begun)
    weights = found.step.weights
    assert found.counts == Counts(12, 2, 5)
    assert found.seconds == Seconds(
        step=2.0,
        tokens=270.0,
        steps=24.0,
        compiling=5.0,
        data=pytest.approx(36 * 0.5 + 36 / plan * 4.0),
        validations=2 * (10.0 + 0.75 * 7.0),
        saves=pytest.approx(0.001 * (5 * 3 * weights + 0.75 * 2 * weights)),
    )
    assert found.seconds.total == pytest.approx(24.0 + 5.0 + found.seconds.data + 30.5 + found.seconds.saves)
    later = forecast(begun, start=6, epoch=2).seconds
    assert later is not None and later.steps == 12.0
    assert epochs == [0, 2]  # the one at hand


# Memory.


def test_the_process_is_measured(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take 200 MB more than their tensors tell are noticed; the copy's weights are not counted."""
    begun, step = ready(), TrainStep.__call__
    before = held(CPU)
    if not before:
        return  # only Linux tells
    torch.ones(100 * MB)  # what was before does not count
    plain = forecast(begun, seconds=QUICK)

    def hungry(train_step: TrainStep, micro: list[Batch]) -> None:
        step(train_step, micro)
        torch.ones(50 * MB)

    monkeypatch.setattr(TrainStep, "__call__", hungry)
    found = forecast(begun, seconds=QUICK)
    assert 190 * MB < found.peak - found.before < LATER_GROWTH * 260 * MB
    assert plain.peak - plain.before < 100 * MB
    monkeypatch.setattr(module, "peak_memory", lambda device: found.before + 100 * MB + found.step.weights)
    again = forecast(begun, seconds=QUICK)
    want = again.before + LATER_GROWTH * (found.before + 100 * MB - again.before)
    assert again.peak == pytest.approx(want)


def test_without_an_account_tensors_are_counted(ready: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun = ready()
    counted = forecast(begun, seconds=0.0)
    monkeypatch.setattr("regard.machine.memory.PROCESS", tmp_path)
    found = forecast(begun, seconds=QUICK)
    assert found.before == 0 and found.peak == counted.peak - counted.before and found.seconds is not None


def test_what_does_not_fit_is_not_tried(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(train_step: TrainStep, micro: list[Batch]) -> None:
        raise AssertionError("the system would end the process")

    monkeypatch.setattr(TrainStep, "__call__", never)
    monkeypatch.setattr("regard.machine.memory.free_memory", lambda device: 30 * MB)
    found = forecast(ready())
    assert found.seconds is None and found.peak > found.room
    assert found.lines()[1].startswith("warning: training will not fit into memory: not even one row of")


def test_memory_that_runs_out_is_told(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(train_step: TrainStep, micro: list[Batch]) -> None:
        raise torch.OutOfMemoryError("no more")

    monkeypatch.setattr(TrainStep, "__call__", full)
    found = forecast(ready())
    assert found.seconds is None and not found.fits and found.peak >= found.room
    assert "will not fit into memory" in found.lines()[-1]
    monkeypatch.setattr(TrainStep, "__call__", lambda train_step, micro: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        forecast(ready())


def test_several_processes_share_what_is_free(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.machine.memory.free_memory", lambda device: 900 * MB)
    begun = ready()
    alone, shared = forecast(begun, seconds=0.0), forecast(begun, world=3, seconds=0.0)
    assert alone.room - alone.before == 900 * MB and shared.room - shared.before == 300 * MB
    assert shared.peak - shared.before < alone.peak - alone.before < 100 * MB
    assert shared.activations < 0.5 * alone.activations and shared.warning is None
    assert " for each process (" in shared.lines()[0] and " process" not in alone.lines()[0]


# What is said.


def a_forecast(**settings: Any) -> RunForecast:
    step = StepMemory(length=9, weights=4 * MB, gradients=4 * MB, optimizer=8 * MB, once=0, row=1)
    spent = Seconds(step=0.5, tokens=1000, steps=3625.0, compiling=0.0, data=2.0, validations=100.0, saves=3.0)
    values = {"parameters": MB, "before": 300 * MB, "step": step, "activations": 1536 * MB, "peak": 2048 * MB}
    others = {"room": 1 << 33, "fits": True, "advice": "do this", "counts": Counts(7250, 3, 4), "seconds": spent}
    return RunForecast(**{**values, **others, **settings})


def test_lines() -> None:
    assert a_forecast().lines() == [
        "memory: about 2.0 GB at the peak, of 8.0 GB "
        "(before training 300.0 MB, gradients 4.0 MB, optimizer 8.0 MB, activations 1.5 GB)",
        "time: about 1 h 02 min: 1 h 00 min for 7,250 steps (0.5 s each, 2,000 tokens a second), 2 s for data, "
        "1 min 40 s for 3 validations, 3 s for 4 saves",
    ]
    compiled = dataclasses.replace(a_forecast().seconds, compiling=60.0)
    assert ", 1 min 00 s to compile them, 2 s for data" in a_forecast(seconds=compiled).lines()[1]
    assert len(a_forecast(seconds=None).lines()) == 1


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"room": 1 << 30}, "will not fit"),
        ({"room": int(1.02 * (1 << 31))}, "will hardly fit"),
        ({"room": int(1.1 * (1 << 31))}, None),
        ({"fits": False}, "will not fit"),
    ],
)
def test_warning(settings: dict[str, Any], verdict: str | None) -> None:
    lines = a_forecast(**settings).lines()
    assert len(lines) == 2 + (verdict is not None)
    assert verdict is None or lines[2] == f"warning: training {verdict} into memory: do this"


def test_lines_for_the_beginning_of_a_training(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is told where that is cheap; a signal that came meanwhile is obeyed."""
    begun = ready()
    assert [line.partition(":")[0] for line in forecast_lines(begun)] == ["memory"]  # 12 steps are over at once
    monkeypatch.setattr(module, "SHORT_TRAINING", 12)
    monkeypatch.setattr(module, "BRIEF_SECONDS", QUICK)
    assert [line.partition(":")[0] for line in forecast_lines(begun)] == ["memory", "time"]
    assert [line.partition(":")[0] for line in forecast_lines(begun, start=1)] == ["memory"]
    assert [line.partition(":")[0] for line in forecast_lines(begun, world=2)] == ["memory"]
    assert [line.partition(":")[0] for line in forecast_lines(ready(compile=True))] == ["memory"]
    assert forecast_lines(ready(parallel="fsdp"), world=2) == []
    stop = StopFlag()
    stop.signal = signal.SIGTERM
    assert forecast_lines(begun, stop=stop) == []


def test_a_dry_run_tells_all(make_recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def told(ready: Prepared) -> RunForecast:
        asked.append(torch.are_deterministic_algorithms_enabled())
        return a_forecast()

    monkeypatch.setattr("regard.training.run.dry_run.forecast", told)
    report = dry_run_report(read_recipe(make_recipe(), {"training.deterministic": True}))
    for line in ("parameters: 1,048,576", *a_forecast().lines()):
        assert f"\n# {line}" in report
    assert asked == [True] and not torch.are_deterministic_algorithms_enabled()
