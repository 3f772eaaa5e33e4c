"""Memory of a step: counts by hand, torch's own profiler, what the process really holds; and nothing is changed."""

from __future__ import annotations

import copy
import dataclasses
import gc
import mmap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from regard.kernels.training import cross_entropy
from regard.machine import memory_in_use as held, peak_memory as peak_held, reset_peak_memory as forget_peak
from regard.models.config import TransformerConfig
from regard.models.presets import make_model
from regard.tasks.objective import recipe_objective
from regard.text.batches.batch import Batch
from regard.training.budget import memory
from regard.training.budget.fit import trial_step
from regard.training.budget.memory import (
    KERNEL_BYTES,
    SLACK,
    SavedTensors,
    StepMemory,
    format_bytes,
    full_batch,
    measuring_step,
    process_growth,
    saved_activations,
    size_of,
    step_memory,
)
from regard.training.loop.train_step import TrainStep
from regard.training.recipe.schema import DataRecipe, Recipe, TrainingRecipe
from regard.training.state.train_state import TrainState

from ...repeats import some

CPU = torch.device("cpu")
SIDES = {"source_vocabulary": 300, "target_vocabulary": 400}


def small(kind: str, **training: Any) -> tuple[nn.Module, TrainingRecipe]:
    sizes = (
        {"embedding": 32, "hidden": 48}
        if kind.startswith("rnn")
        else {"layers": 1, "dim": 32, "heads": 2, "hidden": 64}
    )
    settings = TrainingRecipe(steps=50, lr=1e-3, warmup=5, schedule="constant", **{"accumulate": 1, **training})
    recipe = Recipe(name="a", data=DataRecipe(demo=9), model={"kind": kind, "dropout": 0.1, **sizes}, training=settings)
    return make_model(recipe.config(**SIDES)), settings


def profiled_peak(model: nn.Module, batch: Batch, training: TrainingRecipe) -> int:
    """Most bytes that torch's allocator held at once in a step, beside the weights and Adam's means."""
    step = TrainStep(TrainState(model, training, device=CPU), recipe_objective(model, training), training)
    micro = [batch] * (training.accumulate or 1)
    step(micro)  # creates Adam's moments
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step(micro)
    assert found.profiler is not None
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def test_saved_tensors_are_what_backward_needs() -> None:
    """relu(x W): x for the gradient of W, the result for those of relu and square; weights are not counted."""
    layer, x = nn.Linear(5, 7, bias=False), torch.randn(3, 5, requires_grad=True)
    saved = SavedTensors(layer)
    with torch.autograd.graph.saved_tensors_hooks(saved.save, lambda tensor: tensor):
        y = torch.relu(layer(x))
        total = (y * y).sum()
    total.backward()
    assert sorted(saved.sizes.values()) == [4 * 3 * 5, 4 * 3 * 7]


@pytest.mark.parametrize("kind", some(["transformer", "rnn-attention", "transformer-lm", "encoder"], 3))
@pytest.mark.parametrize("accumulate", some([1, 2], 3))
def test_a_step_of_many_rows_is_told_from_few(kind: str, accumulate: int) -> None:
    model, training = small(kind, accumulate=accumulate)
    found = step_memory(model, recipe_objective(model, training), training, length=12, device=CPU)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert (found.weights, found.gradients, found.optimizer) == (4 * count, 4 * count, 8 * count)
    real = found.weights + found.optimizer + profiled_peak(model, full_batch(model, 24, 12, CPU), training)
    # The largest tensor of a sentence encoder is not the last one, so its gradients come when others have gone.
    assert found.peak(24, accumulate=accumulate) == pytest.approx(real, rel=0.15 if kind == "encoder" else 0.02)


def test_peak_by_hand() -> None:
    step = StepMemory(length=10, weights=100, gradients=60, optimizer=120, once=5, row=7)
    assert step.peak(20) == 100 + 120 + 5 + 7 * 20
    assert step.peak(20, accumulate=3) == 100 + 120 + 5 + 7 * 20 + 60  # of the micro-batches before
    assert step.peak(1) == 100 + 120 + 60  # few activations: the gradients are more at the end
    assert step.peak(20, accumulate=2, shards=4) == (100 + 120) / 4 + 5 + 7 * 20 + 60 / 4
    assert [step.rows(tokens) for tokens in (9, 10, 29, 100)] == [1, 1, 2, 10]
    assert [step.rows(100, world) for world in (2, 3, 50)] == [5, 4, 1]


def test_what_stands_beside_counts_at_the_worst_moment() -> None:
    step = StepMemory(
        length=10, weights=100, gradients=60, optimizer=120, once=5, row=7, temporary=lambda rows: rows**2
    )
    assert step.activations(20) == 5 + 7 * 20 + 400
    assert step.peak(20) == 100 + 120 + 5 + 7 * 20 + 400


