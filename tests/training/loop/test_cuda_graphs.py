"""Recorded steps: against the same steps taken one by one, on a CPU with a recorder of our own, and on a GPU.

The stand-in for a CUDA graph notes torch's operators, takes back what they did, and repeats them on the same tensors.
So whatever a step keeps in Python and not in a tensor (a learning rate, a count) would be repeated as it was.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.errors import UsageError
from regard.models.config import (
    AnswererConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.presets import make_model
from regard.tasks.objective import recipe_objective
from regard.text.batches.batch import Batch
from regard.text.batches.length_buckets import pad_rows
from regard.text.tokenizers.special_tokens import END, PAD, START, pad_batch
from regard.training.loop import train_step as train_step_module
from regard.training.loop.cuda_graphs import CapturedSteps, shapes
from regard.training.loop.train_step import TrainStep
from regard.training.recipe.schema import TrainingRecipe
from regard.training.state.train_state import TrainState

SIDES = {"source_vocabulary": 20, "target_vocabulary": 20}
STACK: dict[str, Any] = {"layers": 1, "dim": 16, "heads": 2, "hidden": 32, "dropout": 0.2}
MODELS = {
    "transformer": TransformerConfig(**SIDES, **STACK),
    "gru": RecurrentTranslatorConfig(**SIDES, cell="gru", embedding=8, hidden=16, dropout=0.2),
    "lstm": RecurrentTranslatorConfig(**SIDES, cell="lstm", embedding=8, hidden=16, dropout=0.2),
    "language model": TransformerLMConfig(vocabulary=20, **STACK),
    "answerer": AnswererConfig(**SIDES, **STACK, position="t5"),
}
WIDTHS = (6, 9)  # of the two shapes


class Tape(TorchDispatchMode):
    """Notes operators as a CUDA graph does: when it ends, nothing has changed, not even the random numbers to come."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Any, Any, Any, Any]] = []
        self.before: dict[int, tuple[Any, Any]] = {}
        self.random = torch.get_rng_state()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        for one in tree_leaves((args, kwargs)):
            if isinstance(one, Tensor):
                storage = one.untyped_storage()
                self.before.setdefault(storage.data_ptr(), (storage, storage.clone()))
        found = func(*args, **(kwargs or {}))
        if func.namespace != "profiler":
            self.noted.append((func, args, kwargs or {}, found))
        return found

    def take_back(self) -> None:
        for storage, content in self.before.values():
            storage.copy_(content)
        torch.set_rng_state(self.random)


class Graph:
    """torch.cuda.CUDAGraph of a CPU."""

    tape: Tape

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, found in self.tape.noted:
                again = func(*args, **kwargs)
                for place, value in zip(tree_leaves(found), tree_leaves(again), strict=True):
                    if isinstance(place, Tensor) and place.data_ptr() != value.data_ptr():
                        place.copy_(value)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's CUDA graphs, replaced by ones of a CPU."""
    recording: list[Tape] = []

    @contextmanager
    def graph(graph: Graph, *, pool: object, capture_error_mode: str) -> Iterator[None]:
        assert (pool, capture_error_mode) == ("the pool", "thread_local")
        recording.append(Tape())
        try:
            with recording[-1]:
                yield
        finally:
            graph.tape = recording.pop()
            graph.tape.take_back()

    monkeypatch.setattr(gc, "collect", int)  # it takes a while, and nothing here is tied to a recording
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "the pool")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(recording))


