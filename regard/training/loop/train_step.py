"""The training step: from micro-batches to gradients to new weights.

Vaswani et al. 2017, section 5; E7. Read `TrainStep.__call__` first, then `on_device`, the part that a GPU executes.

    for each micro-batch:   loss = model(batch);  (loss / tokens of the step).backward()
    clip the gradient;      unless it is not finite: optimizer.step();  update the moving average

With one process and Adam, nothing in `on_device` waits for the GPU. Therefore the step can be captured as a CUDA graph
(cuda_graphs.py), and its loss arrives some steps later (pending_losses.py). Several processes do wait: for each
other's gradients, and to agree on whether a step failed or is skipped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.attention.linear.features import RandomFeatures
from regard.errors import DivergedError, ResourceError, UsageError
from regard.kernels.fp8.enable import all_scales
from regard.machine import is_out_of_memory
from regard.recipes.required import required
from regard.recipes.schedule import learning_rate
from regard.tasks.losses import Loss, Objective
from regard.tasks.precision import autocast
from regard.tasks.task import LossUnit, Update
from regard.text.batches.batch import Batch
from regard.training.loop.cuda_graphs import CapturedSteps, Shapes, shapes
from regard.training.loop.out_of_memory import halves, out_of_memory
from regard.training.loop.pending_losses import MAX_PENDING, PendingLosses, QueuedStep
from regard.training.loop.torch_compile import compile_parts
from regard.training.parallel.gradient_reducer import GradientReducer
from regard.training.parallel.sharding import full_tensor
from regard.training.recipe.schema import TrainingRecipe
from regard.training.state.optimizer import set_learning_rate, update_if_finite
from regard.training.state.train_state import TrainState

MAX_CONSECUTIVE_SKIPS = 20  # steps in a row without finite gradients; then the training has diverged
MAX_WARNINGS = 5  # skipped steps that are reported
MAX_NAMED_SAMPLES = 5  # samples that such a message names


class TrainStep:
    """One update of the weights from the micro-batches of a step.

    `loss_unit` says what the loss is a mean over: the target tokens of the step, or its samples where the loss compares
    the samples of a batch with each other (sentence encoders); such a batch cannot be split.
    `describe_sample(sample, epoch)` names a sample in messages. `one_shape` says that all batches have the same shape.
    `update` changes the weights by a batch in place of a step of the optimizer, for a task that takes many small steps.
    `warn` receives warnings: skipped steps, batches that did not fit into memory.
    """

    def __init__(
        self,
        state: TrainState,
        loss_function: Objective,
        recipe: TrainingRecipe,
        *,
        loss_unit: LossUnit = "tokens",
        describe_sample: Callable[[int, int], str] = lambda sample, epoch: f"sample {sample}",
        one_shape: bool = False,
        update: Update | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.state, self.loss_function, self.recipe = state, loss_function, recipe
        self.loss_unit, self.describe_sample, self.warn = loss_unit, describe_sample, warn
        self.update = update
        model, device, world = state.model, state.device, state.group.world
        if update is not None and world > 1:
            raise UsageError(f"a {model.config.kind} model is trained by one process: leave out --nproc")
        self.model_width: int = model.config.width  # for noam
        self.random_features = [module for module in model.modules() if isinstance(module, RandomFeatures)]
        self.fp8_scales = all_scales(model)
        if recipe.compile:
            compile_parts(model, dynamic=not one_shape)
        self.reducer = GradientReducer(state.trainable, state.group) if world > 1 and state.sharded is None else None
        # Processes must agree on when to stop, so several of them wait for each loss.
        self.pending = PendingLosses(MAX_PENDING if world == 1 else 0)
        use_graphs = recipe.capture and device.type == "cuda" and world == 1
        self.graphs = CapturedSteps(self.on_device, warn) if use_graphs else None
        self.compiled_shapes: set[Shapes] = set()
        # Tensors, because a captured step cannot read numbers from Python.
        self.divisor = torch.ones((), device=device)
        self.ema_weight = torch.zeros((), device=device)

    def __call__(self, micro_batches: list[Batch]) -> None:
        """Take a step: set the learning rate, run the step on the device, and queue its loss."""
        state, progress = self.state, self.state.progress
        is_new_shape = self._is_new_shape(micro_batches)
        with self._metered(micro_batches, is_new_shape=is_new_shape):
            state.model.train()
            for features in self.random_features:
                features.redraw(progress.step)
            tokens = sum(batch.global_tokens for batch in micro_batches)
            samples = [sample for batch in micro_batches for sample in batch.global_ids]
            # Every token (or sample) of all micro-batches counts the same.
            divisor = tokens if self.loss_unit == "tokens" else len(samples)
            self.divisor.fill_(divisor)
            rate = self.learning_rate(progress.step + 1)
            set_learning_rate(state.optimizer, rate)
            if state.ema is not None:
                self.ema_weight.fill_(state.ema.next_weight())
            values = self.on_device(micro_batches) if self.graphs is None else self.graphs(micro_batches)
            progress.step += 1
            progress.tokens += tokens
            self.pending.add(QueuedStep(progress.step, rate, divisor, samples, progress.epoch), values)
            self.record_losses(wait=is_new_shape)

    def on_device(self, micro_batches: list[Batch]) -> Tensor:
        """Run a step on the device.

        Return two numbers: the negative log-likelihood of this process's micro-batches (a sum, without label
        smoothing), and the norm of the gradient.
        """
        state = self.state
        if self.update is not None:
            losses = [self.update(batch, state.optimizer, state.progress.step) for batch in micro_batches]
            mean = torch.stack(losses).mean()
            return torch.stack([mean * self.divisor, 0.0 * mean])  # NaN if the loss is
        if self.fp8_scales is not None:
            self.fp8_scales.start_step()
        if self.graphs is not None:
            self._clear_gradients()  # a capture that failed may have left gradients that were never computed
        nll = self._compute_gradients(micro_batches)  # forward, loss, backward, sum over the processes
        state.scaler.unscale_(state.optimizer)
        norm = full_tensor(nn.utils.clip_grad_norm_(state.trainable, self.recipe.clip or math.inf))
        if state.scaler.is_enabled():  # it skips a step without finite gradients itself, and lowers its scale
            state.scaler.step(state.optimizer)
            state.scaler.update()
        else:
            update_if_finite(state.optimizer, norm)
        self._clear_gradients()
        if state.ema is not None:
            state.ema.update(self.ema_weight if state.sharded is None else float(self.ema_weight))
        return torch.stack([nll, norm.to(nll.dtype)])

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 1."""
        recipe = self.recipe
        return learning_rate(
            step,
            kind=required(recipe.schedule),
            peak=required(recipe.lr),
            warmup=required(recipe.warmup),
            steps=required(recipe.steps),
            dim=self.model_width,
            floor=recipe.floor,
        )

    def loss(self, batch: Batch) -> Loss:
        """Compute the loss of a batch: the forward pass in the recipe's precision."""
        with autocast(self.state.device, self.recipe.precision):
            if self.state.sharded is not None:
                return self.state.sharded(self.loss_function, batch)
            return self.loss_function(self.state.model, batch)

    def record_losses(self, *, wait: bool = True) -> None:
        """Add the losses that have arrived to the meter; with `wait`, those of all steps so far."""
        progress, meter = self.state.progress, self.state.meter
        for record, nll, norm in self.pending.arrived(wait=wait):
            if math.isfinite(norm):
                progress.skipped_in_row = 0
                meter.nll, meter.norm = meter.nll + nll, meter.norm + norm
                meter.counted, meter.steps = meter.counted + record.divisor, meter.steps + 1
            else:
                self._record_skipped_step(record)

    def _compute_gradients(self, micro_batches: list[Batch]) -> Tensor:
        """Compute the gradients of all processes' micro-batches; return the nll of this process's.

        If a batch does not fit into memory in any process, all processes repeat the step with halves of their batches.
        """
        nll, failed = self._backward(micro_batches)
        if not failed:
            return nll
        if self.graphs is not None:
            self.graphs.disable(micro_batches)
        self._clear_gradients()
        if self.state.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.loss_unit == "tokens":
            self.warn(f"step {self.state.progress.step + 1} did not fit into memory and is done in halves")
            nll, failed = self._backward([half for batch in micro_batches for half in halves(batch)])
            if not failed:
                return nll
        raise ResourceError(out_of_memory(micro_batches, self.recipe))

    def _backward(self, micro_batches: list[Batch]) -> tuple[Tensor, bool]:
        """Forward and backward passes, gradients summed over the processes.

        Return the nll of this process's micro-batches, and whether any process ran out of memory.
        """
        nll = torch.zeros((), device=self.state.device)
        failed = False
        try:
            for number, batch in enumerate(micro_batches, start=1):
                if self.reducer is not None and number == len(micro_batches):
                    self.reducer.start_sending()
                loss = self.loss(batch)
                self.state.scaler.scale(loss.total / self.divisor).backward()
                nll = nll + loss.nll.detach()
        except (RuntimeError, MemoryError) as error:
            is_capturing = self.graphs is not None and torch.cuda.is_current_stream_capturing()
            if not is_out_of_memory(error) or is_capturing:
                raise
            if self.state.sharded is not None:  # the other processes wait in the middle of a block: no second try
                raise ResourceError(out_of_memory(micro_batches, self.recipe)) from error
            failed = True
        return nll, (failed if self.reducer is None else self.reducer.finish(failed=failed))

    def _clear_gradients(self) -> None:
        if self.reducer is not None:
            self.reducer.clear()
        else:
            self.state.optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def _metered(self, micro_batches: list[Batch], *, is_new_shape: bool) -> Iterator[None]:
        """Time the step inside the block, and add its seconds and tokens to the progress and the meter."""
        progress, meter = self.state.progress, self.state.meter
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        progress.seconds += seconds
        progress.preparing += seconds if is_new_shape else 0.0
        meter.seconds += seconds
        meter.tokens += sum(batch.global_tokens for batch in micro_batches)
        meter.cells += sum(batch.labels.numel() for batch in micro_batches)

    def _is_new_shape(self, micro_batches: list[Batch]) -> bool:
        """Tell whether kernels are selected, compiled or captured in a step of these shapes."""
        if self.graphs is not None:
            return not self.graphs.is_prepared(micro_batches)
        is_new = self.recipe.compile and shapes(micro_batches) not in self.compiled_shapes
        if is_new:
            self.compiled_shapes.add(shapes(micro_batches))
        return is_new

    def _record_skipped_step(self, record: QueuedStep) -> None:
        """Count a step that changed nothing because its gradient was not finite; too many in a row are an error."""
        progress = self.state.progress
        progress.skipped += 1
        progress.skipped_in_row += 1
        where = f"at step {record.step}, with learning rate {record.rate:.3g}, on {self._describe_samples(record)}"
        if progress.skipped_in_row >= MAX_CONSECUTIVE_SKIPS:
            raise DivergedError(
                f"training diverged: the gradient was not finite for the {MAX_CONSECUTIVE_SKIPS}th time in a row, "
                f"{where}; lower training.lr or raise training.warmup. The last checkpoint is intact"
            )
        if progress.skipped <= MAX_WARNINGS:
            self.warn(f"step skipped: the gradient was not finite {where}")

    def _describe_samples(self, record: QueuedStep) -> str:
        named = record.samples[:MAX_NAMED_SAMPLES]
        rest = len(record.samples) - len(named)
        text = ", ".join(self.describe_sample(sample, record.epoch) for sample in named)
        return f"{text} and {rest} more" if rest else text
