"""The step against a plain loop written by hand, and the properties that a trainer is trusted for."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import DivergedError, ResourceError, UsageError
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.recipes.schedule import learning_rate
from regard.tasks.objective import objective
from regard.tasks.validation import Validation
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END, PAD, START, pad_batch
from regard.training.checkpoint.checkpoints import Checkpoints
from regard.training.loop.loop import Loop
from regard.training.loop.pending_losses import MAX_PENDING, PendingLosses, QueuedStep
from regard.training.loop.report import Report
from regard.training.loop.train_step import MAX_CONSECUTIVE_SKIPS, TrainStep
from regard.training.parallel.group import ALONE
from regard.training.recipe.schema import TrainingRecipe
from regard.training.signals import StopFlag
from regard.training.state.optimizer import freeze, make_optimizer, set_learning_rate, update_if_finite
from regard.training.state.train_state import TrainState

CPU = torch.device("cpu")


def make_batch(seed: int, rows: int, longest: int = 7) -> Batch:
    """Random pairs; the target is the source backwards."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest + 1, (rows,), generator=draw).tolist()
    sources = [torch.randint(4, 20, (n,), generator=draw).tolist() for n in lengths]
    labels = pad_batch([[*s[::-1], END] for s in sources])
    inputs = pad_batch([[START, *s[::-1]] for s in sources])
    ids = list(range(rows))
    return Batch(ids, pad_batch([[*s, END] for s in sources]), inputs, labels, int((labels != PAD).sum()))


class Endless:
    """Data that hands out the same batches again and again."""

    def __init__(self, batches: list[Batch]) -> None:
        self.all = batches

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        done = 0
        for batch in self.all:
            if done >= start:
                yield batch
            done += len(batch.ids)


def make_model(*, dtype: torch.dtype = torch.float64, dropout: float = 0.0) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(
        source_vocabulary=20, target_vocabulary=20, layers=1, dim=16, heads=2, hidden=32, dropout=dropout
    )
    return Transformer(config).to(dtype)


def make_step(model: Transformer | None = None, **settings: object) -> TrainStep:
    values = {
        "steps": 40,
        "batch_tokens": 100,
        "accumulate": 1,
        "lr": 1e-2,
        "warmup": 4,
        "schedule": "inverse-sqrt",
        "precision": "fp32",
        "device": "cpu",
        "validate_every": 5,
        "save_every": 5,
        "label_smoothing": 0.1,
        "log_every": 5,
    }
    recipe = TrainingRecipe(**{**values, **settings})
    model = model or make_model()
    smoothing = recipe.label_smoothing or 0.0
    state = TrainState(model, recipe, device=CPU)
    return TrainStep(
        state,
        objective(model, smoothing=smoothing),
        recipe,
        describe_sample=lambda sample, epoch: f"a.fr:{sample + 1}",
    )


def make_loop(
    step: TrainStep,
    batches: list[Batch],
    folder: Path = Path("unused"),
    *,
    scores: Callable[[int], float] = lambda step: 0.0,
    save_best: Callable[[], None] = lambda: None,
) -> Loop:
    """A loop whose validations have these scores."""
    return Loop(
        step,
        Endless(batches),
        Checkpoints(folder, keep=2),
        validate=lambda number: Validation(scores(number), {}, ""),
        save_best=save_best,
        stop=StopFlag(),
    )


def train_steps(train_step: TrainStep, count: int) -> None:
    for _ in range(count):
        train_step([make_batch(6, 4)])


def flat(model: Transformer) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def plain_steps(
    model: Transformer, batches: list[Batch], *, rates: list[float], clip: float, decay: float
) -> list[float]:
    """What every tutorial writes: cross-entropy with ignored padding, AdamW, clipping. Gives the gradients' norms."""
    norms = []
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, foreach=False, fused=False)
    model.train()
    for batch, rate in zip(batches, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        logits = model(batch.source, batch.inputs)
        F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD, label_smoothing=0.1).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        optimizer.step()
    return norms


