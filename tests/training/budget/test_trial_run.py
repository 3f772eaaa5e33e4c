"""A training in small: which batches stand for an epoch, which steps are timed, and how samples become the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import UsageError
from regard.tasks.translation import ALIGNED_SAMPLE, TranslationValidator
from regard.text.batches.batch import Batch
from regard.training.budget.trial_run import (
    LARGEST_BATCHES,
    MAX_STEPS,
    MIN_STEPS,
    SAMPLE_BYTES,
    SPREAD_BATCHES,
    BatchSample,
    TrialRun,
)
from regard.training.recipe.toml_file import read_recipe
from regard.training.run.prepare import prepare
from regard.training.signals import Interrupted, StopFlag


class Counted:
    """Batches of one row of length n to n rows of length 1."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch = count, 0
        self.made: list[int] = []

    def plan(self, epoch: int) -> list[list[int]]:
        self.epoch = epoch
        return [list(range(rows)) for rows in reversed(range(1, self.count + 1))]

    def collate(self, ids: list[int], epoch: int) -> Batch:
        assert epoch == self.epoch
        self.made.append(len(ids))
        tokens = torch.ones(len(ids), self.count - len(ids) + 1, dtype=torch.long)
        return Batch(ids, None, tokens, tokens, tokens.numel())


def test_some_batches_stand_for_all() -> None:
    data = Counted(80)
    sample = BatchSample(data, 7)  # type: ignore[arg-type]
    assert data.epoch == 7
    assert sample.count == 80
    assert data.made[:LARGEST_BATCHES] == [1, 2]  # the longest rows
    assert data.made[LARGEST_BATCHES:] == [6, 16, 26, 36, 46, 56, 66, 76]
    assert [len(batch.ids) for batch in sample.batches(0)] == data.made[LARGEST_BATCHES:]
    assert sample.tokens_a_batch == sum(batch.tokens for batch in sample.spread) / SPREAD_BATCHES
    assert sample.seconds_a_batch > 0 and sample.seconds_an_epoch > 0
    alone = BatchSample(Counted(1))  # type: ignore[arg-type]
    assert len(alone.spread) == SPREAD_BATCHES and len(alone.largest) == 1


@pytest.fixture
def trial_run(make_recipe: Callable[..., Path]) -> Callable[..., TrialRun]:
    def trial_run(kind: str = "transformer", *, seconds: float = 1.0, **changes: Any) -> TrialRun:
        recipe = read_recipe(make_recipe(kind), {key.replace("_", ".", 1): value for key, value in changes.items()})
        ready = prepare(recipe, folder=None, say=lambda text: None)
        return TrialRun(ready, BatchSample(ready.train), seconds=seconds)

    return trial_run


def seconds_are_rows(one: TrialRun, monkeypatch: pytest.MonkeyPatch, *, extra: float = 0.0) -> list[list[int]]:
    """A step takes a second a row, and `extra` the first time that a batch is met; gives the steps' rows."""
    taken: list[list[int]] = []
    met: set[tuple[int, ...]] = set()

    def timed(work: Any, micro: list[Batch]) -> float:
        assert work is one.step
        taken.append([len(batch.ids) for batch in micro])
        fresh = {tuple(batch.ids) for batch in micro} - met
        met.update(fresh)
        return sum(taken[-1]) + extra * len(fresh)

    monkeypatch.setattr(one, "time", timed)
    return taken


