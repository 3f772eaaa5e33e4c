"""Zero configuration: what is open is chosen with a reason, what is given stays, and the result can train."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import DataError, UsageError
from regard.machine import free_memory
from regard.models.presets import MODELS, make_model
from regard.recipes.schedule import learning_rate
from regard.text.files.corpus import make_corpus
from regard.training.recipe.defaults import DataFacts, Machine, complete, facts_of, recipe_for_files, this_machine
from regard.training.recipe.from_files import language_of
from regard.training.recipe.schema import DataRecipe, DecodingRecipe, Recipe, TokenizerRecipe, TrainingRecipe

CPU = Machine("cpu", cores=2, memory=8 * 2**30)
GPU = Machine("cuda", cores=16, memory=24 * 2**30, bf16=True)
PAIRS = DataRecipe(pairs="/a.tsv")
LEFT_OPEN = {  # what other parts decide, or nobody need
    "data": {
        "columns",
        "demo",
        "source_language",
        "target_language",
        "max_length",
        "context",
        "validation",
        "names",
        "rows",
        "scenes",
    },
    "tokenizer": {"size", "shared", "min_count"},
    "training": {"capture"},
    "decoding": {"max_tokens"},
}


def pairs(count: int, words: int = 12) -> DataFacts:
    return DataFacts(count, words=count * words, characters=count * words * 6, distinct_words=min(count, 30_000))


facts = st.builds(
    DataFacts,
    samples=st.integers(2, 10**8),
    words=st.integers(2, 10**10),
    characters=st.integers(10, 10**11),
    distinct_words=st.integers(1, 10**7),
    shared_letters=st.floats(0, 1),
)
ARRAYS = {  # what a pass over images, or windows of a series, adds to the counts
    "image-classifier": lambda facts: {"tokens": 65 * facts.samples, "shape": (3, 32, 32)},
    "captioner": lambda facts: {"tokens": 64 * facts.samples, "shape": (1, 3, 32, 32)},
    "rnn-captioner": lambda facts: {"tokens": 64 * facts.samples, "shape": (1, 3, 32, 32)},
    "forecaster": lambda facts: {"tokens": 42 * facts.characters, "shape": (facts.samples, 7)},
    **dict.fromkeys(("speech-recognizer", "listen-attend-spell", "speech-ctc"), lambda facts: {"shape": (8_000,)}),
    "dlinear": lambda facts: {"tokens": facts.characters, "shape": (facts.samples, 7)},
}
WITHOUT_TEXT = ("image-classifier", "forecaster", "dlinear")
machines = st.sampled_from(
    [CPU, GPU, Machine("cpu", 64, 2**40), Machine("mps", 8, 2**34), Machine("cuda:1", 4, 2**33, bf16=False)]
)


@given(kind=st.sampled_from([None, *MODELS]), facts=facts, machine=machines)
def test_nothing_stays_open_and_the_result_can_train(kind: str | None, facts: DataFacts, machine: Machine) -> None:
    facts = dataclasses.replace(facts, **ARRAYS[kind](facts)) if kind in ARRAYS else facts
    recipe, choices = complete(
        Recipe(name="a", data=DataRecipe(demo=9), model={"kind": kind} if kind else {}), facts, machine
    )
    for table, settings in dataclasses.asdict(recipe).items():
        for key, value in settings.items() if table != "name" else ():
            without_text = table == "tokenizer" and kind in WITHOUT_TEXT
            assert value is not None or without_text or key in LEFT_OPEN.get(table, ()), f"{table}.{key}"
    for choice in choices:
        table, _, key = choice.key.partition(".")
        assert dataclasses.asdict(recipe)[table][key] == choice.value
        assert choice.why and "\n" not in str(choice)
    assert len({choice.key for choice in choices}) == len(choices)
    training = recipe.training
    assert training.batch_tokens and (recipe.data.max_length or recipe.data.context or 0) <= training.batch_tokens
    with torch.device("meta"):
        make_model(recipe.config(source_vocabulary=100, target_vocabulary=100))
    rates = [
        learning_rate(
            step,
            kind=str(training.schedule),
            peak=training.lr or 0,
            warmup=training.warmup or 0,
            steps=training.steps,
            dim=512,
        )
        for step in (1, training.warmup or 1)
    ]
    assert 0 < rates[0] <= rates[1] == training.lr
    assert complete(recipe, facts, machine) == (recipe, [])


@given(
    training=st.fixed_dictionaries(
        {},
        optional={
            "steps": st.integers(10, 10**6),
            "batch_tokens": st.integers(1, 10**5),
            "lr": st.floats(1e-5, 1),
            "warmup": st.integers(0, 5),
            "schedule": st.sampled_from(["inverse-sqrt", "cosine", "constant"]),
            "precision": st.just("fp32"),
            "label_smoothing": st.floats(0, 0.5),
            "validate_every": st.integers(1, 99),
        },
    ),
    model=st.fixed_dictionaries(
        {},
        optional={
            "layers": st.integers(1, 5),
            "dim": st.integers(1, 9).map(lambda n: 60 * n),
            "heads": st.sampled_from([1, 3, 4, 5]),
            "dropout": st.floats(0, 0.9),
            "order": st.sampled_from(["pre", "post"]),
            "share_embeddings": st.booleans(),
        },
    ),
    machine=machines,
)
def test_what_is_given_stays(training: dict[str, Any], model: dict[str, Any], machine: Machine) -> None:
    asked = Recipe(name="a", data=PAIRS, model=model, training=TrainingRecipe(**training))
    recipe, choices = complete(asked, pairs(9000), machine)
    assert {key: recipe.model[key] for key in model} == model
    assert {key: getattr(recipe.training, key) for key in training} == training
    assert (recipe.data.max_length or 0) <= (recipe.training.batch_tokens or 0)  # or a pair would fit into no batch
    given = {f"training.{key}" for key in training} | {f"model.{key}" for key in model}
    assert given.isdisjoint(choice.key for choice in choices)


@pytest.mark.parametrize(
    ("machine", "model", "training", "capture"),
    [
        (GPU, {}, {}, True),
        (GPU, {"kind": "rnn-attention", "layers": 1}, {}, True),
        (GPU, {"kind": "rnn-attention", "layers": 2}, {}, None),  # its dropout cannot be repeated
        (GPU, {"kind": "encoder"}, {}, None),
        (GPU, {"kind": "classifier"}, {}, None),  # its batches have many shapes
        (GPU, {}, {"precision": "fp16"}, None),
        (dataclasses.replace(GPU, bf16=False), {}, {}, None),  # which takes fp16
        (CPU, {}, {}, None),
        (Machine("mps", 8, 2**34), {}, {}, None),
        (GPU, {}, {"capture": False}, False),
        # 10^13 parameters times tokens are the bound; there are 54.7 million
        (GPU, {"preset": "transformer-base"}, {"batch_tokens": 180_000}, True),
        (GPU, {"preset": "transformer-base"}, {"batch_tokens": 186_000}, False),
    ],
)
def test_steps_are_recorded_where_python_is_slower(
    machine: Machine, model: dict[str, Any], training: dict[str, Any], capture: bool | None
) -> None:
    asked = Recipe(name="a", data=PAIRS, model=model, training=TrainingRecipe(**training))
    recipe, choices = complete(asked, pairs(160_000), machine)
    assert recipe.training.capture is capture
    why = {choice.key: choice.why for choice in choices}.get("training.capture")
    if capture is None or "capture" in training:
        assert why is None
    else:
        assert why == (
            "the GPU would wait for Python" if capture else "a step keeps the GPU busy, and capturing it takes memory"
        )


@pytest.mark.parametrize(
    "given",
    [
        {"dim": 96},
        {"heads": 6},
        {"kv_heads": 3},
        {"dim": 64, "kv_heads": 4},
        {"dim": 20},
        {"preset": "transformer-big"},
    ],
)
def test_chosen_sizes_fit_the_given_ones(given: dict[str, int]) -> None:
    recipe, _ = complete(Recipe(name="a", data=PAIRS, model=given), pairs(29_000), GPU)
    assert recipe.model["dim"] % recipe.model["heads"] == 0
    assert recipe.model["heads"] % recipe.model.get("kv_heads", 1) == 0
    for key, value in given.items():
        assert key == "preset" or recipe.model[key] == value


@pytest.mark.parametrize("given", [{"tie_output": True}, {"tie_output": True, "embedding": 64}])
def test_tied_cells_are_as_wide_as_the_table(given: dict[str, Any]) -> None:
    recipe, _ = complete(Recipe(name="a", data=PAIRS, model={"kind": "rnn-attention", **given}), pairs(29_000), CPU)
    assert recipe.model["hidden"] == recipe.model["embedding"] == given.get("embedding", 256)


@pytest.mark.parametrize(
    ("facts", "machine", "layers", "dim"),
    [
        (pairs(15_000), CPU, 2, 128),
        (pairs(29_000), CPU, 2, 128),  # Multi30k
        (pairs(29_000), GPU, 4, 128),
        (pairs(160_000, 18), CPU, 4, 128),  # IWSLT
        (pairs(160_000, 18), GPU, 4, 256),
        (pairs(4_500_000, 25), GPU, 6, 512),  # WMT 2014: the base model
        (pairs(4_500_000, 25), CPU, 4, 128),
    ],
)
def test_size_follows_data_and_device(facts: DataFacts, machine: Machine, layers: int, dim: int) -> None:
    recipe, _ = complete(Recipe(name="a", data=PAIRS), facts, machine)
    assert (recipe.model["layers"], recipe.model["dim"]) == (layers, dim)
    assert recipe.model["order"] == "pre" and recipe.kind == "transformer"


def test_passes_over_the_data_become_steps() -> None:
    """29,000 pairs of 12 words: 12 * 1.4 pieces and an end token each, 30 times, in batches filled to nine tenths."""
    recipe, choices = complete(
        Recipe(name="a", data=PAIRS, training=TrainingRecipe(batch_tokens=4000)), pairs(29_000), GPU
    )
    want = 29_000 * (12 * 1.4 + 1) * 30 / (4000 * 0.9)
    assert recipe.training.steps == pytest.approx(want, rel=0.05)
    assert any(c.key == "training.steps" and "30 epochs" in c.why for c in choices)
    assert recipe.training.accumulate == 1
    half, _ = complete(
        Recipe(name="a", data=PAIRS, training=TrainingRecipe(batch_tokens=4000, accumulate=2)), pairs(29_000), GPU
    )
    assert half.training.steps == pytest.approx(want / 2, rel=0.05)


def test_a_cpu_is_given_an_hour() -> None:
    small, choices = complete(Recipe(name="a", data=PAIRS), pairs(4_500_000, 25), CPU)
    large, _ = complete(Recipe(name="a", data=PAIRS), pairs(4_500_000, 25), dataclasses.replace(CPU, cores=4))
    assert small.training.steps and large.training.steps
    assert large.training.steps == pytest.approx(2 * small.training.steps, rel=0.1)
    assert any(c.key == "training.steps" and "an hour on 2 cores" in c.why for c in choices)


def test_device_and_precision() -> None:
    def chosen(machine: Machine, **training: Any) -> tuple[Any, Any, Any]:
        recipe, _ = complete(Recipe(name="a", data=PAIRS, training=TrainingRecipe(**training)), pairs(10**6), machine)
        return recipe.training.device, recipe.training.precision, recipe.training.batch_tokens

    assert chosen(GPU) == ("cuda", "bf16", 16384)
    assert chosen(dataclasses.replace(GPU, bf16=False))[1] == "fp16"
    assert chosen(CPU) == chosen(CPU, device="auto") == ("cpu", "fp32", 2048)
    assert chosen(GPU, device="cpu") == ("cpu", "fp32", 2048)  # the device that is asked for decides
    assert chosen(Machine("mps", 8, 2**34)) == ("mps", "fp32", 4096)


def test_by_kind_of_model() -> None:
    def chosen(form: str, kind: str | None, characters: int) -> Recipe:
        data = DataRecipe(text="/a") if form == "text" else PAIRS
        facts = DataFacts(1000, characters // 6, characters, 500, 0.2)
        return complete(Recipe(name="a", data=data, model={"kind": kind} if kind else {}), facts, CPU)[0]

    translator, writer, encoder = (
        chosen("pairs", None, 10**6),
        chosen("text", None, 10**6),
        chosen("pairs", "encoder", 10**6),
    )
    assert [r.kind for r in (translator, writer, encoder)] == ["transformer", "transformer-lm", "encoder"]
    assert [r.tokenizer.kind for r in (translator, writer)] == ["unigram", "characters"]
    assert chosen("text", None, 10**8).tokenizer.kind == "bpe"
    assert [r.tokenizer.shared for r in (translator, writer, encoder)] == [False, None, True]
    assert [r.training.label_smoothing for r in (translator, writer, encoder)] == [0.1, 0.0, 0.0]
    assert [r.data.validation for r in (translator, writer)] == [50, 10**5]
    assert writer.data.context and not writer.data.max_length and translator.data.max_length
    sized = Recipe(name="a", data=DataRecipe(text="/a"), tokenizer=TokenizerRecipe(size=500))
    assert complete(sized, DataFacts(1, 10**5, 10**6, 500), CPU)[0].tokenizer.kind == "bpe"  # a size means subwords
    assert chosen("pairs", "rnn-seq2seq", 10**6).model["attention"] == "none"


def test_shared_embeddings_go_with_a_shared_vocabulary() -> None:
    def chosen(letters: float, **recipe: Any) -> tuple[Any, Any]:
        facts = dataclasses.replace(pairs(10**5), shared_letters=letters)
        found, _ = complete(Recipe(name="a", data=PAIRS, **recipe), facts, CPU)
        return found.tokenizer.shared, found.model["share_embeddings"]

    assert chosen(0.9) == (True, True) and chosen(0.1) == (False, False)
    assert chosen(0.1, model={"share_embeddings": True}) == (True, True)
    assert chosen(0.9, tokenizer=TokenizerRecipe(shared=False)) == (False, False)


def test_validation_files_leave_nothing_to_hold_out() -> None:
    data = DataRecipe(pairs="/a.tsv", validation_pairs="/b.tsv")
    assert complete(Recipe(name="a", data=data), pairs(10**5), CPU)[0].data.validation is None


# Facts.


def test_facts_are_counted() -> None:
    facts = facts_of(make_corpus(["un été", "un"], ["a summer", "a one a"], name="x"))
    # e is not é, so of u, n, é, t the target has u, n... and no é, no t
    assert facts == DataFacts(2, words=5, characters=15, distinct_words=3, shared_letters=2 / 4)
    assert facts_of(make_corpus(["ab ab\ncd"], name="x")) == DataFacts(1, 3, 8, 2, 1.0)


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = this_machine("cpu")
    assert machine.device == machine.type == "cpu" and machine.cores >= 1
    assert 2**28 < free_memory("cpu") <= machine.memory
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert this_machine() == this_machine("auto") == machine
    with pytest.raises(UsageError, match=r"training.device: cuda was asked for, and this machine has cpu"):
        this_machine("cuda")


@pytest.mark.parametrize("version", [1, 2])
def test_free_memory_heeds_the_limits_of_control_groups(
    version: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The tightest of the groups around the process counts; files that are only kept in memory are no hindrance."""
    line, controller, names, files = {
        1: ("4:memory:/slurm/job", "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_inactive_file"),
        2: ("0::/slurm/job", "", ("memory.max", "memory.current"), "inactive_file"),
    }[version]
    monkeypatch.setattr("regard.machine.control_groups.PROCESS", tmp_path / "self")
    monkeypatch.setattr("regard.machine.control_groups.CONTROL_GROUPS", tmp_path / "groups")
    free = free_memory("cpu")
    assert 2**28 < free <= this_machine("cpu").memory

    def write(group: str, limit: str, used: int, kept: int = 0) -> None:
        folder = tmp_path / "groups" / controller / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, (limit, used), strict=True):
            (folder / name).write_text(f"{value}\n")
        (folder / "memory.stat").write_text(f"anon 7\n{files} {kept}\n{files}_x 99\n")

    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(f"3:cpu:/elsewhere\n{line}\n")
    write("slurm/job", "9000", 1000, 50)
    assert free_memory("cpu") == 8050
    write("slurm", "5000", 2000)
    assert free_memory("cpu") == 3000
    write("", "2500", 2600)
    assert free_memory("cpu") == 0
    for group in ("", "slurm", "slurm/job"):
        write(group, "max", 1000)
    assert free_memory("cpu") > 2**28