def test_steps_equal_a_plain_loop() -> None:
    """Loss, clipping, learning rate and AdamW together, against torch's own parts put together here."""
    batches = [make_batch(seed, 6) for seed in range(5)]
    train_step = make_step(clip=0.5, weight_decay=0.1)
    plain = copy.deepcopy(train_step.state.model)
    rates = [learning_rate(step, kind="inverse-sqrt", peak=1e-2, warmup=4) for step in range(1, 6)]
    norms = plain_steps(plain, batches, rates=rates, clip=0.5, decay=0.1)
    before = flat(train_step.state.model)
    for batch in batches:
        train_step([batch])
    assert (flat(train_step.state.model) - before).abs().max() > 1e-2
    torch.testing.assert_close(flat(train_step.state.model), flat(plain), rtol=0, atol=1e-9)
    # Adam forgives a wrong factor before the gradient; its norm does not.
    assert train_step.state.meter.values(ALONE)["gradient_norm"] == pytest.approx(sum(norms) / 5, rel=1e-9)


def test_accumulation_counts_every_token_once() -> None:
    """Micro-batches of 2 and 9 sentences give the update of all 11 together, not the mean of two means."""
    small, large = make_batch(1, 2), make_batch(2, 9)
    parts = make_step(accumulate=2, clip=0.0)
    whole = make_step(clip=0.0)
    width = max(small.labels.shape[1], large.labels.shape[1])
    deep = max(small.source.shape[1], large.source.shape[1])

    def join(name: str, wide: int) -> Tensor:
        sides = [getattr(batch, name) for batch in (small, large)]
        return torch.cat([F.pad(side, (0, wide - side.shape[1]), value=PAD) for side in sides])

    both = Batch(
        list(range(11)),
        join("source", deep),
        join("inputs", width),
        join("labels", width),
        small.tokens + large.tokens,
    )
    parts([small, large])
    whole([both])
    torch.testing.assert_close(flat(parts.state.model), flat(whole.state.model), rtol=0, atol=1e-9)
    assert parts.state.progress.tokens == whole.state.progress.tokens == both.tokens


def test_the_reported_loss_is_the_true_likelihood() -> None:
    """Smoothing changes what is trained on, never what is reported."""
    batch = make_batch(3, 8)
    told = []
    for smoothing in (0.0, 0.4):
        train_step = make_step(label_smoothing=smoothing)
        with torch.no_grad():
            logits = train_step.state.model(batch.source, batch.inputs)
            want = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD)
        train_step([batch])
        values = train_step.state.meter.values(ALONE)
        assert values["loss"] == pytest.approx(want.item(), abs=1e-9)
        assert values["perplexity"] == pytest.approx(math.exp(want.item()), rel=1e-9)
        told.append(flat(train_step.state.model))
    assert not torch.equal(*told)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_takes_nearly_the_same_step(precision: str) -> None:
    """A gradient that is clipped before it is unscaled would be 65,536 times too small and leave Adam's eps to win."""
    batch = make_batch(4, 8)
    models = []
    for kind in ("fp32", precision):
        train_step = make_step(make_model(dtype=torch.float32), precision=kind, clip=0.5, eps=1e-2)
        before = flat(train_step.state.model)
        for _ in range(3):
            train_step([batch])
        models.append(flat(train_step.state.model) - before)
    assert models[0].norm() > 0.01
    assert (models[0] - models[1]).norm() < 0.05 * models[0].norm()


def test_the_learning_rate_follows_the_schedule() -> None:
    train_step = make_step()
    for step in range(1, 8):
        train_step([make_batch(5, 4)])
        rate = 1e-2 * (step / 4 if step < 4 else math.sqrt(4 / step))
        assert all(group["lr"] == pytest.approx(rate) for group in train_step.state.optimizer.param_groups)


