"""Batches that fit: memory is pretended to be scarce, and steps to fail; and the disk before the first step."""

from __future__ import annotations

import copy
import dataclasses
import errno
import shutil
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import ResourceError, UsageError
from regard.models.presets import make_model
from regard.models.transformer import Transformer
from regard.tasks.corpora import Corpora
from regard.tasks.objective import recipe_objective
from regard.text.files.corpus import make_corpus
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.budget import fit, memory
from regard.training.budget.fit import (
    SHARE_FOR_CHOICES,
    Fit,
    MemoryBudget,
    disk_lines,
    first_that_runs,
    fit_batch,
    trial_step,
)
from regard.training.budget.memory import KERNEL_BYTES, SLACK, StepMemory, size_of
from regard.training.recipe.defaults import Choice, Machine, complete, facts_of
from regard.training.recipe.schema import DataRecipe, Recipe, TokenizerRecipe, TrainingRecipe
from regard.training.recipe.toml_file import changed_keys, fill_in

CPU = torch.device("cpu")
DATA = DataRecipe(demo=300, validation=20)
CHARACTERS = TokenizerRecipe(kind="characters", shared=True)
MODEL = {"kind": "transformer", "layers": 1, "dim": 32, "heads": 2, "hidden": 64}
MB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Begun:
    """A training as `prepare` has it when the model is there."""

    asked: Recipe
    recipe: Recipe
    choices: list[Choice]
    model: nn.Module
    corpora: Corpora
    tokenizers: tuple[Tokenizer, Tokenizer]

    def fit(self, **options: Any) -> Fit:
        return fit_batch(self.recipe, self.choices, self.model, self.corpora, self.tokenizers, device=CPU, **options)

    def space(self, free: int, **options: Any) -> MemoryBudget:
        training, length = (
            self.recipe.training,
            self.recipe.task.longest_row(self.recipe, self.corpora, self.tokenizers),
        )
        loss = recipe_objective(self.model, training)
        step = memory.step_memory(self.model, loss, training, length=length, device=CPU)
        return MemoryBudget(self.recipe, step, free, CPU, **options)


def begin(data: DataRecipe = DATA, **training: Any) -> Begun:
    asked = Recipe(name="a", data=data, tokenizer=CHARACTERS, model=MODEL, training=TrainingRecipe(**training))
    corpora = asked.task.read(asked)
    facts = dataclasses.replace(facts_of(corpora.train), characters=10**6)  # enough for batches of 2048
    recipe, choices = complete(asked, facts, Machine("cpu", 2, 2**33))
    tokenizers = recipe.task.make_tokenizers(recipe, corpora.train)
    sizes = [one.size for one in tokenizers]
    model = make_model(recipe.config(source_vocabulary=sizes[0], target_vocabulary=sizes[1]))
    return Begun(asked, recipe, choices, model, corpora, tokenizers)