# Files alone.


@pytest.fixture
def files(tmp_path: Path) -> Any:
    def files(*names: str) -> list[str]:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(f"{name}\n")
        return [str(tmp_path / name) for name in names]

    return files


@pytest.mark.parametrize(
    ("names", "form", "languages", "name"),
    [
        (("fr.txt", "en.txt"), "source", ("fr", "en"), "fr-en"),
        (("train.de", "train.en"), "source", ("de", "en"), "de-en"),
        (("x.fr-de.de.gz", "x.fr-de.fr.gz"), "source", ("de", "fr"), "de-fr"),
        (("corpus_fr.txt.xz", "corpus_en.txt.xz"), "source", ("fr", "en"), "fr-en"),
        (("left.txt", "my words.txt"), "source", (None, None), "left-my-words"),
        (("left.txt", "right.fr"), "source", (None, None), "left-right.fr"),
        (("a.fr", "b.fr"), "source", (None, None), "a.fr-b.fr"),
        (("a.fr", "b.fr", "a.en", "b.en"), "source", ("fr", "en"), "fr-en"),
        (("a.fr", "a.en", "b.fr", "b.en"), "source", ("fr", "en"), "fr-en"),
        (("news.fr-en.tsv",), "pairs", ("fr", "en"), "fr-en"),
        (("fr-en.0.jsonl.gz", "fr-en.1.jsonl.gz"), "pairs", (None, None), "fr-en.0"),
        (("pairs.tsv",), "pairs", (None, None), "pairs"),
        (("shakespeare.txt",), "text", (None, None), "shakespeare"),
        (("-.txt",), "text", (None, None), "model"),
    ],
)
def test_files_become_a_recipe(files: Any, names: tuple[str, ...], form: str, languages: Any, name: str) -> None:
    recipe = recipe_for_files(files(*names))
    assert recipe.form == form and recipe.name == name
    assert (recipe.data.source_language, recipe.data.target_language) == languages
    assert {
        Path(f).name for f in (*recipe.data.source, *recipe.data.target, *recipe.data.pairs, *recipe.data.text)
    } == {*names}