def test_a_step_without_finite_gradients_changes_nothing() -> None:
    train_step = make_step()
    good = train_step.loss_function
    train_step([make_batch(6, 4)])
    before = flat(train_step.state.model)

    def broken(model: Transformer, batch: Batch):
        loss = good(model, batch)
        return loss._replace(total=loss.total * math.nan)

    train_step.loss_function = broken
    train_step([make_batch(6, 4)])
    assert torch.equal(flat(train_step.state.model), before)
    assert (train_step.state.progress.skipped, train_step.state.progress.skipped_in_row) == (1, 1)
    train_step.loss_function = good
    train_step([make_batch(6, 4)])
    assert (train_step.state.progress.skipped, train_step.state.progress.skipped_in_row) == (1, 0)
    train_step.loss_function = broken
    with pytest.raises(
        DivergedError, match=r"at step 23, with learning rate 0\.004.*, on a\.fr:1, a\.fr:2, a\.fr:3, a\.fr:4;"
    ) as error:
        train_steps(train_step, MAX_CONSECUTIVE_SKIPS)
    assert error.value.exit_code == 5
    assert flat(train_step.state.model).isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_an_update_without_finite_gradients_is_left_out(bad: float, kind: str) -> None:
    """Neither the weights nor anything of Adam's changes, its count of steps included; then it goes on."""
    model = nn.Linear(5, 1, bias=False)
    recipe = TrainingRecipe(optimizer=kind, weight_decay=0.1)
    optimizer, plain = (make_optimizer(either, recipe) for either in (model, copy.deepcopy(model)))

    def step(optimizer: torch.optim.Optimizer, *gradient: float) -> list[Tensor]:
        (one,) = (parameter for group in optimizer.param_groups for parameter in group["params"])
        one.grad = torch.tensor([gradient], dtype=torch.float32)
        set_learning_rate(optimizer, 0.1)
        update_if_finite(optimizer, one.grad.norm())
        return [one.detach(), *optimizer.state[one].values()]

    step(optimizer, 1, 2, 3, 4, 5)
    before = copy.deepcopy(step(optimizer, 5, 4, 3, 2, 1))
    after = step(optimizer, 1, bad, 1, 1, 1)
    assert len(after) == 4 and all(map(torch.equal, after, before))
    assert not hasattr(optimizer, "found_inf")  # or it would hold for steps of others too
    found = step(optimizer, 3, 1, 4, 1, 5)
    for gradient in ((1, 2, 3, 4, 5), (5, 4, 3, 2, 1), (3, 1, 4, 1, 5)):
        wanted = step(plain, *gradient)
    assert all(map(torch.equal, found, wanted)) and not torch.equal(found[0], before[0])


class Late(PendingLosses):
    """Numbers that arrive when all are waited for, as those of a GPU that is behind."""

    def arrived(self, *, wait: bool = False) -> Iterator[tuple[QueuedStep, float, float]]:
        return super().arrived() if wait else iter(())


def test_numbers_that_arrive_late_belong_to_their_step(tmp_path) -> None:
    """A step is left out on the device; that it was is heard later, and told with that step's rate and sentences."""
    train_step = make_step()
    assert train_step.pending.max_pending == MAX_PENDING
    train_step.pending, said = Late(MAX_PENDING), []
    train_step.warn = said.append
    good = train_step.loss_function
    for step in range(1, 7):
        factor = math.nan if step == 3 else 1.0
        train_step.loss_function = lambda *inputs, factor=factor: (loss := good(*inputs))._replace(
            total=factor * loss.total
        )
        before = flat(train_step.state.model)
        train_step.state.progress.epoch = step
        train_step([make_batch(step, step)])
        assert torch.equal(flat(train_step.state.model), before) == (step == 3)
    assert (train_step.state.progress.skipped, train_step.state.meter.steps, said) == (0, 0, [])
    train_step.record_losses()
    assert (
        train_step.state.progress.skipped,
        train_step.state.progress.skipped_in_row,
        train_step.state.meter.steps,
    ) == (1, 0, 5)
    tokens = [make_batch(step, step).tokens for step in range(1, 7)]
    assert train_step.state.meter.counted == sum(tokens) - tokens[2] and train_step.state.progress.tokens == sum(tokens)
    (told,) = said
    assert told.endswith("at step 3, with learning rate 0.0075, on a.fr:1, a.fr:2, a.fr:3")


