"""A whole run: every kind of model trains, stops, goes on bitwise, starts from another, and says what is wrong."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.api.writer import Writer
from regard.errors import DataError, StoppedError, UsageError
from regard.text.batches.batch import Batch
from regard.training.loop.train_step import TrainStep
from regard.training.run.run_folder import explained_errors
from regard.training.run.training_run import train

from ...repeats import some

MODELS = ("transformer", "rnn-seq2seq", "rnn-attention", "encoder", "transformer-lm", "rnn-lm")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def last_checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "training" / "step-00000012" / "weights.safetensors")


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@contextmanager
def stopped_at(step: int, how: str) -> Iterator[None]:
    """Trainings stop after that step, as by a signal, or in the midst of the next one, as by a crash."""
    original = TrainStep.__call__

    def train_step(self: TrainStep, micro: list[Batch]) -> None:
        if how == "crash" and self.state.progress.step == step:
            raise RuntimeError("crash")
        original(self, micro)
        if how == "signal" and self.state.progress.step == step:
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainStep, "__call__", train_step)
        yield


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_model_trains_and_loads(kind: str, make_recipe, tmp_path: Path) -> None:
    recipe = make_recipe(kind)
    if kind == "encoder":
        recipe.write_text(recipe.read_text().replace("shared = true\n", ""))
    run = train(recipe, out=tmp_path / "run", quiet=True)
    model = run.load()
    records = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["kind"] == "train"] == [3, 6, 9, 12]
    assert [r["step"] for r in records if r["kind"] == "validation"] == [6, 12]
    assert records[-1]["loss"] < records[1]["loss"] * 1.2
    assert (run.folder / "README.md").read_text().startswith("# small")
    config = json.loads((run.folder / "config.json").read_text())
    assert config["recipe"]["training"]["steps"] == 12
    losses = [r["loss"] for r in records if r["kind"] == "validation"]
    state = json.loads((run.folder / "training" / "step-00000012" / "state.json").read_text())
    assert state["progress"]["best"] == -min(losses)  # there are too few sentences for chrF
    if kind.endswith("-lm"):
        assert isinstance(model, Writer)
    elif kind == "encoder":
        assert model.embed(["un deux"]).shape == (1, 16)
        assert 0 <= run.scores["accuracy"] <= 1
    else:
        assert isinstance(model.translate("un deux trois").text, str)
        assert run.scores["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")


@pytest.mark.parametrize("kind", some(["transformer", "rnn-attention", "transformer-lm"], 2))
def test_resume_is_bitwise(kind: str, make_recipe, tmp_path: Path) -> None:
    """Dropout and subword sampling on; stopped between two saves and between two validations."""
    recipe = make_recipe(kind)
    whole = train(recipe, out=tmp_path / "whole", quiet=True)
    for how, error in (("signal", StoppedError), ("crash", RuntimeError)):
        out = tmp_path / how
        with stopped_at(7, how), pytest.raises(error):
            train(recipe, out=out, quiet=True)
        assert not (out / "training" / "step-00000012").exists()
        parts = train(recipe, out=out, quiet=True)
        assert equal(last_checkpoint(whole.folder), last_checkpoint(parts.folder))
        assert equal(weights(whole.folder), weights(parts.folder))
        assert metrics(whole.folder) == metrics(parts.folder)


def metrics(run: Path) -> list[dict[str, object]]:
    """What a run wrote down, without its times."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) | {"tokens_per_second": 0, "waiting_for_data": 0} for line in lines]


def test_the_same_call_after_the_end_does_nothing(make_recipe, tmp_path: Path) -> None:
    recipe, said = make_recipe(), []
    first = train(recipe, out=tmp_path / "run", quiet=True)
    before = (first.folder / "model.safetensors").stat().st_mtime_ns
    again = train(recipe, out=tmp_path / "run", quiet=True, say=said.append)
    assert "already complete: all steps are done, at step 12" in said
    assert again.scores == first.scores
    assert (first.folder / "model.safetensors").stat().st_mtime_ns == before


def test_more_steps_go_on(make_recipe, tmp_path: Path) -> None:
    """A longer schedule is another training from the start, so only the place is checked, not the bits."""
    recipe = make_recipe()
    train(recipe, out=tmp_path / "run", quiet=True)
    said: list[str] = []
    train(recipe, out=tmp_path / "run", overrides={"training.steps": 15}, quiet=True, say=said.append)
    assert "continuing from step 12" in said
    assert (tmp_path / "run" / "training" / "step-00000015").is_dir()


def test_other_settings_are_refused(make_recipe, tmp_path: Path) -> None:
    recipe = make_recipe()
    train(recipe, out=tmp_path / "run", overrides={"training.steps": 3}, quiet=True)
    with pytest.raises(UsageError, match=r"training\.lr: 0\.001 -> 0\.01.*another --out"):
        train(recipe, out=tmp_path / "run", overrides={"training.lr": 1e-2}, quiet=True)