def test_shards_stay_side_by_side(files: Any) -> None:
    data = recipe_for_files(files("a.fr", "a.en", "b.fr", "b.en")).data
    assert [Path(f).name for f in data.source] == ["a.fr", "b.fr"]
    assert [Path(f).name for f in data.target] == ["a.en", "b.en"]


def test_what_is_said_wins_over_what_is_guessed(files: Any) -> None:
    recipe = recipe_for_files(files("fr.txt", "en.txt"), name="mine", source_language="oc", target_language="ia")
    assert (recipe.name, recipe.data.source_language, recipe.data.target_language) == ("mine", "oc", "ia")
    assert recipe_for_files(files("a.txt", "b.txt", "c.txt"), model="rnn-lm").data.text == tuple(
        files("a.txt", "b.txt", "c.txt")
    )
    assert recipe_for_files(files("fr.txt", "en.txt"), model="encoder").kind == "encoder"
    assert recipe_for_files(files("a.tsv"), columns=(1, 2)).data.columns == (1, 2)


def test_files_that_tell_nothing(files: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no files were given"):
        recipe_for_files([])
    with pytest.raises(DataError, match=r"nowhere\.txt: no such file"):
        recipe_for_files([*files("a.txt"), "nowhere.txt"])
    with pytest.raises(UsageError, match="are the same file"):
        recipe_for_files(files("a.txt") * 2)
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    with pytest.raises(UsageError, match="are the same file"):
        recipe_for_files([*files("a.txt"), tmp_path / "link.txt"])
    for names in (("a.txt", "b.txt", "c.txt"), ("a.fr", "b.fr", "a.en"), ("a.fr", "a.en", "a.de")):
        with pytest.raises(UsageError, match=r"3 files, and their names do not tell"):
            recipe_for_files(files(*names))
    with pytest.raises(UsageError, match=r"b.tsv holds pairs and others do not"):
        recipe_for_files(files("a.txt", "b.tsv"))
    with pytest.raises(UsageError, match=r"a.txt is one plain file: a model of this kind learns from two"):
        recipe_for_files(files("a.txt"), model="transformer")
    with pytest.raises(UsageError, match=r"unknown kind of model 'encodr'; did you mean 'encoder'"):
        recipe_for_files(files("a.txt"), model="encodr")
    with pytest.raises(UsageError, match=r"columns is for files of pairs"):
        recipe_for_files(files("a.txt"), columns=(0, 1))


@pytest.mark.parametrize(("name", "want"), [("fr.txt", "fr"), ("a.FR", "fr"), ("fr.a.txt", None), ("from.txt", None)])
def test_language_of(name: str, want: str | None) -> None:
    assert language_of(Path(name)) == want


@pytest.mark.parametrize("machine", [CPU, GPU])
def test_a_short_run_validates_once(machine: Machine) -> None:
    """Ten steps made ten validations, which took most of the time."""
    facts = dataclasses.replace(pairs(20_000), validation_samples=1000, validation_characters=72_000)
    short = Recipe(name="a", data=PAIRS, training=TrainingRecipe(steps=10))
    recipe, choices = complete(short, facts, machine)
    assert recipe.training.validate_every == recipe.training.save_every == 10
    (why,) = (choice.why for choice in choices if choice.key == "training.validate_every")
    assert why == "at the end of so short a run"


def test_validations_take_a_bounded_share() -> None:
    """The interval follows from the sizes: the more sentences are translated, the rarer; none costs little."""
    facts = dataclasses.replace(pairs(20_000), validation_samples=1000, validation_characters=72_000)
    intervals = []
    for sentences in (1000, 500, 50, 0):
        recipe = Recipe(
            name="a",
            data=PAIRS,
            training=TrainingRecipe(steps=240, batch_tokens=2048),
            decoding=DecodingRecipe(sentences=sentences),
        )
        intervals.append(complete(recipe, facts, CPU)[0].training.validate_every)
    assert intervals == sorted(intervals, reverse=True)
    assert intervals[0] > 2 * intervals[-1] and intervals[-1] == 24  # ten times a run
    long = complete(Recipe(name="a", data=PAIRS, training=TrainingRecipe(steps=5000)), facts, CPU)[0]
    assert long.training.validate_every == 500


@pytest.mark.parametrize(("validate_every", "save_every"), [(80, 80), (100_000, 2500)])
def test_save_every_follows_the_validations_of_the_user(validate_every: int, save_every: int) -> None:
    asked = Recipe(name="a", data=PAIRS, training=TrainingRecipe(steps=240, validate_every=validate_every))
    recipe, choices = complete(asked, pairs(9000), CPU)
    (choice,) = (choice for choice in choices if choice.key == "training.save_every")
    assert recipe.training.save_every == save_every
    assert choice.why == ("with each validation" if save_every == 80 else "a crash costs no more steps")