def make_batch(seed: int, width: int = WIDTHS[0], *, rows: int = 5, translates: bool = True) -> Batch:
    """Some random pairs of that width, and below them rows of padding."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, width, (rows - 1 - seed % 2,), generator=draw).tolist()
    texts = [torch.randint(4, 20, (n,), generator=draw).tolist() for n in [width - 1, *lengths[1:]]]
    source, labels = (pad_batch([[*text[::way], END] for text in texts]) for way in (1, -1))
    inputs = pad_batch([[START, *text[::-1]] for text in texts])
    ends = torch.randint(1, width, (len(texts), 1), generator=draw)  # of the tokens that an answer is taken from
    batch = Batch(
        list(range(len(texts))),
        source if translates else None,
        inputs,
        labels,
        int((labels != PAD).sum()),
        support=torch.cat([ends - 1, ends], dim=1),
    )
    return pad_rows(batch, rows)


def make_step(
    kind: str = "transformer",
    *,
    device: str = "cpu",
    capture: bool = False,
    warn: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> TrainStep:
    chosen: dict[str, Any] = {"steps": 40, "lr": 1e-2, "warmup": 4, "schedule": "inverse-sqrt", "precision": "fp32"}
    chosen |= {
        "accumulate": 1,
        "label_smoothing": 0.1,
        "r_drop": 1.0,
        "ema": 0.9,
        "clip": 0.5,
        "pointing": 1.0,
        **settings,
    }
    recipe = TrainingRecipe(capture=capture, **chosen)
    torch.manual_seed(0)
    model = make_model(MODELS[kind]).to(device)
    loss = recipe_objective(model, recipe)
    state = TrainState(model, recipe, device=torch.device(device))
    step = TrainStep(state, loss, recipe, describe_sample=lambda sample, epoch: f"a.fr:{sample + 1}", warn=warn)
    if device == "cpu":  # what a step on a GPU does by itself
        for group in state.optimizer.param_groups:
            group["lr"] = torch.zeros(())
            group["capturable"] = True  # where there is a GPU too, AdamW insists on it while a step is captured
        if capture:
            step.graphs = CapturedSteps(step.on_device, warn)
    return step


def steps(step: TrainStep, count: int = 12, *, translates: bool = True) -> dict[str, Any]:
    """Steps on new batches of two shapes in turn -> all that they change."""
    torch.manual_seed(1)
    for seed in range(count):
        step([make_batch(seed, WIDTHS[seed % 2], translates=translates).to(step.state.device)])
    step.record_losses()
    parameters = [*step.state.model.parameters()]
    return {
        "weights": [parameter.detach() for parameter in parameters],
        "mean": [] if step.state.ema is None else [*step.state.ema.weights.values()],
        "optimizer": [step.state.optimizer.state[parameter] for parameter in parameters],
        "seen": [step.state.meter.nll, step.state.meter.norm, step.state.progress.skipped, step.state.progress.tokens],
        "random": torch.randn(3, device=step.state.device),
    }


def compare(kind: str, device: str, **settings: Any) -> None:
    """Recorded steps with those that are taken one by one."""
    eager, recorded = (make_step(kind, device=device, capture=capture, **settings) for capture in (False, True))
    before = [parameter.detach().clone() for parameter in recorded.state.model.parameters()]
    wanted, found = (steps(step, translates=kind != "language model") for step in (eager, recorded))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert eager.graphs is None and recorded.graphs is not None
    assert [one is None for one in recorded.graphs.captured.values()] == [False, False]
    assert max((now - old).abs().max() for now, old in zip(found["weights"], before, strict=True)) > 0.01


@pytest.mark.parametrize("kind", ["transformer", "language model", "answerer"])
def test_repeated_steps_are_those_taken_one_by_one(kind: str, recorder: None) -> None:
    """Bit by bit: weights, their mean, Adam's state, losses, and the random numbers to come."""
    compare(kind, "cpu")


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that give the same bits each time."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@needs_cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", MODELS)
def test_repeated_steps_are_those_taken_one_by_one_cuda(kind: str, precision: str, deterministic: None) -> None:
    compare(kind, "cuda", precision=precision)


def leave_one_out(device: str) -> None:
    """A batch that claims to have no tokens is divided by 0; that is seen in the repeated steps too."""
    said: list[str] = []
    step = make_step(device=device, capture=True, warn=said.append)
    batch = make_batch(3).to(step.state.device)
    for number in range(5):
        before = copy.deepcopy(contents(step))
        step([dataclasses.replace(batch, global_tokens=0) if number == 3 else batch])
        assert same(contents(step), before) == (number == 3)
    step.record_losses()
    assert (step.state.progress.skipped, step.state.progress.skipped_in_row, step.state.meter.steps) == (1, 0, 4)
    assert len(said) == 1 and re.match(r"step skipped: .* not finite at step 4, .* on a\.fr:1, a\.fr:2", said[0])


