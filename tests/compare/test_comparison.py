"""`regard compare`: equal sizes, equal data, equal tokens, a process a system; going on; what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from regard.compare import comparison as compare, data as compare_data
from regard.compare.comparison import check_equal_tokens, compare_systems, demo_recipe, learning_curve
from regard.compare.data import HeldOut, place_data, read_test
from regard.compare.report import Outcome
from regard.compare.systems import SYSTEMS, chosen_systems, count_parameters, matched_sizes
from regard.demo.corpus import demo_pairs, demo_words
from regard.errors import RegardError, StoppedError, UsageError
from regard.models.presets import make_model
from regard.recipes.model_table import model_config
from regard.text.files.corpus import read_pairs
from regard.training.recipe.from_files import recipe_for_files
from regard.training.recipe.schema import DataRecipe, DecodingRecipe, Recipe, TokenizerRecipe, TrainingRecipe
from regard.training.recipe.toml_file import read_recipe
from regard.training.run import child_process as measured

SYSTEMS_TRIED = ("rnn", "luong-dot")


# Sizes.


@pytest.mark.parametrize(
    ("parameters", "source", "target"),
    [
        (300_000, 50, 3000),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in ((1_000_000, 2000, 1500), (5_000_000, 300, 300))),
    ],
)
def test_systems_are_alike_in_size(parameters: int, source: int, target: int) -> None:
    """No two differ by more than 15%, and a step in width, up or down, would be no nearer."""
    tables = matched_sizes(list(SYSTEMS), parameters, source_vocabulary=source, target_vocabulary=target, shared=False)
    sizes = {}
    for name, table in tables.items():
        width = table.get("dim") or table["hidden"]
        near = {
            w: count_parameters(SYSTEMS[name].table(w), source_vocabulary=source, target_vocabulary=target)
            for w in (width - 4, width, width + 4)
        }
        assert min(near, key=lambda w: abs(near[w] - parameters)) == width
        sizes[name] = near[width]
    assert max(sizes.values()) <= 1.151 * min(sizes.values())


def test_names_leave_room_for_the_numbers_on_a_narrow_terminal() -> None:
    assert max(len(system.title) for system in SYSTEMS.values()) <= 22


def test_the_count_is_that_of_the_real_model() -> None:
    tables = matched_sizes(list(SYSTEMS), 60_000, source_vocabulary=90, target_vocabulary=90, shared=True)
    for table in tables.values():
        settings = {**table, "attention": "none"} if table["kind"] == "rnn-seq2seq" else table
        model = make_model(model_config(table["kind"], settings, source_vocabulary=90, target_vocabulary=90))
        assert model.config.kind == table["kind"]
        numbers = sum(parameter.numel() for parameter in model.parameters())
        assert numbers == count_parameters(table, source_vocabulary=90, target_vocabulary=90)
    pre, post = tables["transformer"], tables["transformer-post"]
    assert pre["share_embeddings"] is True
    # The two Transformers differ in the place of the norm, and post-norm needs no norm at the end.
    assert {key for key in pre if pre[key] != post[key]} <= {"order", "dim", "hidden"}
    assert (pre["order"], post["order"], post["position"]) == ("pre", "post", "sinusoidal")


def test_a_size_that_no_width_has() -> None:
    with pytest.raises(UsageError, match=r"no width of RNN has about 100,000 parameters with a vocabulary of 32,000"):
        matched_sizes(["rnn"], 100_000, source_vocabulary=32_000, target_vocabulary=32_000, shared=False)


def test_the_recurrent_systems_differ_in_their_attention_alone() -> None:
    tables = [SYSTEMS[name].table(64) for name in SYSTEMS if "transformer" not in name]
    rest = [{k: v for k, v in table.items() if k not in ("kind", "attention", "style")} for table in tables]
    assert all(table == rest[0] for table in rest)
    assert [table.get("attention") for table in tables] == [None, "additive", "dot", "bilinear"]


def test_systems_are_named_and_ordered() -> None:
    assert chosen_systems(["transformer", "rnn", "rnn"]) == ["rnn", "transformer"]
    with pytest.raises(UsageError, match="unknown system 'bahdanou'; did you mean 'bahdanau'"):
        chosen_systems(["bahdanou"])
    with pytest.raises(UsageError, match="no systems to compare"):
        chosen_systems([])


# Data.


def test_the_demo_corpus_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_data, "TEST_SENTENCES", 450)
    asked = Recipe(name="x", data=DataRecipe(demo=30, validation=10), training=TrainingRecipe(seed=4))
    data = place_data(asked, tmp_path, None).data
    train = read_pairs([Path(name) for name in data.pairs])
    assert train.source == [pair.source for pair in demo_pairs("train", 30, seed=4)]
    part, gold = read_test(tmp_path), demo_pairs("test", 400, seed=4)
    assert len(part.source) == 450 and part.target[:400] == [pair.target for pair in gold]
    assert part.gold == [set(pair.alignment) for pair in gold]
    assert part.edges is not None and part.edges[0] == 5


def test_a_test_part_is_held_out_of_files(tmp_path: Path) -> None:
    rows = [f"source {i}\ttarget {i}" for i in range(100)]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    data = place_data(recipe_for_files([tmp_path / "pairs.tsv"]), tmp_path, None).data
    parts = [read_pairs([tmp_path / f"{name}.jsonl"]) for name in ("train", "validation", "test")]
    seen = [{(s, t) for s, t in zip(part.source, part.target, strict=True)} for part in parts]
    assert len(seen[2]) == 9  # a tenth of the 95 that validation leaves
    assert sum(map(len, seen)) == 100 and set.union(*seen) == {tuple(row.split("\t")) for row in rows}
    assert data.pairs == (str(tmp_path / "train.jsonl"),) and data.validation is None
    part = read_test(tmp_path)
    assert part.gold is None and part.edges is None and part.alignment_error(part.in_order) is None


def test_links_of_words_in_order() -> None:
    part = HeldOut(["l'eau est bleue."], ["water is blue."], [frozenset({(1, 0), (2, 1), (3, 2), (4, 3)})])
    assert demo_words("l'eau est bleue.") == ["l'", "eau", "est", "bleue", "."]
    assert part.in_order(part.source[0], part.target[0]) == {(0, 0), (1, 1), (2, 2), (3, 3)}
    assert part.in_order("a b c d e", "x y") == {(0, 0), (2, 1)}
    assert part.alignment_error(part.in_order) == 1.0
    assert part.alignment_error(lambda source, target: {(1, 0), (2, 1)}) == pytest.approx(1 - 4 / 6)


# The process of its own.


def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Something else in place of Python; its fourth argument is the folder of the run."""
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    return tmp_path


