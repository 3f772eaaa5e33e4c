"""One training step: micro-batches to gradients to weights, and what it found.

Vaswani et al. 2017, section 5; E7. `work_on_device` is what a GPU does, and nothing in it waits for the GPU: so it can
be recorded (captured.py), and the loss arrives some steps later (watch.py). The loop (loop.py) holds all that a step
changes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.errors import DivergedError, ResourceError
from regard.machine import is_out_of_memory
from regard.text.batches.batch import Batch
from regard.training.budget.out_of_memory import halves, out_of_memory
from regard.training.loop.cuda_graphs import shapes
from regard.training.loop.optimizer import set_rate, update
from regard.training.loop.pending_losses import Taken
from regard.training.parallel.group import whole

if TYPE_CHECKING:
    from regard.training.loop.loop import Loop

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
MOST_SKIPPED = 20  # steps in a row without finite gradients, before training has diverged
TOLD = 5  # sentences of a batch that are named, and skipped steps that are told of


def take_step(loop: Loop, micro: list[Batch], *, rate: float) -> bool:
    """One update from micro-batches -> whether it was the first of its shapes, and so took longer.

    The loss is divided by the tokens of all micro-batches, so each token counts the same.
    """
    progress, meter = loop.progress, loop.meter
    loop.model.train()
    for features in loop.features:
        features.redraw(progress.step)
    tokens = sum(batch.whole_tokens for batch in micro)
    samples = [sample for batch in micro for sample in batch.whole_ids]
    counted = len(samples) if loop.pairs else tokens
    set_rate(loop.optimizer, rate)
    loop.counted.fill_(counted)
    if loop.ema is not None:
        loop.taken_in.fill_(loop.ema.next_weight())
    fresh = is_new(loop, micro)
    found = loop.work(micro) if loop.captured is None else loop.captured(micro)
    progress.step += 1
    progress.tokens += tokens
    loop.watch.add(Taken(progress.step, rate, counted, samples, progress.epoch), found)
    loop.settle(all=fresh)
    meter.cells += sum(batch.labels.numel() for batch in micro)
    meter.tokens += tokens
    return fresh


def is_new(loop: Loop, micro: list[Batch]) -> bool:
    """Whether kernels are chosen, compiled or recorded in a step of these shapes."""
    if loop.captured is not None:
        return not loop.captured.knows(micro)
    new = loop.recipe.compile and shapes(micro) not in loop.known
    if new:
        loop.known.add(shapes(micro))
    return new


def work_on_device(loop: Loop, micro: list[Batch]) -> Tensor:
    """All that a step does on the device, without waiting for it -> this process' loss and the gradient's norm."""
    if loop.captured is not None:
        clear_gradients(loop)  # a recording that failed has left some that were never computed
    nll = find_gradients(loop, micro)
    loop.scaler.unscale_(loop.optimizer)  # the norm below is of the true gradient
    norm = whole(nn.utils.clip_grad_norm_(loop.names, loop.recipe.clip or math.inf))
    if loop.scaler.is_enabled():  # it leaves a step out by itself, and lowers its scale
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()
    else:
        update(loop.optimizer, norm)
    clear_gradients(loop)
    if loop.ema is not None:
        loop.ema.update(float(loop.taken_in) if loop.parted else loop.taken_in)
    return torch.stack([nll, norm.to(nll.dtype)])


def find_gradients(loop: Loop, micro: list[Batch]) -> Tensor:
    """The gradients of all processes' micro-batches, and this process' loss.

    What does not fit into memory, in any process, is done once more in halves.
    """
    nll, failed = backward(loop, micro)
    if not failed:
        return nll
    if loop.captured is not None:
        loop.captured.forget(micro)
    clear_gradients(loop)
    if loop.device.type == "cuda":
        torch.cuda.empty_cache()
    if not loop.pairs:  # the pairs of a sentence encoder's batch are judged together
        loop.warn(f"step {loop.progress.step + 1} did not fit into memory and is done in halves")
        nll, failed = backward(loop, [half for batch in micro for half in halves(batch)])
        if not failed:
            return nll
    raise ResourceError(out_of_memory(micro, loop.recipe))


def backward(loop: Loop, micro: list[Batch]) -> tuple[Tensor, bool]:
    """Gradients of these micro-batches, summed over the processes; and whether any process ran out of memory."""
    nll = torch.zeros((), device=loop.device)
    failed = False
    try:
        for number, batch in enumerate(micro, start=1):
            if loop.summed is not None and number == len(micro):
                loop.summed.send()
            with autocast(loop.device, loop.recipe.precision):
                loss = loop.loss_function(loop.model, batch)
            loop.scaler.scale(loss.total / loop.counted).backward()
            nll = nll + loss.nll.detach()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error) or (loop.captured is not None and torch.cuda.is_current_stream_capturing()):
            raise
        if loop.parted:  # the others wait for this one in the midst of a block, so there is no second try
            raise ResourceError(out_of_memory(micro, loop.recipe)) from error
        failed = True
    return nll, failed if loop.summed is None else loop.summed.finish(failed=failed)


def autocast(device: torch.device, precision: str | None) -> torch.autocast:
    """Within, matrix products are of that precision."""
    dtype = PRECISIONS.get(precision or "fp32")
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def clear_gradients(loop: Loop) -> None:
    """The next step starts without any."""
    if loop.summed is not None:
        loop.summed.clear()
    else:
        loop.optimizer.zero_grad(set_to_none=True)


def note_found(loop: Loop, *, all: bool) -> None:
    """Note what the steps found whose numbers have arrived, or wait for `all` of them."""
    progress, meter = loop.progress, loop.meter
    for taken, nll, norm in loop.watch.arrived(all=all):
        if math.isfinite(norm):
            progress.skipped_in_row = 0
            meter.nll, meter.norm = meter.nll + nll, meter.norm + norm
            meter.counted, meter.steps = meter.counted + taken.counted, meter.steps + 1
        else:
            left_out(loop, taken)


def left_out(loop: Loop, taken: Taken) -> None:
    """A step whose gradient was not finite changed nothing: it is counted, and too many in a row are the end."""
    progress = loop.progress
    progress.skipped += 1
    progress.skipped_in_row += 1
    where = f"at step {taken.step}, with learning rate {taken.rate:.3g}, on {places(loop, taken)}"
    if progress.skipped_in_row >= MOST_SKIPPED:
        raise DivergedError(
            f"training diverged: the gradient was not finite for the {MOST_SKIPPED}th time in a row, {where}; "
            f"lower training.lr or raise training.warmup. The last checkpoint is intact"
        )
    if progress.skipped <= TOLD:
        loop.warn(f"step left out: the gradient was not finite {where}")


def places(loop: Loop, taken: Taken) -> str:
    """Where the first sentences of a step stand."""
    told = ", ".join(loop.data.place(sample, taken.epoch) for sample in taken.samples[:TOLD])
    return told + (f" and {len(taken.samples) - TOLD} more" if len(taken.samples) > TOLD else "")