@pytest.fixture(scope="module")
def begun() -> Begun:
    return begin()


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`free(bytes)` pretends that so much memory is left."""
    return lambda size: monkeypatch.setattr("regard.machine.memory.free_memory", lambda device: int(size))


def why(found: Fit, key: str) -> str:
    return next(choice.why for choice in found.choices if choice.key == key)


def test_with_enough_memory_nothing_changes_but_the_reason(begun: Begun, free: Any) -> None:
    free(64 << 30)
    found = begun.fit()
    assert begun.recipe.training.batch_tokens == 2048 and found.recipe == begun.recipe and found.warning is None
    assert [(one.key, one.value) for one in found.choices] == [(one.key, one.value) for one in begun.choices]
    told = why(found, "training.batch_tokens")
    assert told.startswith("fits cpu well; steps take about ") and told.endswith(" MB of 64.0 GB free")
    assert why(found, "training.accumulate") == "a step learns from one batch"
    assert begun.fit() == found


@pytest.mark.parametrize("halvings", [1, 2, 3])
def test_a_chosen_batch_is_lowered_until_it_fits(begun: Begun, free: Any, halvings: int) -> None:
    space = begun.space(0)
    size = 2048 >> halvings
    free(1.001 * space.needs(size, 1 << halvings) / SHARE_FOR_CHOICES)
    found = begun.fit()
    training = found.recipe.training
    assert (training.batch_tokens, training.accumulate) == (size, 1 << halvings)
    assert dataclasses.replace(training, batch_tokens=2048, accumulate=1) == begun.recipe.training
    assert found.warning is None
    values = {one.key: one.value for one in found.choices}
    assert (values["training.batch_tokens"], values["training.accumulate"]) == (size, 1 << halvings)
    assert why(found, "training.batch_tokens").startswith("2048 would not fit; steps take about ")
    assert why(found, "training.accumulate") == "a step still learns from 2048 tokens"
    # The same command again goes on with what was chosen.
    assert fill_in(begun.asked, found.recipe) == found.recipe and not changed_keys(found.recipe, begun.asked)


def test_the_steps_take_what_was_told(begun: Begun) -> None:
    """What the numbers rest on: activations grow with the rows, so half of the batch takes about half of them."""
    space = begun.space(10**9)
    once = KERNEL_BYTES + SLACK * space.step.optimizer
    for tokens, accumulate in ((2048, 1), (1024, 2)):
        rows, waiting = tokens // space.step.length, space.step.gradients * (accumulate > 1)
        assert space.needs(tokens, accumulate) == pytest.approx(once + SLACK * (space.step.activations(rows) + waiting))


def test_a_given_accumulate_stays(free: Any) -> None:
    begun = begin(accumulate=3)
    free(begun.space(0).needs(1024, 6) / SHARE_FOR_CHOICES)
    found = begun.fit()
    assert (found.recipe.training.batch_tokens, found.recipe.training.accumulate) == (1024, 3)
    assert "training.accumulate" not in {one.key for one in found.choices}


def test_a_given_batch_is_only_warned_of(free: Any) -> None:
    begun = begin(batch_tokens=3000, accumulate=2)
    free(64 << 30)
    assert begun.fit() == Fit(begun.recipe, begun.choices, None)
    free(1.001 * begun.space(0).needs(750, 8) / SHARE_FOR_CHOICES)
    found = begun.fit()
    assert (found.recipe, found.choices) == (begun.recipe, begun.choices)
    assert found.warning and found.warning.startswith("training.batch_tokens = 3000 will hardly fit: steps take about ")
    assert found.warning.endswith(
        "--set training.batch_tokens=750 --set training.accumulate=8 fits, and learns the same"
    )
    assert begin(batch_tokens=750, accumulate=8).fit().warning is None  # as it says


def test_memory_for_no_batch_at_all(begun: Begun, free: Any) -> None:
    free(1 << 20)
    found = begun.fit()
    length = begun.space(0).step.length
    assert length <= (found.recipe.training.batch_tokens or 0) < 2 * length
    assert found.warning and "not even one row of" in found.warning and "lower data.max_length" in found.warning


def test_nothing_is_changed(begun: Begun) -> None:
    before, numbers = copy.deepcopy(begun.model.state_dict()), torch.get_rng_state()
    begun.fit()
    trial_step(begun.model, begun.recipe, rows=3, length=10, device=CPU)
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(torch.equal(weight, before[name]) for name, weight in begun.model.state_dict().items())
    assert all(parameter.grad is None for parameter in begun.model.parameters())


def test_advice_by_kind_of_model(begun: Begun) -> None:
    step = StepMemory(length=10, weights=100, gradients=100, optimizer=200, once=0, row=50 * MB)

    def advice(kind: str, data: DataRecipe, free: int) -> str:
        training = TrainingRecipe(batch_tokens=1000, accumulate=1)
        recipe = Recipe(name="a", data=data, model={"kind": kind}, training=training)
        return MemoryBudget(recipe, step, free, torch.device("cuda")).advice()

    text, pairs = DataRecipe(text="/a"), DataRecipe(pairs="/a.tsv")
    fits = "--set training.batch_tokens=500 --set training.accumulate=2 fits"
    assert (
        advice("transformer", pairs, 4000 * MB) == advice("rnn-lm", text, 4000 * MB) == f"{fits}, and learns the same"
    )
    assert advice("encoder", pairs, 4000 * MB) == fits  # fewer pairs to choose from are another task
    none = "not even one row of 10 tokens fits: use a smaller model, or lower data"
    assert advice("rnn-lm", text, MB) == f"{none}.context" and advice("encoder", pairs, MB) == f"{none}.max_length"


# Several processes.


def test_each_process_has_its_share(begun: Begun) -> None:
    step = StepMemory(length=10, weights=100, gradients=100, optimizer=200, once=0, row=50)

    def needs(device: str, world: int, **training: Any) -> float:
        recipe = dataclasses.replace(begun.recipe, training=dataclasses.replace(begun.recipe.training, **training))
        return MemoryBudget(recipe, step, 0, torch.device(device), world).needs(1000, 1)

    assert needs("cuda", 1) == 200 + 50 * 100
    assert needs("cuda", 4) == 200 + 50 * 25
    assert needs("cuda", 4, parallel="fsdp") == (100 + 200) / 4 + 50 * 25 - 100
    assert needs("cpu", 4) == 4 * (KERNEL_BYTES + SLACK * (200 + 50 * 25))  # they share the machine's memory


def test_recorded_steps_take_their_memory_twice(begun: Begun) -> None:
    """Those that run as ever have theirs, and those that are recorded keep their own; on a GPU only."""
    step = StepMemory(
        length=10, weights=100, gradients=100, optimizer=200, once=7, row=50, temporary=lambda rows: 3 * rows
    )

    def needs(device: str, capture: bool | None) -> float:
        training = dataclasses.replace(begun.recipe.training, capture=capture)
        return MemoryBudget(dataclasses.replace(begun.recipe, training=training), step, 0, torch.device(device)).needs(
            1000, 1
        )

    once = 7 + (50 + 3) * 100
    assert needs("cuda", None) == needs("cuda", False) == 200 + once
    assert needs("cuda", True) == 200 + 2 * once
    assert needs("cpu", True) == needs("cpu", False) == KERNEL_BYTES + SLACK * (200 + once)


# Trial steps, where a step that does not fit is an error.


def out_of_memory_above(cells: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Models that have no memory for more cells of a source; gives the sizes that were tried."""
    tried: list[int] = []
    encode = Transformer.encode

    def scarce(model: Transformer, source: Tensor, *more: Any, **options: Any) -> Any:
        tried.append(source.numel())
        if source.numel() > cells:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(model, source, *more, **options)

    monkeypatch.setattr(Transformer, "encode", scarce)
    return tried


