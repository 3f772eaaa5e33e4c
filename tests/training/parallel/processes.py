"""Run by test_group.py: several processes train small models together and write down what came out.

    python processes.py FOLDER WORLD

The processes are forks of this one, so PyTorch is imported once. One process trains the same models on the same global
batches; the tests compare.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from regard.models.config import (
    EncoderConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.presets import make_model
from regard.tasks.objective import objective
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END, PAD, START, pad_batch
from regard.training.loop.train_step import TrainStep
from regard.training.parallel.group import ALONE, Group, join
from regard.training.recipe.schema import TrainingRecipe
from regard.training.state.tensors import model_weights
from regard.training.state.train_state import TrainState

BLOCKS: dict[str, Any] = {"layers": 2, "dim": 8, "heads": 2, "hidden": 12, "dropout": 0.0}
SIDES = {"source_vocabulary": 20, "target_vocabulary": 20}
MODELS = {
    "transformer": TransformerConfig(**BLOCKS, **SIDES, share_embeddings=True),
    "transformer-lm": TransformerLMConfig(**BLOCKS, vocabulary=20),
    "encoder": EncoderConfig(**BLOCKS, vocabulary=20),
    "rnn-attention": RecurrentTranslatorConfig(**SIDES, embedding=8, hidden=8, dropout=0.0, attention="additive"),
    "rnn-lm": RecurrentLMConfig(vocabulary=20, embedding=8, hidden=8, dropout=0.0),
}
ROWS = ([5, 1], [2, 4], [1, 1])  # of the micro-batches of each step; of one row, a process gets nothing


def make_batch(seed: int, rows: int, rank: int, world: int, *, source: bool) -> Batch:
    """A share of a batch of random sentences of unequal lengths."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (rows,), generator=draw).tolist()
    sentences = [torch.randint(4, 20, (length,), generator=draw).tolist() for length in lengths]
    ids = list(range(rows))[rank::world]
    mine = [sentences[i] for i in ids]
    empty = torch.zeros((0, 1), dtype=torch.long)
    labels = pad_batch([[*one, END] for one in mine]) if mine else empty
    inputs = pad_batch([[START, *one] for one in mine]) if mine else empty
    sources = (pad_batch([[*one[::-1], END] for one in mine]) if mine else empty) if source else None
    tokens = sum(len(one) + 1 for one in mine)
    whole = sum(len(one) + 1 for one in sentences)
    assert tokens == int((labels != PAD).sum())
    return Batch(ids, sources, inputs, labels, tokens, global_ids=list(range(rows)), global_tokens=whole)


def make_step(kind: str, group: Group, parallel: str, **settings: Any) -> TrainStep:
    torch.manual_seed(0)
    model = make_model(MODELS[kind])
    recipe = TrainingRecipe(
        steps=9, batch_tokens=99, lr=1e-2, warmup=1, schedule="constant", precision="fp32", device="cpu",
        validate_every=9, save_every=9, parallel=parallel, clip=0.5, weight_decay=0.1, **settings,
    )  # fmt: skip
    together = group.gather_rows if group.world > 1 else None
    state = TrainState(model, recipe, device=torch.device("cpu"), group=group)
    loss_unit = "samples" if kind == "encoder" else "tokens"
    return TrainStep(state, objective(model, together=together), recipe, loss_unit=loss_unit)


def steps(train_step: TrainStep, *, rows: tuple[list[int], ...] = ROWS) -> None:
    group, source = train_step.state.group, not train_step.state.model.config.kind.endswith("-lm")
    for number, micro in enumerate(rows):
        batches = [
            make_batch(10 * number + i, count, group.rank, group.world, source=source) for i, count in enumerate(micro)
        ]
        train_step(batches)


def trained(kind: str, group: Group, parallel: str) -> dict[str, torch.Tensor]:
    """The weights after some steps, and the loss that would be reported."""
    train_step = make_step(kind, group, parallel, ema=0.9)
    steps(train_step)
    state = train_step.state
    values = state.meter.values(group)
    assert state.ema is not None
    with state.final_weights():
        mean = {name: weight.clone() for name, weight in model_weights(state.full_model).items()}
    return {
        **model_weights(state.model),
        **{f"mean/{name}": weight for name, weight in mean.items()},
        "loss": torch.tensor([values["loss"], values["gradient_norm"], values["padding"]]),
    }


def one_fails(group: Group, how: str) -> dict[str, torch.Tensor]:
    """The last process cannot do its part of one step: a lack of memory once, or a number that is not finite."""
    train_step = make_step("transformer", group, "ddp")
    good, calls = train_step.loss_function, []

    def faulty(model: Any, batch: Batch) -> Any:
        calls.append(len(batch.labels))
        loss = good(model, batch)
        if group.rank == group.world - 1 and len(calls) == 3:  # the first batch of the second step
            if how == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory")
            loss = loss._replace(total=loss.total * float("nan"))
        return loss

    train_step.loss_function = faulty
    steps(train_step)
    skipped = torch.tensor(train_step.state.progress.skipped)
    return {**model_weights(train_step.state.model), "calls": torch.tensor(calls), "skipped": skipped}


def train_share(folder: Path, rank: int, world: int) -> None:
    """What one of the processes does."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "REGARD_MEETING": str(folder / "meeting")}
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    with join() as group:
        assert (group.rank, group.world) == (rank, world)
        results = {f"{kind}-{how}": trained(kind, group, how) for kind in MODELS for how in ("ddp", "fsdp")}
        results |= {f"one-{how}": one_fails(group, how) for how in ("memory", "nan")}
        own = torch.arange(3 * group.rank, dtype=torch.float64).view(group.rank, 3)  # as many rows as its number
        rows, first = group.gather_rows(own)
        results["together"] = {"rows": rows, "first": torch.tensor(first)}
    for name, tensors in results.items():
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{name}.{rank}.safetensors")


def main() -> None:
    """Fork the processes; exit with 1 unless all of them end well."""
    import torch.distributed.fsdp  # noqa: F401  # once for all of them

    folder, world = Path(sys.argv[1]), int(sys.argv[2])
    processes = [
        multiprocessing.get_context("fork").Process(target=train_share, args=(folder, rank, world))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


def alone(kind: str) -> dict[str, torch.Tensor]:
    """The same training in one process."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return trained(kind, ALONE, "ddp")
    finally:
        torch.set_default_dtype(before)


if __name__ == "__main__":
    main()