def contents(step: TrainStep) -> list[Tensor]:
    """Weights, and what Adam keeps."""
    adam = [value for values in step.state.optimizer.state.values() for value in values.values()]
    return [*(parameter.detach() for parameter in step.state.model.parameters()), *adam]


def same(ones: list[Tensor], others: list[Tensor]) -> bool:
    return len(ones) == len(others) and all(map(torch.equal, ones, others))


def test_a_repeated_step_without_finite_gradients_changes_nothing(recorder: None) -> None:
    leave_one_out("cpu")


@needs_cuda
def test_a_repeated_step_without_finite_gradients_changes_nothing_cuda() -> None:
    leave_one_out("cuda")


class Doubled:
    """A step that finds twice the labels, and says what it was shown."""

    def __init__(self) -> None:
        self.shown: list[list[Batch]] = []
        self.failure: Exception | None = None

    def __call__(self, micro: list[Batch]) -> Tensor:
        self.shown.append(micro)
        if self.failure is not None and torch.cuda.is_current_stream_capturing():
            raise self.failure
        return torch.cat([2 * batch.labels.flatten() + batch.inputs.flatten() for batch in micro])


def found_in(micro: list[Batch]) -> list[int]:
    return torch.cat([2 * batch.labels.flatten() + batch.inputs.flatten() for batch in micro]).tolist()


def test_the_first_runs_the_second_is_recorded_and_then_it_is_repeated(recorder: None) -> None:
    """Each shape for itself; sources and micro-batches count to it."""
    work = Doubled()
    captured = CapturedSteps(work, pytest.fail)
    for order, kind in enumerate(([6], [9], [6, 6], [6, 9], [9, 6])):
        for number in range(5):
            micro = [make_batch(7 * number + width, width) for width in kind]
            assert captured.is_prepared(micro) == (number > 1)
            assert captured(micro).tolist() == found_in(micro)
            assert len(work.shown) == 2 * order + min(number + 1, 2)
    wide = dataclasses.replace(make_batch(1), source=make_batch(1, WIDTHS[1]).source)
    assert not captured.is_prepared([wide])
    assert shapes([wide]) == ((5, 9), (5, 6))
    assert shapes([dataclasses.replace(wide, source=None)]) == ((5, 6),)


def test_batches_are_put_into_places_of_their_own(recorder: None) -> None:
    """At the same addresses each time, rows one after another, and what was given stays."""
    work = Doubled()
    captured = CapturedSteps(work, pytest.fail)
    places = set()
    for number in range(4):
        wide = make_batch(number, 12)
        columns = make_batch(number).inputs.T.contiguous().T  # they lie one after another
        given = dataclasses.replace(make_batch(number), source=wide.source[:, ::2], inputs=columns)
        captured([given])
        (own,) = work.shown[-1]
        for name in ("source", "inputs", "labels", "support"):
            place, value = getattr(own, name), getattr(given, name)
            assert torch.equal(place, value) and place.is_contiguous()
            assert place.data_ptr() != value.data_ptr()
            places.add(place.data_ptr())
    assert len(places) == 4 and len(work.shown) == 2