def test_other_data_are_refused(make_recipe, tmp_path: Path) -> None:
    recipe = make_recipe()
    train(recipe, out=tmp_path / "run", overrides={"training.steps": 3}, quiet=True)
    target = tmp_path / "a.en"
    target.write_text(target.read_text().replace("DEUX", "TWO"))
    with pytest.raises(DataError, match=r"begun on other data: 108 training and 12 validation samples then"):
        train(recipe, out=tmp_path / "run", quiet=True)


def test_a_foreign_folder_is_left_alone(make_recipe, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("two years of work")
    with pytest.raises(UsageError, match=r"mine exists and is not a training run"):
        train(make_recipe(), out=tmp_path / "mine", quiet=True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_fine_tuning_keeps_the_tokenizer_and_what_is_frozen(make_recipe, tmp_path: Path) -> None:
    first = train(make_recipe(), out=tmp_path / "first", quiet=True)
    recipe = tmp_path / "tune.toml"
    recipe.write_text(
        'name = "tune"\n[data]\nsource = ["a.fr"]\ntarget = ["a.en"]\nvalidation = 12\n'
        "[training]\nsteps = 2\nbatch_tokens = 200\nlr = 1e-3\nwarmup = 1\nfreeze = ['encoder.*']\n"
        "[decoding]\nsentences = 2\n"
    )
    second = train(recipe, out=tmp_path / "second", init=first.folder, quiet=True)
    files = [(run.folder / "tokenizer.model").read_bytes() for run in (first, second)]
    assert files[0] == files[1]
    before, after = weights(first.folder), weights(second.folder)
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if name.startswith("encoder.")} <= same
    assert "decoder.blocks.0.feed_forward.up.weight" in before.keys() - same or len(same) < len(before)
    moved = [(before[name] - after[name]).abs().max() for name in before.keys() - same]
    assert max(moved) < 0.01  # two small steps from where the first model ended, not from fresh weights
    with pytest.raises(UsageError, match="begun from another model's weights: give the same --init"):
        train(recipe, out=tmp_path / "second", quiet=True)
    with pytest.raises(UsageError, match="begun from fresh weights"):
        train(tmp_path / "small.toml", out=tmp_path / "first", init=second.folder, quiet=True)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[model]\nkind = "rnn-attention"', "it is a transformer, and the recipe asks for a rnn-attention"),
        ("[model]\ndim = 32", "asks for another dim"),
        ('[tokenizer]\nkind = "bpe"', "its tokenizer is kept"),
    ],
)
def test_fine_tuning_to_something_else(table: str, message: str, make_recipe, tmp_path: Path) -> None:
    first = train(make_recipe(), out=tmp_path / "first", overrides={"training.steps": 3}, quiet=True)
    recipe = tmp_path / "tune.toml"
    recipe.write_text(f'name = "tune"\n[data]\nsource = ["a.fr"]\ntarget = ["a.en"]\n{table}\n')
    with pytest.raises(UsageError, match=message):
        train(recipe, out=tmp_path / "second", init=first.folder, quiet=True)


def test_names_that_training_met_are_told(make_recipe, tmp_path: Path) -> None:
    recipe = make_recipe()
    for file in ("a.fr", "a.en"):
        with open(tmp_path / file, "a", encoding="utf-8") as lines:
            lines.writelines(
                f"{word} {name} .\n" for name, words in {"Zoé": "bcdefg", "Ali": "h"}.items() for word in words
            )
    run = train(recipe, out=tmp_path / "run", overrides={"training.steps": 3, "data.names": 2}, quiet=True)
    assert run.load().reader.known_names == {"Zoé"}


def test_the_mean_of_checkpoints_is_taken_when_it_is_better(make_recipe, tmp_path: Path) -> None:
    settings = {"training.average": 3, "training.keep": 3, "decoding.sentences": 0}
    said: list[str] = []
    run = train(make_recipe(), out=tmp_path / "run", overrides=settings, quiet=True, say=said.append)
    assert any("average of the checkpoints of steps 6, 9, 12" in line for line in said)
    losses = [
        json.loads(line)["loss"]
        for line in (run.folder / "metrics.jsonl").read_text().splitlines()
        if json.loads(line)["kind"] == "validation"
    ]
    assert run.scores["loss"] <= min(losses)
    last = [load_file(run.folder / "training" / f"step-{n:08d}" / "weights.safetensors") for n in (6, 9, 12)]
    mean = {name: sum(one[name] for one in last) / 3 for name in last[0]}
    taken = weights(run.folder)
    is_mean = all(torch.allclose(taken[name], mean[name], atol=1e-6) for name in mean)
    is_last = equal(taken, last[-1])
    assert is_mean != is_last