def test_a_training_that_fails_ends_the_comparison_with_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = child(tmp_path, monkeypatch, "exit 5")
    with pytest.raises(RegardError, match="ended with exit code 5") as caught:
        measured.train_apart(folder / "x.toml", folder)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_is_passed_on_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    trap = "trap 'sleep 0.3; echo done > \"$4/saved\"; exit 130' INT TERM"
    folder = child(tmp_path, monkeypatch, f'{trap}\ntouch "$4/ready"\nwhile :; do sleep 0.05; done')

    def press() -> None:
        for _ in range(600):
            if (folder / "ready").exists():
                break
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(StoppedError, match=f"stopped by {name}") as caught:
        measured.train_apart(folder / "x.toml", folder)
    thread.join()
    assert caught.value.exit_code == 128 + number
    assert (folder / "saved").exists()


def test_memory_is_the_peak_of_the_process_alone() -> None:
    """A child of a large process: 100 MB that it frees again count, the parent's 200 MB do not."""
    script = (
        "from regard.machine import peak_resident\n"
        "before = peak_resident()\n"
        "x = b'1' * 100_000_000\n"
        "del x\n"
        "print(before, peak_resident())"
    )
    ballast = b"1" * 200_000_000
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    before, after = map(int, told.split())
    assert len(ballast) > before
    assert 90_000_000 < after - before < 120_000_000


# Curves and equality.


def test_a_learning_curve_counts_tokens_at_each_validation(tmp_path: Path) -> None:
    records = [
        {"step": 50, "kind": "train", "tokens": 1000},
        {"step": 75, "kind": "validation", "bleu": {"value": 10.0}},
        {"step": 100, "kind": "train", "tokens": 2200},
        {"step": 100, "kind": "validation", "bleu": {"value": 30.0}},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    assert learning_curve(tmp_path / "metrics.jsonl") == [(1600, 10.0), (2200, 30.0)]


# A whole comparison, as small as can be.


def small_recipe(folder: Path) -> Recipe:
    rows = [{"source": pair.source, "target": pair.target} for pair in demo_pairs("train", 60, seed=5)]
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return replace(
        recipe_for_files([file], name="small"),
        tokenizer=TokenizerRecipe(kind="characters"),
        training=TrainingRecipe(steps=3, batch_tokens=512, validate_every=2, save_every=2, log_every=1),
        decoding=DecodingRecipe(sentences=4, max_tokens=8),
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path, Recipe]:
    """The first system is trained in a process of its own, as usual; the second here, to save the import of torch."""
    folder = tmp_path_factory.mktemp("compare")
    recipe = small_recipe(folder)
    out = folder / "out"

    def train(toml: Path, run: Path, *, quiet: bool) -> None:
        if run.name == SYSTEMS_TRIED[0]:
            measured.train_apart(toml, run, quiet=quiet)
        else:
            assert measured.main([str(toml), str(run), "--quiet"]) == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "train_apart", train)
        patch.setattr(compare, "BOOTSTRAP_SAMPLES", 100)
        outcome = compare_systems(recipe, out=out, systems=SYSTEMS_TRIED, parameters=40_000, quiet=True)
    return outcome, out, recipe