def test_what_is_forgotten_runs_as_ever(recorder: None) -> None:
    work = Doubled()
    captured = CapturedSteps(work, pytest.fail)
    for number in range(8):
        micro = [make_batch(number)]
        if number in (1, 5):  # before and after others are recorded
            captured.disable([make_batch(9, WIDTHS[number // 5])])
        assert captured(micro).tolist() == found_in(micro)
    assert len(work.shown) == 8
    assert captured.is_prepared([make_batch(9, WIDTHS[1])])


def test_memory_that_is_short_while_recording(recorder: None) -> None:
    work, said = Doubled(), []
    captured = CapturedSteps(work, said.append)
    work.failure = torch.OutOfMemoryError("CUDA out of memory")
    for number in range(4):
        micro = [make_batch(number)]
        assert captured(micro).tolist() == found_in(micro)
    assert said == ["steps of 5 rows run without a CUDA graph: memory is short"]
    assert len(work.shown) == 5  # the second was tried in vain


def test_a_generator_that_does_not_survive_ends_the_training(recorder: None) -> None:
    """torch tells of an earlier error; that is what the user must hear of, and what to do."""
    work = Doubled()
    captured = CapturedSteps(work, pytest.fail)
    captured([make_batch(0)])
    work.failure = RuntimeError("Offset increment outside graph capture: previous error during capture")
    work.failure.__context__ = RuntimeError("operation not permitted\nCUDA kernel errors might be")
    message = r"cannot be captured \(operation not permitted\): train with --set training\.capture=false"
    with pytest.raises(UsageError, match=message):
        captured([make_batch(1)])


def test_a_step_that_waits_cannot_be_recorded_and_is_right_nevertheless(recorder: None) -> None:
    """On a CPU the recurrent encoder looks at the lengths; on a GPU it may not, and the test above would tell."""
    said: list[str] = []
    eager, recorded = make_step("gru"), make_step("gru", capture=True, warn=said.append)
    torch.testing.assert_close(steps(recorded, 6), steps(eager, 6), rtol=0, atol=0)
    assert said == ["steps of 5 rows run without a CUDA graph: operation not permitted when stream is capturing"] * 2


def out_of_memory(step: TrainStep, *, recording: int = 0) -> list[str]:
    """No memory for 5 rows; or only while a step is recorded, for its micro-batch of that number. Gives warnings."""
    good, said, recorded = step.loss_function, [], []

    def limited(model: nn.Module, batch: Batch) -> Any:
        if torch.cuda.is_current_stream_capturing():
            recorded.append(batch)
        if len(recorded) == recording if recording else len(batch.labels) == 5:
            recorded.clear()
            raise torch.OutOfMemoryError("CUDA out of memory")
        return good(model, batch)

    step.loss_function, step.warn = limited, said.append
    if step.graphs is not None:
        step.graphs.warn = said.append
    return said


def test_steps_in_halves_are_not_recorded(recorder: None) -> None:
    eager, recorded = (make_step(capture=capture) for capture in (False, True))
    out_of_memory(eager)
    said = out_of_memory(recorded)
    torch.testing.assert_close(steps(recorded, 6), steps(eager, 6), rtol=0, atol=0)
    assert [re.sub(r"\d", "n", one) for one in said] == ["step n did not fit into memory and is done in halves"] * 6


def test_a_step_that_cannot_be_recorded_is_not_done_in_halves(recorder: None) -> None:
    eager, recorded = (make_step(capture=capture) for capture in (False, True))
    said = out_of_memory(recorded, recording=1)
    torch.testing.assert_close(steps(recorded, 6), steps(eager, 6), rtol=0, atol=0)
    assert said == ["steps of 5 rows run without a CUDA graph: memory is short"] * 2  # of two shapes


def test_gradients_of_a_recording_that_failed_are_not_used(recorder: None) -> None:
    """Memory was short in the midst of it: the first micro-batch had left gradients that were never computed."""
    eager, recorded = (make_step(capture=capture) for capture in (False, True))
    said = out_of_memory(recorded, recording=2)
    micro = [make_batch(1), make_batch(2)]
    for step in (eager, recorded):
        torch.manual_seed(1)
        for _ in range(4):
            step(micro)
    assert len(said) == 1
    assert same(contents(recorded), contents(eager))


def test_seconds_of_preparation(recorder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two steps of each shape choose kernels and record; the clock moves by one each time it is read."""
    clock = iter(range(1000))
    monkeypatch.setattr(train_step_module.time, "perf_counter", lambda: float(next(clock)))
    step = make_step(capture=True)
    found = []
    for number in range(9):
        step([make_batch(number, WIDTHS[number // 3 % 2])])
        found.append(step.state.progress.preparing)
    assert found == [1, 2, 2, 3, 4, 4, 4, 4, 4]
    assert step.state.progress.seconds == 9