@pytest.mark.parametrize("r_drop", [0.0, 1.0])
def test_scores_are_told_up_to_as_many_as_there_are_at_a_time(r_drop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32: scores, log-probabilities and gradient, and for R-Drop half of one more; in bf16 two of them wide."""
    model, training = small("transformer", r_drop=r_drop)
    passes, each = (2, 14) if r_drop else (1, 12)
    assert memory.scores(model, training, 50) == each * passes * 50 * 400
    half = dataclasses.replace(training, precision="bf16")
    assert memory.scores(model, half, 50) == (2 + 4 + 4 + 2) * passes * 50 * 400
    monkeypatch.setattr(cross_entropy, "MAX_CPU_SCORES", 1000)
    assert memory.scores(model, training, 50) == each * 1000
    assert memory.scores(small("encoder")[0], training, 50) == 0


def test_a_process_on_a_cpu_grows_by_more_than_its_tensors() -> None:
    assert process_growth(1000, CPU) == KERNEL_BYTES + SLACK * 1000
    assert process_growth(1000, torch.device("cuda")) == 1000


def test_frozen_parts_have_no_gradients() -> None:
    model, training = small("transformer", freeze=("encoder.*",))
    encoder = sum(parameter.numel() for name, parameter in model.named_parameters() if name.startswith("encoder."))
    found = step_memory(model, recipe_objective(model, training), training, length=12, device=CPU)
    assert found.weights - found.gradients == 4 * encoder > 0
    assert found.optimizer == 2 * found.gradients
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_settings_that_take_more_or_less() -> None:
    model, training = small("transformer")

    def measured(**settings: Any) -> StepMemory:
        changed = dataclasses.replace(training, **settings)
        return step_memory(model, recipe_objective(model, changed), changed, length=12, device=CPU)

    plain = measured()
    assert 0.4 * plain.row < measured(precision="bf16").row < 0.9 * plain.row
    assert 1.8 * plain.row < measured(r_drop=1.0).row < 2.5 * plain.row  # two passes
    assert measured(ema=0.9).optimizer == 3 * plain.gradients


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_changed(training: bool) -> None:
    model, settings = small("transformer")
    model.train(training)
    before, numbers = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    step_memory(model, recipe_objective(model, settings), settings, length=12, device=CPU)
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training == training


@pytest.mark.parametrize("kind", ["transformer", "rnn-lm", "encoder"])
def test_a_full_batch(kind: str) -> None:
    model, _ = small(kind)
    batch = full_batch(model, 50, 12, CPU)
    assert batch.labels.shape == batch.inputs.shape == (50, 12) and batch.tokens == 600
    assert int(batch.labels.min()) >= 4  # no padding, and no other special token
    assert (batch.source is None) == (kind == "rnn-lm")
    if kind == "transformer":
        assert batch.source is not None and batch.source.shape == (50, 12)
        assert int(batch.source.max()) < 300 <= int(batch.labels.max()) < 400
    step = measuring_step(model, recipe_objective(model, TrainingRecipe()), TrainingRecipe(), CPU)
    sizes = saved_activations(step, batch)
    assert sum(sizes.elements()) > max(sizes) > 0


def test_what_stands_beside_grows_from_tensors_that_grow() -> None:
    """The table's gradient, ready with the loss, is larger than all else of a few rows, and of many no larger."""
    training = TrainingRecipe()
    config = {"source_vocabulary": 9, "target_vocabulary": 5000, "layers": 1, "dim": 16, "heads": 2, "hidden": 32}
    model = make_model(TransformerConfig(**config))
    found = step_memory(model, recipe_objective(model, training), training, length=5, device=CPU)
    assert found.temporary(10_000) == memory.scores(model, training, 50_000) < 10_000 / 4 * (5000 * 16 * 4)


def test_what_the_process_holds() -> None:
    gc.collect()  # what earlier tests left behind must not go away between two looks
    forget_peak(CPU)
    before = held(CPU)
    if not before:
        return  # only Linux tells
    size = 64 << 20
    with mmap.mmap(-1, size) as block:  # new memory; torch may get some that an earlier test gave back
        for page in range(0, size, mmap.PAGESIZE):  # written, so that it is there
            block[page] = 1
        assert held(CPU) - before > 0.9 * size
    assert peak_held(CPU) - before > 0.9 * size
    forget_peak(CPU)
    assert peak_held(CPU) - before < 0.5 * size


def test_where_linux_account_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("regard.machine.memory.PROCESS", tmp_path / "none")
    forget_peak(CPU)
    assert held(CPU) == peak_held(CPU) == 0


def test_sizes_for_people() -> None:
    assert size_of([torch.ones(3), torch.ones(2, dtype=torch.float64)]) == 28
    assert [format_bytes(size) for size in (5 << 10, 3 << 20, 3 << 29)] == ["5 kB", "3.0 MB", "1.5 GB"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_on_cuda_takes_what_was_told(precision: str) -> None:
    """From 2 and 4 rows, for 200: what torch's allocator held at its peak, with the means and the gradients."""
    device = torch.device("cuda")
    sizes = {"kind": "transformer", "layers": 2, "dim": 256, "heads": 4, "hidden": 1024, "dropout": 0.1}
    training = TrainingRecipe(precision=precision, accumulate=2)
    recipe = Recipe(name="a", data=DataRecipe(demo=9), model=sizes, training=training)
    model = make_model(recipe.config(source_vocabulary=8000, target_vocabulary=8000)).to(device)
    found = step_memory(model, recipe_objective(model, training), training, length=50, device=device)
    gc.collect()  # what earlier tests left behind must not go away in between
    torch.cuda.empty_cache()
    before = held(device)
    forget_peak(device)
    trial_step(model, recipe, rows=200, length=50, device=device)
    assert found.peak(200, accumulate=2) == pytest.approx(peak_held(device) - before, rel=0.15)
