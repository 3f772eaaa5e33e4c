"""Compiled parts: how often something is compiled, and that steps stay what they are. The compiler is torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from regard.models.config import Config, RecurrentTranslatorConfig, TransformerConfig
from regard.models.presets import make_model
from regard.tasks.objective import objective
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import PAD
from regard.training.loop import train_step as train_step_module
from regard.training.loop.torch_compile import compile_parts, uncompiled
from regard.training.loop.train_step import TrainStep
from regard.training.recipe.schema import TrainingRecipe
from regard.training.state.train_state import TrainState

SIDES = {"source_vocabulary": 20, "target_vocabulary": 20}
STACK = TransformerConfig(**SIDES, layers=2, dim=16, heads=2, hidden=32, dropout=0.2)
CELL: dict[str, Any] = {**SIDES, "embedding": 8, "hidden": 16, "dropout": 0.2}
SHAPES = ((4, 5), (6, 7), (5, 9))


class Compiler(CompileCounter):
    """Counts graphs, and runs them as they are; `asked` is what torch.compile was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    torch.compiler.reset()
    counter, real = Compiler(), torch.compile

    def compile(model: Any, *, options: dict[str, Any], dynamic: bool | None) -> Any:
        counter.asked.append({"options": options, "dynamic": dynamic})
        return real(model, backend=counter, dynamic=dynamic)

    monkeypatch.setattr(torch, "compile", compile)
    yield counter
    torch.compiler.reset()


def make_batch(rows: int, width: int) -> Batch:
    draw = torch.Generator().manual_seed(rows)
    source, inputs, labels = torch.randint(4, 20, (3, rows, width), generator=draw)
    labels[0, -1] = source[1, -1] = PAD
    return Batch(list(range(rows)), source, inputs, labels, labels.numel() - 1, fixed=True)


def make(config: Config) -> Any:
    torch.manual_seed(0)
    return make_model(config).train()


def step(model: Any, batch: Batch) -> tuple[Tensor, ...]:
    """Loss and gradients, with dropout of one seed."""
    torch.manual_seed(1)
    loss = objective(model, smoothing=0.1)(model, batch)
    return loss.total, *torch.autograd.grad(loss.total, list(model.parameters()))


def same_steps(config: Config, shapes: tuple[tuple[int, int], ...], *, dynamic: bool) -> None:
    plain, compiled = make(config), make(config)
    compile_parts(compiled, dynamic=dynamic)
    for shape in shapes:
        torch.testing.assert_close(step(compiled, make_batch(*shape)), step(plain, make_batch(*shape)))


def test_one_graph_for_all_blocks_of_a_kind_and_all_shapes(compiler: Compiler) -> None:
    same_steps(STACK, SHAPES, dynamic=True)
    assert compiler.frame_count == 2  # of the encoder and of the decoder
    assert compiler.asked == [{"options": {"fallback_random": True}, "dynamic": True}] * 4


@pytest.mark.slow
def test_whole_stacks_for_one_shape(compiler: Compiler) -> None:
    same_steps(STACK, SHAPES[:1] * 2, dynamic=False)
    assert compiler.frame_count == 2
    assert compiler.asked == [{"options": {"fallback_random": True}, "dynamic": False}] * 2


def test_one_graph_for_the_steps_of_a_recurrent_translator(compiler: Compiler) -> None:
    same_steps(RecurrentTranslatorConfig(**CELL, cell="lstm"), SHAPES, dynamic=True)
    assert compiler.frame_count == 1
    assert {asked["dynamic"] for asked in compiler.asked} == {True}


def test_few_graphs_for_the_steps_of_a_recurrent_encoder(compiler: Compiler) -> None:
    """Both directions and all lengths; the first state is a constant. So it is where only a GPU knows the lengths."""
    model = make(RecurrentTranslatorConfig(**CELL, cell="gru"))
    compile_parts(model, dynamic=True)
    graphs = set()
    for rows, width in SHAPES:
        x, lengths = torch.randn(rows, width, 8), torch.arange(rows) % width + 1
        found, _ = model.encoder.rnn(x, lengths=lengths, backend="reference")
        with uncompiled():
            wanted, _ = model.encoder.rnn(x, lengths=lengths)
        torch.testing.assert_close(found, wanted)
        graphs.add(compiler.frame_count)
    assert len(graphs) == 1 and 0 < graphs.pop() <= 4


def test_words_that_go_in_one_go_are_not_compiled(compiler: Compiler) -> None:
    """Where nothing is fed back from word to word, torch's kernels do whole sentences."""
    for settings, compiled in (
        ({"style": "luong"}, False),
        ({"attention": "none"}, False),
        ({"style": "luong", "input_feeding": True}, True),
        ({}, True),
    ):
        model = make(RecurrentTranslatorConfig(**CELL, **settings))
        compile_parts(model, dynamic=True)
        assert ("step" in vars(model.decoder)) == compiled


def test_uncompiled_parts_run_as_they_are_written(compiler: Compiler) -> None:
    config = RecurrentTranslatorConfig(**CELL)
    plain, compiled = make(config), make(config)
    compile_parts(compiled, dynamic=False)
    with uncompiled():
        for shape in SHAPES:
            torch.testing.assert_close(step(compiled, make_batch(*shape)), step(plain, make_batch(*shape)))
    assert compiler.frame_count == 0
    with uncompiled(False):
        step(compiled, make_batch(*SHAPES[0]))
    assert compiler.frame_count == 1


def make_step(*, one_shape: bool = False, compile: bool = True) -> TrainStep:
    settings: dict[str, Any] = {"steps": 40, "lr": 1e-2, "warmup": 4, "schedule": "constant", "precision": "fp32"}
    recipe = TrainingRecipe(**settings, accumulate=1, compile=compile)
    model = make(STACK)
    state = TrainState(model, recipe, device=torch.device("cpu"))
    return TrainStep(state, objective(model), recipe, one_shape=one_shape)


def test_a_step_compiles_for_one_shape_where_there_is_one(compiler: Compiler) -> None:
    make_step(compile=False)
    assert compiler.asked == []
    for one_shape, dynamic in ((False, True), (True, False)):
        make_step(one_shape=one_shape)
        assert {asked["dynamic"] for asked in compiler.asked} == {dynamic}
        compiler.asked.clear()


def test_seconds_of_preparation(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of each shape compiles; the clock moves by one each time it is read."""
    clock = iter(range(1000))
    monkeypatch.setattr(train_step_module.time, "perf_counter", lambda: float(next(clock)))
    for compile, preparing in ((False, [0, 0, 0, 0]), (True, [1, 1, 2, 2])):
        train_step, found = make_step(compile=compile), []
        train_step.on_device = lambda micro: torch.zeros(2)  # type: ignore[method-assign]
        for shape in (0, 0, 1, 0):
            train_step([make_batch(*SHAPES[shape])])
            found.append(train_step.state.progress.preparing)
        assert found == preparing and train_step.state.progress.seconds == 4
