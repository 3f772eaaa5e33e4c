"""The forecast: bytes against counts by hand and against torch's own profiler, and nothing is changed by asking."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from regard.models.presets import make_model
from regard.text.batching import Batch
from regard.training.forecast import Forecast, Meter, Repeat, forecast
from regard.training.loop import Loop
from regard.training.loss import objective
from regard.training.recipe import DataRecipe, Recipe, TrainingRecipe

VOCABULARY = 400


def small(kind: str, **training: Any) -> tuple[nn.Module, Batch, Recipe]:
    sizes = (
        {"embedding": 32, "hidden": 48}
        if kind.startswith("rnn")
        else {"layers": 1, "dim": 32, "heads": 2, "hidden": 64}
    )
    settings = TrainingRecipe(steps=50, lr=1e-3, warmup=5, schedule="constant", **training)
    recipe = Recipe(name="a", data=DataRecipe(demo=9), model={"kind": kind, "dropout": 0.1, **sizes}, training=settings)
    tokens = torch.randint(4, VOCABULARY, (24, 12))
    source = None if kind.endswith("lm") else tokens
    model = make_model(recipe.config(source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY))
    return model, Batch(list(range(24)), source, tokens, tokens, tokens.numel()), recipe


def profiled_peak(model: nn.Module, batch: Batch, recipe: Recipe) -> int:
    """Most bytes that torch's allocator held at once in a step, beside the weights and Adam's means."""
    loop = Loop(model, Repeat(batch), objective(model), recipe.training, device=torch.device("cpu"))
    micro = [batch] * recipe.training.accumulate
    loop.train_step(micro)  # makes the means
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        loop.train_step(micro)
    assert found.profiler is not None
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def test_meter_counts_what_backward_needs() -> None:
    """relu(x W): x for the gradient of W, the result for those of relu and square; weights are not counted."""
    layer, x = nn.Linear(5, 7, bias=False), torch.randn(3, 5, requires_grad=True)
    meter = Meter(layer)
    with torch.autograd.graph.saved_tensors_hooks(meter.keep, lambda tensor: tensor):
        y = torch.relu(layer(x))
        total = (y * y).sum()
    total.backward()
    assert sorted(meter.kept.values()) == [4 * 3 * 5, 4 * 3 * 7]


@pytest.mark.parametrize("kind", ["transformer", "rnn-attention", "transformer-lm", "encoder"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_memory(kind: str, accumulate: int) -> None:
    model, batch, recipe = small(kind, accumulate=accumulate)
    found = forecast(model, batch, objective(model), recipe)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert (found.parameters, found.weights, found.gradients, found.optimizer) == (
        count,
        4 * count,
        4 * count,
        8 * count,
    )
    assert found.tokens_a_step == 24 * 12 * accumulate and found.steps == 50
    real = found.weights + found.optimizer + profiled_peak(model, batch, recipe)
    # The largest tensor of a sentence encoder is not the last one, so its gradients come when others have gone.
    assert found.peak == pytest.approx(real, rel=0.15 if kind == "encoder" else 0.01)


def test_frozen_parts_have_no_gradients() -> None:
    model, batch, recipe = small("transformer", freeze=("encoder.*",))
    encoder = sum(parameter.numel() for name, parameter in model.named_parameters() if name.startswith("encoder."))
    found = forecast(model, batch, objective(model), recipe)
    assert found.weights - found.gradients == 4 * encoder > 0 and found.optimizer == 2 * found.gradients
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_changed(training: bool) -> None:
    model, batch, recipe = small("transformer")
    model.train(training)
    before, numbers = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = forecast(model, batch, objective(model), recipe)
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training == training
    assert found.seconds_a_step and found.seconds == 50 * found.seconds_a_step


def test_half_precision_keeps_less() -> None:
    model, batch, recipe = small("transformer")
    half = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, precision="bf16"))
    full = forecast(model, batch, objective(model), recipe).activations
    assert 0.4 * full < forecast(model, batch, objective(model), half).activations < 0.9 * full


def test_memory_that_runs_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(loop: Loop, micro: list[Batch]) -> None:
        raise torch.OutOfMemoryError("no more")

    monkeypatch.setattr(Loop, "train_step", full)
    model, batch, recipe = small("transformer")
    found = forecast(model, batch, objective(model), recipe)
    assert found.seconds_a_step is None and found.seconds is None
    assert found.warning and "will not fit into memory" in found.lines()[-1]


def a_forecast(**settings: Any) -> Forecast:
    values = {"weights": 4 << 20, "gradients": 4 << 20, "optimizer": 8 << 20, "activations": 3 << 29, "peak": 1 << 31}
    times = {"seconds_a_step": 0.5, "tokens_a_step": 1000, "steps": 7250}
    return Forecast(**{"parameters": 1 << 20, "free": 1 << 33, **values, **times, **settings})


def test_lines() -> None:
    assert a_forecast().lines() == [
        "parameters: 1,048,576",
        "memory: about 2.0 GB at the peak, of 8.0 GB free "
        "(weights 4.0 MB, gradients 4.0 MB, optimizer 8.0 MB, activations 1.5 GB)",
        "time: about 1 h 00 min for 7,250 steps, validation not counted (0.5 s a step, 2,000 tokens a second)",
    ]


@pytest.mark.parametrize(
    ("free", "verdict"), [(1 << 30, "will not fit"), (int(1.05 * (1 << 31)), "will hardly fit"), (1 << 32, None)]
)
def test_warning(free: int, verdict: str | None) -> None:
    warning = a_forecast(free=free).warning
    assert warning is None if verdict is None else verdict in str(warning) and "batch_tokens" in str(warning)