def test_a_trial_that_fails_halves_the_batch(begun: Begun, free: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    free(64 << 30)
    monkeypatch.setattr(fit, "TRIAL_DEVICES", ("cpu",))
    length = begun.space(0).step.length
    tried = out_of_memory_above(4 * length, monkeypatch)
    found = begun.fit()
    assert (found.recipe.training.batch_tokens, found.recipe.training.accumulate) == (512, 4)
    rows = [size // length for size in (2048, 1024, 512, 512)]  # twice where it went well: accumulated
    assert [cells // length for cells in tried] == [2, 4, *rows] and rows[1] > 4 > rows[2]
    free(1.001 * begun.space(0).needs(1024, 2) / SHARE_FOR_CHOICES)
    tried.clear()
    assert begun.fit().recipe.training.batch_tokens == 512
    assert [cells // length for cells in tried] == [2, 4, *rows[1:]]  # what is forecast not to fit is not tried
    free(64 << 30)
    assert begun.fit(world=2).recipe.training.batch_tokens == 2048  # one process cannot try for two


def test_memory_for_nothing(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_memory_above(3, monkeypatch)
    with pytest.raises(ResourceError, match=r"not even 2 rows of \d+ tokens fit: use a smaller model"):
        begun.fit()
    monkeypatch.setattr(Transformer, "encode", lambda model, source: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        begun.fit()


def test_only_a_lack_of_memory_is_passed_over() -> None:
    sizes = [(8, 1), (4, 2), (2, 4)]
    seen: list[int] = []

    def run(error: Exception, most: int) -> Any:
        def try_one(size: tuple[int, int]) -> None:
            seen.append(size[0])
            if size[0] > most:
                raise error

        return try_one

    cannot = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    for error in (torch.OutOfMemoryError(), MemoryError(), cannot):
        assert first_that_runs(sizes, run(error, 4)) == (4, 2)
    assert first_that_runs(sizes, run(MemoryError(), 8)) == (8, 1)
    seen.clear()
    assert first_that_runs(sizes, run(MemoryError(), 0)) == (2, 4)
    assert seen == [8, 4]  # nothing is smaller than the last
    with pytest.raises(RuntimeError, match="another"):
        first_that_runs(sizes, run(RuntimeError("another"), 4))


# The longest row.


def test_the_longest_row(begun: Begun) -> None:
    texts = ["a" * length for length in range(1, 200)]
    corpus = make_corpus(texts, texts[::-1], name="made")
    corpora = Corpora(corpus, corpus)

    def longest(limit: int | None = None, **tables: Any) -> int:
        data = dataclasses.replace(begun.recipe.data, max_length=limit)
        recipe = dataclasses.replace(begun.recipe, data=data, **tables)
        return recipe.task.longest_row(recipe, corpora, begun.tokenizers)

    assert longest() == 200  # and the end
    assert longest(150) == 150
    assert longest(training=dataclasses.replace(begun.recipe.training, batch_tokens=100)) == 100
    assert longest(tokenizer=TokenizerRecipe(kind="unigram", sampling=0.1)) == 300
    text = Recipe(name="a", data=DataRecipe(text="/a", context=33), model={"kind": "rnn-lm"})
    assert text.task.longest_row(text, corpora, begun.tokenizers) == 33


def test_the_longest_row_of_the_target(begun: Begun) -> None:
    corpus = make_corpus(["a", "a"], ["a", "aaa"], name="made")
    assert begun.recipe.task.longest_row(begun.recipe, Corpora(corpus, corpus), begun.tokenizers) == 4


# The disk.

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("settings", "there", "copies"),
    [
        ({}, 0, 3 * 3 + 2),  # two are kept and one more is written; the model twice
        ({"keep": 5}, 0, 6 * 3 + 2),
        ({"average": 4}, 0, 5 * 3 + 2),
        ({"ema": 0.9}, 0, 3 * 4 + 2),
        ({}, 1, 2 * 3 + 2),
        ({}, 9, 1 * 3 + 2),  # old ones go as new ones come
    ],
)
def test_the_disk_has_room(
    settings: dict[str, Any], there: int, copies: int, begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = dataclasses.replace(begun.recipe, training=dataclasses.replace(begun.recipe.training, **settings))
    for step in range(there):
        (tmp_path / f"run/training/step-{step:08d}").mkdir(parents=True)
    wanted = copies * size_of(begun.model.parameters())
    asked: list[Path] = []

    def usage(path: Path) -> Usage:
        asked.append(Path(path))
        return Usage(2**40, 0, free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    free = wanted
    assert disk_lines(recipe, begun.model, tmp_path / "run") == []
    free = wanted - 1
    (line,) = disk_lines(recipe, begun.model, tmp_path / "run")
    assert line.startswith("warning: the disk of ") and "free some space, lower training.keep" in line
    assert set(asked) == {tmp_path / "run" if there else tmp_path}
    assert there or not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written(begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UsageError, match=r"cannot write to .*file: Not a directory; choose another --out"):
            disk_lines(begun.recipe, begun.model, folder)

    def failing(number: int) -> Any:
        def make(**options: Any) -> Any:
            raise OSError(number, "no")

        return make

    monkeypatch.setattr(tempfile, "TemporaryFile", failing(errno.EROFS))
    with pytest.raises(UsageError, match="cannot write"):
        disk_lines(begun.recipe, begun.model, tmp_path)
    monkeypatch.setattr(tempfile, "TemporaryFile", failing(errno.ENOSPC))
    with pytest.raises(ResourceError, match="cannot write"):
        disk_lines(begun.recipe, begun.model, tmp_path)