def test_equal_tokens_and_like_sizes(compared: tuple[Outcome, Path, Recipe]) -> None:
    outcome, out, _ = compared
    rnn, luong = outcome.results.values()
    assert rnn.tokens == luong.tokens > 1000 and rnn.steps == luong.steps == 3
    assert max(rnn.parameters, luong.parameters) < 1.15 * min(rnn.parameters, luong.parameters)
    orders = [
        [(r["step"], r["tokens"]) for r in map(json.loads, lines) if r["kind"] == "train"]
        for lines in ((out / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines() for name in SYSTEMS_TRIED)
    ]
    assert orders[0] == orders[1] and len(orders[0]) == 3
    with pytest.raises(RuntimeError, match="have not seen the same target tokens: RNN"):
        check_equal_tokens([rnn, replace(luong, tokens=luong.tokens + 1)])


def test_one_tokenizer_one_seed_one_order(compared: tuple[Outcome, Path, Recipe]) -> None:
    _, out, _ = compared
    for name in ("characters.json", "source.characters.json", "target.characters.json"):
        assert len({(out / system / name).exists() for system in SYSTEMS_TRIED}) == 1
        if (out / "rnn" / name).exists():
            assert (out / "rnn" / name).read_bytes() == (out / "luong-dot" / name).read_bytes()
    data = [json.loads((out / system / "training" / "data.json").read_bytes()) for system in SYSTEMS_TRIED]
    assert data[0] == data[1]
    recipes = [read_recipe(out / f"{system}.toml") for system in SYSTEMS_TRIED]
    assert recipes[0].training == recipes[1].training
    assert recipes[0].training.lr == 1e-3  # that of recurrent nets, not the Transformer's that sized the comparison


def test_what_is_measured(compared: tuple[Outcome, Path, Recipe]) -> None:
    outcome, out, _ = compared
    for result in outcome.results.values():
        assert result.memory is not None and 50e6 < result.memory < 4e9
        assert result.seconds > 0 and result.bleu.interval is not None
        assert [tokens for tokens, _ in result.curve][-1] == result.tokens and len(result.curve) == 2
        assert sum(bucket.count for bucket in result.buckets) == len(
            (out / f"{result.name}.txt").read_text().splitlines()
        )
        assert result.aer is None  # no gold
    assert set(outcome.pairs) == {("rnn", "luong-dot")}
    assert {path.name for path in out.iterdir()} >= {"table.md", "results.json", "by-length.png", "learning.png"}


def test_again_it_only_reports(compared: tuple[Outcome, Path, Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, out, recipe = compared
    monkeypatch.setattr(compare, "train_apart", lambda *_, **__: pytest.fail("nothing is left to train"))
    monkeypatch.setattr(compare, "BOOTSTRAP_SAMPLES", 100)
    before = (out / "rnn" / "training" / "latest").stat().st_mtime_ns
    again = compare_systems(recipe, out=out, systems=SYSTEMS_TRIED)
    assert [r.bleu for r in again.results.values()] == [r.bleu for r in outcome.results.values()]
    assert (out / "rnn" / "training" / "latest").stat().st_mtime_ns == before


def test_one_system_more_joins_with_the_same_tokenizer_and_size(
    compared: tuple[Outcome, Path, Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, recipe = compared
    asked: list[Path] = []

    def train(recipe: Path, folder: Path, *, quiet: bool) -> None:
        asked.append(folder)
        raise StoppedError("enough", signal.SIGINT)

    monkeypatch.setattr(compare, "train_apart", train)
    with pytest.raises(StoppedError):
        compare_systems(recipe, out=out, systems=[*SYSTEMS_TRIED, "bahdanau"])
    assert asked == [out / "bahdanau"]
    toml = (out / "bahdanau.toml").read_text(encoding="utf-8")
    assert 'name = "small-bahdanau"' in toml and "steps = 3" in toml and 'attention = "additive"' in toml


def test_other_settings_in_the_same_folder_are_refused(compared: tuple[Outcome, Path, Recipe]) -> None:
    _, out, recipe = compared
    with pytest.raises(UsageError, match="holds a comparison of other data or settings"):
        compare_systems(replace(recipe, training=replace(recipe.training, seed=9)), out=out)
    with pytest.raises(UsageError, match="holds a comparison of other data or settings"):
        compare_systems(recipe, out=out, parameters=50_000)


def test_what_compare_refuses(tmp_path: Path) -> None:
    recipe = demo_recipe()
    with pytest.raises(UsageError, match=r"take the table \[model\] out"):
        compare_systems(replace(recipe, model={"kind": "transformer"}), out=tmp_path / "a")
    with pytest.raises(UsageError, match=r"training.patience"):
        compare_systems(replace(recipe, training=replace(recipe.training, patience=2)), out=tmp_path / "a")
    with pytest.raises(UsageError, match="compare needs sentence pairs"):
        compare_systems(Recipe(name="x", data=DataRecipe(text=("x.txt",))), out=tmp_path / "a")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="exists and holds no comparison: it is left alone"):
        compare_systems(recipe, out=tmp_path / "letters")
    assert not (tmp_path / "a").exists()