def test_the_first_step_of_a_shape_is_waited_for() -> None:
    """Or its time, which goes into preparation, would be that of asking for it; later ones may be on their way."""
    train_step = make_step(compile=True)
    train_step.pending, waiting = Late(MAX_PENDING), []
    train_step.on_device = lambda micro: torch.zeros(2)
    for rows in (4, 4, 5, 5, 4):
        train_step([make_batch(rows, rows)])
        waiting.append(len(train_step.pending.queue))
    assert waiting == [0, 1, 0, 1, 2]


def test_waiting_for_data_is_time_of_training_too() -> None:
    """A GPU that is behind holds up the thread that makes its batches: then the steps look short."""
    train_step = make_step()

    class Slow:
        waited = 3.0  # before

        def take(self, stop: Callable[[], bool]) -> None:
            self.waited += 0.5

    assert make_loop(train_step, []).take(Slow()) == []  # type: ignore[arg-type]
    state = train_step.state
    assert state.progress.seconds == state.meter.waited == 0.5
    assert state.meter.values(ALONE)["waiting_for_data"] == 1


def test_padding_is_told_of_all_micro_batches() -> None:
    train_step = make_step()
    batches = [make_batch(seed, rows) for seed, rows in ((1, 2), (2, 9), (3, 5))]
    train_step(batches[:2])
    train_step(batches[2:])
    full = sum(int((batch.labels != PAD).sum()) for batch in batches) / sum(batch.labels.numel() for batch in batches)
    assert full < 0.9
    assert train_step.state.meter.values(ALONE)["padding"] == pytest.approx(1 - full)


def test_reports_and_validations_wait_for_all_steps(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_step = make_step(steps=6, validate_every=4, log_every=3)
    train_step.pending = Late(MAX_PENDING)
    seen: list[tuple[int, int]] = []
    original = Loop.report_interval

    def report_interval(loop: Loop, report: Report) -> None:
        seen.append((train_step.state.progress.step, len(train_step.pending.queue)))
        original(loop, report)

    monkeypatch.setattr(Loop, "report_interval", report_interval)
    run(
        train_step,
        [make_batch(6, 4)],
        lambda step: seen.append((step, len(train_step.pending.queue))) or 0.0,
        tmp_path,
    )
    assert seen == [(3, 3), (4, 0), (6, 1), (6, 0)]  # the checkpoint of step 5 has waited too
    numbers = [json.loads(line) for line in next(tmp_path.glob("*.jsonl")).read_text().splitlines()]
    assert [math.isfinite(one["loss"]) for one in numbers if "gradient_norm" in one] == [True, True]


def out_of_memory_above(rows: int, train_step: TrainStep) -> list[int]:
    """The step's loss function fails for batches of more rows; the rows of each call are noted."""
    good, seen = train_step.loss_function, []

    def limited(model: Transformer, batch: Batch):
        seen.append(len(batch.labels))
        if len(batch.labels) > rows:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return good(model, batch)

    train_step.loss_function = limited
    return seen


def test_a_batch_that_does_not_fit_is_done_in_halves() -> None:
    """The update is the same, and so is the reported loss; what fits goes on whole."""
    large, small = make_batch(11, 9), make_batch(12, 3)
    plain, limited = make_step(), make_step()
    seen = out_of_memory_above(5, limited)
    for train_step in (plain, limited):
        train_step([small, large])
        train_step([small])
    assert seen == [3, 9, 2, 1, 5, 4, 3]
    torch.testing.assert_close(flat(limited.state.model), flat(plain.state.model), rtol=0, atol=1e-9)
    assert limited.state.meter.values(ALONE)["loss"] == pytest.approx(plain.state.meter.values(ALONE)["loss"], abs=1e-9)


def test_a_batch_whose_halves_do_not_fit_ends_the_training() -> None:
    train_step = make_step(batch_tokens=4000, accumulate=2)
    out_of_memory_above(1, train_step)
    before = flat(train_step.state.model)
    message = r"9 rows with \d+ and \d+ tokens .* training\.batch_tokens=1000 --set training\.accumulate=8"
    with pytest.raises(ResourceError, match=message) as error:
        train_step([make_batch(13, 9)])
    assert error.value.exit_code == 6
    assert torch.equal(flat(train_step.state.model), before)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    train_step = make_step()

    def wrong(model: Transformer, batch: Batch):
        raise RuntimeError("shapes do not fit")

    train_step.loss_function = wrong
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        train_step([make_batch(13, 2)])


def test_frozen_parts_stay() -> None:
    model = make_model()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    train_step = make_step(model, freeze=("encoder.*", "*.bias"))
    for _ in range(3):
        train_step([make_batch(7, 4)])
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved
    assert not any(name.startswith("encoder.") or name.endswith(".bias") for name in moved)
    assert {name for name in before if name.startswith("decoder.") and name.endswith("weight")} <= moved


def test_freezing_nothing_or_everything_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"'encodr\.\*' matches no parameter"):
        freeze(make_model(), ("encodr.*",))
    with pytest.raises(UsageError, match="leaves nothing to train"):
        freeze(make_model(), ("*",))