def test_a_run_that_was_cut_off_before_its_end_is_finished(make_recipe, tmp_path: Path) -> None:
    """All steps are done and saved, but the mean of the checkpoints was not tried yet: the next start does it."""
    settings = {"training.average": 3, "training.keep": 3, "decoding.sentences": 0}
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.training.checkpoint.files.average_weights", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(make_recipe(), out=tmp_path / "run", overrides=settings, quiet=True)
    cut = train(make_recipe(), out=tmp_path / "run", overrides=settings, quiet=True, say=said.append)
    assert any("average of the checkpoints of steps 6, 9, 12" in line for line in said)
    whole = train(make_recipe(), out=tmp_path / "whole", overrides=settings, quiet=True)
    assert equal(weights(cut.folder), weights(whole.folder))


def test_more_patience_goes_on(make_recipe, tmp_path: Path) -> None:
    """Patience ended it; with more of it, it is not at its end."""
    settings = {"training.validate_every": 1, "training.lr": 1e-30, "training.patience": 1}  # too low to learn
    train(make_recipe(), out=tmp_path / "run", overrides=settings, quiet=True)
    said: list[str] = []
    train(make_recipe(), out=tmp_path / "run", overrides=settings, quiet=True, say=said.append)
    assert any(line.startswith("already complete: 1 validations without a better one") for line in said)
    train(make_recipe(), out=tmp_path / "run", overrides={**settings, "training.patience": 99}, quiet=True)
    assert (tmp_path / "run" / "training" / "step-00000012").is_dir()


def test_zero_configuration(make_recipe, tmp_path: Path) -> None:
    """Two files and nothing else: the main choices are explained, and the saved recipe is complete, with reasons."""
    from regard.training.recipe.from_files import recipe_for_files
    from regard.training.recipe.toml_file import apply_overrides, read_recipe

    make_recipe()
    said: list[str] = []
    recipe = apply_overrides(
        recipe_for_files([tmp_path / "a.fr", tmp_path / "a.en"]), {"training.steps": "3", "decoding.sentences": "2"}
    )
    assert recipe.name == "fr-en"
    run = train(recipe, out=tmp_path / "run", quiet=True, say=said.append)
    chosen = [line for line in said if line.startswith("chosen: ")]
    assert any(line.startswith("chosen: model.dim = 128: ") for line in chosen)
    assert len(chosen) < 10 and chosen[-1].endswith("recipe.toml has them all")
    kept = read_recipe(run.folder / "training" / "recipe.toml")
    assert "# for width 128" in (run.folder / "training" / "recipe.toml").read_text()
    assert kept.data.source_language == "fr"
    assert None not in (kept.training.lr, kept.training.batch_tokens, kept.training.schedule, kept.data.validation)
    again = train(recipe, out=tmp_path / "run", quiet=True, say=said.append)
    assert any(line.startswith("already complete") for line in said)
    assert again.scores == run.scores


def test_samples_and_their_alignment_picture(make_recipe, tmp_path: Path) -> None:
    run = train(make_recipe(), out=tmp_path / "run", overrides={"training.samples": 4}, quiet=True)
    pictures = sorted(path.name for path in (run.folder / "alignments").iterdir())
    assert pictures == ["step-00000006.png", "step-00000012.png"]
    line = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert len(line["samples"]) == 4
    assert line["samples"][0][1] == " ".join(line["samples"][0][0].split()[::-1]).upper()
    alignment = json.loads((run.folder / "config.json").read_text())["alignment"]
    assert alignment["layer"] == "decoder.0.cross"


def test_paths_of_the_data_stay_at_home(make_recipe, tmp_path: Path) -> None:
    run = train(make_recipe(), out=tmp_path / "run", overrides={"training.steps": 3}, quiet=True)
    for name in ("config.json", "README.md"):
        assert str(tmp_path) not in (run.folder / name).read_text()
    assert json.loads((run.folder / "config.json").read_text())["recipe"]["data"]["source"] == ["a.fr"]


def test_a_failing_compiler_is_told_with_the_way_round_it(tmp_path: Path) -> None:
    failed = type("InvalidCxxCompiler", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    with (
        pytest.raises(UsageError, match=r"\(No working C\+\+ compiler found\); --set training.compile=false trains"),
        explained_errors(tmp_path),
    ):
        raise failed("No working C++ compiler found\nin a long list of places")
    with pytest.raises(RuntimeError, match="something else"), explained_errors(tmp_path):
        raise RuntimeError("something else")


def test_a_training_that_could_not_begin_leaves_no_folders(make_recipe, tmp_path: Path) -> None:
    recipe = make_recipe()
    with pytest.raises(DataError):
        train(recipe, out=tmp_path / "runs" / "mine", overrides={"data.source": str(tmp_path / "missing.fr")})
    assert not (tmp_path / "runs").exists()