def test_steps_over_all_lengths(trial_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial_run(seconds=1e9)
    taken = seconds_are_rows(one, monkeypatch)
    mean, compiling = one.steps()
    rows = [len(batch.ids) for batch in one.sample.spread]
    assert len(set(rows)) > 2 and mean == sum(rows) / SPREAD_BATCHES and compiling == 0.0
    assert taken[:LARGEST_BATCHES] == [[len(batch.ids)] for batch in one.sample.largest]
    assert (
        sorted(step[0] for step in taken[LARGEST_BATCHES : LARGEST_BATCHES + SPREAD_BATCHES]) == rows
    )  # each has its turn
    assert len(taken) == LARGEST_BATCHES + MAX_STEPS


def test_few_steps_where_they_take_long(trial_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial_run(seconds=0.5, training_accumulate=2)
    taken = seconds_are_rows(one, monkeypatch)
    one.steps()
    assert [len(step) for step in taken] == [2] * (LARGEST_BATCHES + MIN_STEPS)
    assert taken[0] == [len(one.sample.largest[0].ids)] * 2


def test_compiling_is_told_apart(trial_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial_run(seconds=1e9, training_compile=True)
    seconds_are_rows(one, monkeypatch, extra=100.0)
    mean, compiling = one.steps()
    rows = [len(batch.ids) for batch in one.sample.spread]
    assert mean == sum(rows) / SPREAD_BATCHES
    shapes = {tuple(batch.ids) for batch in [*one.sample.largest, *one.sample.spread]}
    assert compiling == pytest.approx(100.0 * len(shapes), abs=sum(rows))


def test_recorded_steps_are_timed_from_the_third_on(trial_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of a shape chooses kernels, as with compiled parts, and the second is recorded."""
    one = trial_run(seconds=1e9, training_compile=True)
    one.training = dataclasses.replace(one.training, capture=True)
    taken = seconds_are_rows(one, monkeypatch)
    one.steps()
    new = [*one.sample.largest, *one.sample.spread, *one.sample.spread]
    assert taken[: len(new)] == [[len(batch.ids)] for batch in new]
    assert len(taken) == len(new) + MAX_STEPS


@pytest.mark.parametrize("kind", ["transformer", "transformer-lm"])
def test_steps_are_not_recorded_without_a_gpu(trial_run: Any, kind: str) -> None:
    """A recipe that asks for it is refused; a loop that is given one nevertheless takes its steps one by one."""
    with pytest.raises(
        UsageError, match=r"training\.capture captures steps as CUDA graphs, but training\.device is cpu"
    ) as error:
        trial_run(kind, training_capture=True)
    assert error.value.exit_code == 2
    one = trial_run(kind, seconds=0.0, training_capture=False)
    recipe = one.ready.recipe
    asked = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, capture=True))
    one = TrialRun(dataclasses.replace(one.ready, recipe=asked), one.sample, seconds=0.0)
    mean, recording = one.steps()
    assert one.step.graphs is None and mean > 0 <= recording
    assert one.step.state.progress.step == LARGEST_BATCHES + SPREAD_BATCHES + MIN_STEPS


def test_translations_are_told_from_a_sample(trial_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 3 s and 0.25 s a sentence: 8 and 32 are tried at least, the rest follows; too few are all tried."""
    one = trial_run(seconds=1.0)
    corpus = one.ready.corpora.validation
    many = dataclasses.replace(corpus, source=corpus.source[:4] * 100, target=corpus.target[:4] * 100)
    limits, counts = set(), []

    def translate(validator: TranslationValidator) -> None:
        decoding = validator.recipe.decoding
        limits.add(decoding.max_tokens)
        counts.append(decoding.sentences)

    def timed(work: Any) -> float:
        work()
        return 3.0 + 0.25 * counts[-1]

    monkeypatch.setattr(TranslationValidator, "translate", translate)
    monkeypatch.setattr(one, "time", timed)
    found = []
    for sentences, whole, one.seconds in ((300, many, 1.0), (300, many, 50.0), (300, corpus, 1.0), (5, many, 1.0)):
        counts.clear()
        recipe, short = one.ready.recipe, 3 if sentences == 5 else None
        decoding = dataclasses.replace(recipe.decoding, sentences=sentences, max_tokens=short)
        recipe = dataclasses.replace(recipe, decoding=decoding)
        object.__setattr__(one.ready, "recipe", recipe)
        validator = one.validator(BatchSample(one.ready.validation), Path("."))
        validator.corpus = whole
        found.append((validator.rehearse_translation(one.time, one.seconds), counts.copy()))
    assert found == [
        (3 + 0.25 * 300, [8, 8, 32]),  # the first one warms up
        (3 + 0.25 * 300, [8, 8, 32, 128]),
        (3 + 0.25 * len(corpus), [8, 8, len(corpus)]),
        (3 + 0.25 * 5, [5, 5]),
    ]
    longest = [1 + max(map(len, one.ready.tokenizers[1].encode_all(some.target))) for some in (many, corpus)]
    assert limits == {*longest, 3}


def test_a_validation_in_small(trial_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of it is scaled: 12 sentences' likelihood from 8 batches, the alignment from 10 sentences."""
    one = trial_run(training_samples=2)
    seen: list[str] = []

    def timed(work: Any, *arguments: Any) -> float:
        work(*arguments)
        seen.append(work.__name__)
        return {"likelihood": 8.0, "draw": 100.0, "alignment_head": 5.0}[work.__name__]

    monkeypatch.setattr(one, "time", timed)
    monkeypatch.setattr(
        TranslationValidator, "rehearse_translation", lambda validator, *_: validator.translate() and 1000.0
    )
    drawn: list[int] = []
    draw = TranslationValidator.draw

    def counted(validator: TranslationValidator, step: int) -> None:
        drawn.append(step)
        draw(validator, step)

    counted.__name__ = "draw"
    monkeypatch.setattr(TranslationValidator, "draw", counted)
    validation, choice = one.validation(tmp_path)
    batches, sentences = len(one.ready.validation.plan(0)), len(one.ready.corpora.validation)
    assert seen == ["likelihood", "draw", "alignment_head"]
    assert len(drawn) == 2  # the first picture loads the library
    assert validation == batches + 1000.0 + 100.0
    assert choice == pytest.approx(5.0 * sentences / ALIGNED_SAMPLE)
    assert (tmp_path / "alignments").is_dir()


def test_a_validation_is_of_the_plain_likelihood(trial_run: Any, tmp_path: Path) -> None:
    """Whatever else is trained for; and a signal ends it as it would a real one."""
    one = trial_run("transformer-lm", training_r_drop=3.0)
    validator = one.validator(one.sample, tmp_path)
    assert (one.step.loss_function.keywords["r_drop"], validator.objective.keywords["r_drop"]) == (3.0, 0.0)
    assert validator.stop is one.stop


def test_nothing_is_translated_where_nothing_shall_be(
    trial_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(TranslationValidator, "translate", lambda validator: 1 / 0)
    assert trial_run(decoding_sentences=0).validation(tmp_path)[0] > 0


def test_models_that_do_not_translate_have_no_more(trial_run: Any, tmp_path: Path) -> None:
    validation, choice = trial_run("rnn-lm").validation(tmp_path)
    assert validation > 0 == choice


def test_saving_is_told_by_the_byte(trial_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = trial_run()

    def timed(work: Any, *arguments: Any) -> float:
        work(*arguments)
        return {"write_synced": 5.0, "fingerprint": 2.0}[work.__name__]

    monkeypatch.setattr(one, "time", timed)
    assert one.save(tmp_path) == 9.0 / SAMPLE_BYTES
    assert [path.stat().st_size for path in tmp_path.iterdir() if path.name == "sample"] == [SAMPLE_BYTES]


def test_a_signal_is_obeyed(trial_run: Any) -> None:
    one = trial_run()
    one.stop = StopFlag()
    one.stop.signal = 15
    with pytest.raises(Interrupted):
        one.steps()