def run(train_step: TrainStep, batches: list[Batch], scores: Callable[[int], float], tmp_path) -> list[int]:
    """Run a loop whose validations have these scores; return the steps at which the model was the best so far."""
    best: list[int] = []
    with Report(tmp_path, steps=train_step.recipe.steps or 0, quiet=True) as report:
        make_loop(
            train_step,
            batches,
            tmp_path,
            scores=scores,
            save_best=lambda: best.append(train_step.state.progress.step),
        ).run(report)
    return best


def test_patience_ends_a_training_that_gets_no_better(tmp_path) -> None:
    train_step = make_step(patience=2)
    found = {5: 1.0, 10: 3.0, 15: 2.0, 20: 3.0, 25: 9.0}
    best = run(train_step, [make_batch(8, 4)], found.__getitem__, tmp_path)
    assert best == [5, 10]
    assert train_step.state.progress.step == 20
    assert train_step.state.progress.ended == "2 validations without a better one than step 10's"


def test_without_patience_all_steps_are_done(tmp_path) -> None:
    train_step = make_step(steps=12)
    best = run(train_step, [make_batch(8, 4)], lambda step: -step, tmp_path)
    assert (best, train_step.state.progress.step, train_step.state.progress.ended) == ([5], 12, "all steps are done")


def test_every_sample_of_an_epoch_comes_once() -> None:
    batches = [dataclasses.replace(make_batch(n, n + 1), ids=list(range(10 * n, 11 * n + 1))) for n in range(4)]
    train_step = make_step()
    loop = make_loop(train_step, batches)
    taken = loop.batches()
    placed = [next(taken) for _ in range(8)]
    seen = [number for one in placed for number in one.batch.ids]
    assert sorted(seen[: len(seen) // 2]) == sorted(seen[len(seen) // 2 :]) == sorted(i for b in batches for i in b.ids)
    assert placed[3][1:] == (0, 10) and placed[7][1:] == (1, 10)
    train_step.state.progress.epoch, train_step.state.progress.consumed = placed[5][1:]
    assert next(loop.batches()).batch.ids == placed[6].batch.ids


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_compiled_loss_takes_the_same_steps() -> None:
    """By torch's own compiler: the blocks, for batches of several shapes."""
    batches = [make_batch(seed, 5 + seed, longest=5 + seed) for seed in range(3)]
    # In float64, for a bias of the keys has no gradient but rounding, which Adam would blow up to whole steps.
    eager, compiled = make_step(), make_step(compile=True)
    for batch in batches:
        eager([batch])
        compiled([batch])
    torch.testing.assert_close(flat(compiled.state.model), flat(eager.state.model), rtol=0, atol=1e-6)
