"""Recipes: what is wrong is told with file, line and nearest key; what is right reads back the same."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.errors import UsageError
from regard.models.presets import MODELS, make_model
from regard.training.recipe.schema import (
    DataRecipe,
    DecodingRecipe,
    Recipe,
    TokenizerRecipe,
    TrainingRecipe,
    recipe_from,
)
from regard.training.recipe.toml_file import changed_keys, fill_in, key_lines, read_recipe, shipped_recipes, to_toml

PAIRS = '[data]\npairs = "a.tsv"\n'


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str, name: str = "my.toml") -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


# What is wrong, and on which line.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[training]\nlerning_rate = 1",
            r"^my.toml, line 4: unknown key 'lerning_rate' in \[training\]; did you mean 'lr'",
        ),
        ("[training]\n\n# a\nwarmupp = 1", r"^my.toml, line 6: unknown key 'warmupp' .* did you mean 'warmup'"),
        ("[training]\nxyz = 1", r"^my.toml, line 4: unknown key 'xyz' in \[training\] \(known: steps, batch_tokens"),
        ("[training]\ndropout = 0.1", r"^my.toml, line 4: unknown key 'dropout' .* belongs in \[model\]"),
        ("[model]\nlr = 0.1", r"^my.toml, line 4: unknown key 'lr' in \[model\]; it belongs in \[training\]"),
        ("[trainin]\nlr = 0.1", r"^my.toml, line 3: unknown key 'trainin' in the recipe; did you mean 'training'"),
        ("[training]\nlr = '0.1'", r"^my.toml, line 4: training.lr must be a number, got '0.1'"),
        ("[training]\nsteps = 1.5", r"^my.toml, line 4: training.steps must be a whole number, got 1.5"),
        ("[training]\nsteps = true", r"^my.toml, line 4: training.steps must be a whole number, got True"),
        ("[training]\ncompile = 1", r"^my.toml, line 4: training.compile must be true or false, got 1"),
        ("[training]\nlr = 0", r"^my.toml, line 4: training.lr must be above 0, got 0"),
        ("[training]\nlr = nan", r"^my.toml, line 4: training.lr must be a number, got nan"),
        ("[training]\nsteps = 0", r"^my.toml, line 4: training.steps must be at least 1, got 0"),
        (
            "[training]\nlabel_smoothing = 1.0",
            r"line 4: training.label_smoothing must be at least 0 and below 1, got 1",
        ),
        ("[training]\nbetas = [0.9, 1.0]", r"line 4: training.betas must be at least 0 and below 1, got 1"),
        ("[training]\nbetas = [0.9]", r"line 4: training.betas must be a list of two, each a number"),
        ("[training]\nbetas = [\n0.9,\n0.9]\nclip = -1", r"^my.toml, line 7: training.clip must be at least 0"),
        ("[training]\nschedule = 'cosin'", r"line 4: unknown training.schedule 'cosin'; did you mean 'cosine'"),
        ("[training]\ndevice = 'gpu'", r"line 4: unknown training.device 'gpu'"),
        ("[training]\nschedule = 'cosine'\nsteps = 10\nwarmup = 10", r"line 4: training.schedule: .* no steps left"),
        ("[training]\ntemperature = 0.1", r"line 4: training.temperature does not fit: .* transformer has no use"),
        (
            "[training]\nema = 0.999\naverage = 5",
            r"line 4: training.ema and training.average are two ways to average the weights",
        ),
        (
            "[model]\ndropout = 0.0\n[training]\nr_drop = 1.0",
            r"line 6: training.r_drop does not fit: .* has no dropout, so both passes",
        ),
        (
            "[model]\nkind = 'encoder'\n[training]\nr_drop = 1.0",
            r"line 6: training.r_drop does not fit: .* encoder predicts no tokens",
        ),
        ("[training]\nr_drop = -1.0", r"line 4: training.r_drop must be at least 0"),
        (
            "[training]\ncapture = true\nprecision = 'fp16'",
            r"line 4: training.capture needs fp32, bf16 or fp8: with fp16 the loss scale changes",
        ),
        (
            "[training]\ncapture = true\noptimizer = 'sgd'",
            r"line 4: training.capture needs adam or adamw, .* but optimizer is sgd",
        ),
        (
            "[model]\nkind = 'encoder'\n[training]\ncapture = true",
            r"line 6: training.capture does not fit: .* encoder compares the rows of a batch",
        ),
        (
            "[model]\nkind = 'classifier'\n[training]\ncapture = true",
            r"line 6: training.capture does not fit: .* classifier has batches of many shapes",
        ),
        (
            "[model]\nkind = 'rnn-attention'\nlayers = 2\n[training]\ncapture = true",
            r"line 7: training.capture does not fit: .* draws the dropout between them inside cuDNN",
        ),
        ("[training]\nema = 1.0", r"line 4: training.ema must be at least 0 and below 1"),
        ("[tokenizer]\nkind = 'bp'", r"line 4: unknown tokenizer.kind 'bp'; did you mean 'bpe'"),
        (
            "[tokenizer]\nkind = 'characters'\nsize = 100",
            r"line 5: a character tokenizer has all characters of the data",
        ),
        ("[tokenizer]\nkind = 'characters'\nsampling = 0.1", r"line 5: characters cannot be split"),
        ("[tokenizer]\nkind = 'unigram'\nsampling = 0.05", r"line 5: with 0\.05, all ways .* 0\.3 is moderate"),
        ("[tokenizer]\nkind = 'characters'\ntokenised = true", r"line 5: tokenised is for subwords"),
        (
            "[tokenizer]\nshared = false\n[model]\nshare_embeddings = true",
            r"line 4: tokenizer.shared .* one vocabulary",
        ),
        ("[decoding]\nbeam = 0", r"line 4: decoding.beam must be at least 1"),
        ("[model]\nkind = 'trnsformer'", r"line 4: unknown kind of model 'trnsformer'; did you mean 'transformer'"),
        (
            "[model]\nkind = 'rnn-attention'\nheads = 4",
            r"line 5: unknown key 'heads' in \[model\] of kind 'rnn-attention'",
        ),
        ("[model]\nposition = 'rotry'", r"line 4: model: unknown position 'rotry'; did you mean 'rotary'"),
        ("[model]\nlayers = 0", r"line 4: model: layers must be a whole number from 1"),
        ("[model]\ndim = 100\nheads = 3", r"line 4: model: dim=100 does not split into heads=3"),
        ("[model]\nvocabulary = 10", r"line 4: model.vocabulary cannot be given: it comes from the tokenizer"),
        ("[model]\npreset = 'transformer-bas'", r"line 4: unknown preset .* did you mean 'transformer-base'"),
        (
            "[model]\nkind = 'encoder'\npreset = 'transformer-base'",
            r"line 4: preset 'transformer-base' is a transformer",
        ),
        ("[model]\nkind = 'rnn-seq2seq'\nattention = 'dot'", r"line 5: kind = 'rnn-seq2seq' has no attention"),
        ("[model]\nkind = 'rnn-attention'\nattention = 'none'", r"line 5: attention = 'none' is kind = 'rnn-seq2seq'"),
        (
            "[model]\nkind = 'rnn-lm'",
            r"line 4: a model of kind rnn-lm learns from text, but the data is given as pairs",
        ),
        ("[[model]]\nkind = 'encoder'", r"line 3: model is a table"),
    ],
)
def test_mistake_is_told_with_its_line(write: Any, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_recipe(write(PAIRS + text))


def test_r_drop_needs_some_dropout(write: Any) -> None:
    """Which is chosen where the recipe is silent, and may be inside of the blocks only."""
    for model in ("", "[model]\ndropout = 0.0\nattention_dropout = 0.1\n", "[model]\nkind = 'rnn-attention'\n"):
        assert read_recipe(write(PAIRS + model + "[training]\nr_drop = 5.0\n")).training.r_drop == 5.0


def test_what_can_be_recorded(write: Any) -> None:
    """One recurrent layer has no dropout inside of it, and several layers of a Transformer have their own."""
    for model in ("layers = 6", "kind = 'rnn-attention'", "kind = 'rnn-seq2seq'\nlayers = 1"):
        training = read_recipe(write(f"{PAIRS}[model]\n{model}\n[training]\ncapture = true\n")).training
        assert training.capture and training.fixed_shapes
    for data in ("text = 'a.txt'", "demo = 9\n[model]\nkind = 'image-classifier'", "series = 'a.csv'"):
        assert read_recipe(write(f"[data]\n{data}\n[training]\ncapture = true\n")).training.capture
    off = read_recipe(write(f"{PAIRS}[model]\nkind = 'encoder'\n[training]\ncapture = false\n")).training
    assert off.capture is False and not off.fixed_shapes
    assert not TrainingRecipe(precision="fp16").fixed_shapes and TrainingRecipe(compile=True).fixed_shapes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training]\nsteps = 1", r"^my.toml: the table \[data\] is missing"),
        ("data = 3", r"^my.toml, line 1: data is a table: write \[data\]"),
        (
            "[data]",
            r"line 1: there is no training data: set source and target, or pairs, text, images, series, speech or demo",
        ),
        ("[data]\nsource = 'a'", r"line 2: source and target have 1 and 0 files"),
        ("[data]\ntarget = ['a', 'b']\nsource = ['c']", r"line 3: source and target have 1 and 2 files"),
        ("[data]\nsource = 'a'\ntarget = 'a'", r"line 3: .*a is both source and target"),
        ("[data]\npairs = 'a.tsv'\ndemo = 10", r"line 3: pairs and demo are both given"),
        ("[data]\nsource = 'a'\ntarget = 'b'\nvalidation_pairs = 'c.tsv'", r"line 4: .* does not match source"),
        (
            "[data]\npairs = 'a.tsv'\nvalidation_pairs = 'c.tsv'\nvalidation = 3",
            r"line 4: validation holds out training samples",
        ),
        ("[data]\ntext = 'a'\ncolumns = [0, 1]", r"line 3: columns is for files of pairs"),
        ("[data]\ntext = 'a'\nmax_length = 10", r"line 3: data.max_length does not fit: .* give context"),
        ("[data]\npairs = 'a.tsv'\ncontext = 10", r"line 3: data.context does not fit: .* give max_length"),
        ("[data]\ntext = 'a'\ncopy = 0.1", r"line 3: data.copy does not fit"),
        ("[data]\ntext = 'a'\n[tokenizer]\nshared = true", r"line 4: tokenizer.shared does not fit: .* one side"),
        ("[data]\ntext = 'a'\n[tokenizer]\nsampling = 0.1", r"line 4: tokenizer.sampling does not fit"),
        ("[data]\ntext = 'a'\n[model]\nkind = 'transformer'", r"line 4: a model of kind transformer learns from pairs"),
        ("[data]\ntext = 3", r"line 2: data.text must be a text or a list of texts, got 3"),
        ("[data]\ntext = ['a', 3]", r"line 2: data.text must be a text, got 3"),
        ("[data]\ntext = 'a'\ncontext = 99\n[model]\nposition = 'learned'\nmax_length = 98", r"line 6: .* at least 99"),
        (
            "[data]\ndemo = 9\nmax_length = 99\n[model]\nposition = 'learned'\nmax_length = 99",
            r"line 6: .* at least 100",
        ),
        ("name = 'a/b'\n[data]\ndemo = 1", r"line 1: name becomes the name of a folder"),
        ("[data\ndemo = 1", r"my.toml: not valid TOML: .*line 1, column 6"),
        ("[data]\ndemo = 1\ndemo = 2\ncopy = 0.1", r"my.toml: not valid TOML: .*line 3"),
    ],
)
def test_mistake_in_the_data_or_the_file(write: Any, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_recipe(write(text))


def test_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes("name = 'é'".encode("latin-1"))
    with pytest.raises(UsageError, match=r"a\.toml: cannot be read as text"):
        read_recipe(tmp_path / "a.toml")


def test_no_such_recipe() -> None:
    with pytest.raises(
        UsageError, match=r"demo-encodr: there is no such recipe file.*did you mean 'demo-encoder'.*demo,"
    ):
        read_recipe("demo-encodr")


@given(
    st.lists(st.sampled_from(["k = 1", "k = [\n 1, # ]\n 2\n]", 'k = """\nx = 1\n[y]\n"""', "", "# [z]"]), max_size=8)
)
def test_lines_of_keys(statements: list[str]) -> None:
    """Counted by hand: each statement begins where those before it end."""
    lines, want = ["[t]"], {"t": 1}
    for i, statement in enumerate(statements):
        if statement.startswith("k"):
            want[f"t.k{i}"] = 1 + sum(line.count("\n") + 1 for line in lines)
        lines.append(statement.replace("k", f"k{i}", 1))
    for end in ("\n", "\r\n"):
        assert key_lines("\n".join(lines).replace("\n", end)) == want


def test_lines_of_other_notations() -> None:
    text = "a.b = 1\nt = {x = 1, y = 2}\n['u'.\"v\"]\nw = 3"
    assert key_lines(text) == {"a": 1, "a.b": 1, "t": 2, "t.x": 2, "t.y": 2, "u": 3, "u.v": 3, "u.v.w": 4}


# Reading.


def test_files_are_relative_to_the_recipe(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write('[data]\nsource = ["a.fr", "/b.fr"]\ntarget = ["../a.en", "b.en"]')
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    data = read_recipe(path).data
    assert data.source == (f"{tmp_path}/a.fr", "/b.fr")
    assert data.target == (f"{tmp_path.parent}/a.en", f"{tmp_path}/b.en")
    over = read_recipe(path, {"data.source": '["x.fr", "y.fr"]'}).data  # typed in the shell, so relative to it
    assert over.source == (f"{tmp_path}/here/x.fr", f"{tmp_path}/here/y.fr") and over.target == data.target


def test_languages_in_file_names(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One recipe for all directions: also in lists, in validation files and in what is given beside the recipe."""
    monkeypatch.chdir(tmp_path)
    sides = "source = ['a.{source}', 'b.{source}-{target}']\ntarget = ['a.{target}', 'b.{other}']"
    path = write(f"[data]\n{sides}\nsource_language = 'fr'\ntarget_language = 'en'")
    data = read_recipe(path).data
    assert data.source == (f"{tmp_path}/a.fr", f"{tmp_path}/b.fr-en")
    assert data.target == (f"{tmp_path}/a.en", f"{tmp_path}/b.{{other}}")
    files = {"data.validation_source": "v.{source}", "data.validation_target": "v.{target}"}
    data = read_recipe(path, {**files, "data.source_language": "de"}).data
    assert data.source[0] == f"{tmp_path}/a.de"
    assert (data.validation_source, data.validation_target) == ((f"{tmp_path}/v.de",), (f"{tmp_path}/v.en",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source = 'a.{source}'\ntarget = 'b'", r"^my.toml, line 2: data.source .* data.source_language does not say"),
        (
            "source = 'a'\nsource_language = 'fr'\ntarget = ['b', '{target}']",
            r"line 4: data.target .*\{target\}.* --set data.target_language=fr",
        ),
        ("source = '{source}'\ntarget = 'b'\nsource_language = 1", r"line 2: data.source "),
    ],
)
def test_language_that_is_missing(write: Any, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_recipe(write(f"[data]\n{text}"))


def test_name_is_the_file_name_unless_given(write: Any) -> None:
    assert read_recipe(write(PAIRS, "fr-en.toml")).name == "fr-en"
    assert read_recipe(write("name = 'x'\n" + PAIRS)).name == "x"


def test_overrides(write: Any) -> None:
    path = write(PAIRS + "[training]\nlr = 1.0\nsteps = 7\n[model]\nkind = 'rnn-attention'")
    overrides = {
        "training.lr": "3e-4",
        "training.compile": "true",
        "model.attention": "dot",
        "training.betas": "[0.8, 0.9]",
    }
    recipe = read_recipe(path, overrides)
    assert (recipe.training.lr, recipe.training.compile, recipe.training.betas) == (3e-4, True, (0.8, 0.9))
    assert recipe.training.steps == 7 and recipe.model["attention"] == "dot"
    assert read_recipe(path, {"training.lr": 3e-4, "decoding.beam": 2, "name": "fr-en"}).name == "fr-en"
    assert read_recipe(path, {"training.lr": None}).training.lr is None
    assert isinstance(read_recipe(path, {"training.lr": "1"}).training.lr, float)
    left = read_recipe(path, {"training.steps": "", "model.kind": ""})
    assert left.training.steps == read_recipe(write(PAIRS)).training.steps != 7 and "kind" not in left.model


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("training.lrr", "3", r"^--set training.lrr=3: unknown key 'lrr' in \[training\]; did you mean 'lr'"),
        ("trainin.lr", "3", r"^--set trainin.lr=3: unknown key 'trainin' in the recipe; did you mean 'training'"),
        ("training.lr", "fast", r"^--set training.lr=fast: training.lr must be a number, got 'fast'"),
        ("training.lr", "1\nsteps = 2", r"training.lr must be a number"),
        ("training.lr", -1.0, r"^--set training.lr=-1.0: training.lr must be above 0"),
        ("lr", "3", r"^--set lr=3: unknown key 'lr' in the recipe"),
        ("model.kind", "encodr", r"^--set model.kind=encodr: unknown kind of model 'encodr'; did you mean 'encoder'"),
        ("name.x", "3", r"^--set name.x=3: name is not a table"),
        ("training.lr", "", r"^--set training.lr=: an empty value leaves a setting out, and the recipe does not"),
        ("trainin.lr", "", r"^--set trainin.lr=: an empty value leaves a setting out, and the recipe does not"),
    ],
)
def test_wrong_override(write: Any, key: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_recipe(write("name = 'a'\n" + PAIRS), {key: value})


def test_preset_fills_in_and_keys_override() -> None:
    recipe = Recipe(name="a", data=DataRecipe(demo=9), model={"preset": "transformer-tiny", "heads": 2})
    assert recipe.kind == "transformer" and "preset" not in recipe.model
    found = {key: recipe.model[key] for key in ("layers", "dim", "heads", "hidden", "dropout", "order")}
    assert found == {"layers": 4, "dim": 128, "heads": 2, "hidden": 256, "dropout": 0.3, "order": "post"}
    assert Recipe(name="a", data=DataRecipe(demo=9), model={"preset": "sutskever"}).kind == "rnn-seq2seq"


@pytest.mark.parametrize(
    "settings",
    [{"dim": 100}, {"heads": 5}, {"kv_heads": 3}, {"kind": "rnn-attention", "tie_output": True, "hidden": 64}],
    ids=str,
)
def test_sizes_may_be_left_open(settings: dict[str, Any]) -> None:
    """A size that is given alone is not held against the defaults of the others, which will be chosen to fit."""
    assert Recipe(name="a", data=DataRecipe(demo=9), model=settings).model == settings


def test_config_of_each_kind() -> None:
    for kind in MODELS:
        size = {"word-vectors": "dim", "dlinear": "window"}.get(kind, "layers")
        recipe = Recipe(name="a", data=DataRecipe(demo=9), model={"kind": kind, size: 1})
        source = 13 if kind in ("summarizer", "answerer") else 11  # these copy, so both sides have one vocabulary
        config: Any = recipe.config(source_vocabulary=source, target_vocabulary=13)
        assert config.kind == kind and getattr(config, size) == 1
        heard = kind == "listen-attend-spell"  # its source is sound
        assert getattr(config, "source_vocabulary", source) == (0 if heard else source)
        assert getattr(config, "target_vocabulary", 13) == getattr(config, "vocabulary", 13) == 13


# Writing.

names = st.from_regex(r"[a-zé][a-z0-9é_+-]{0,8}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=9)
files = st.lists(
    texts.map(lambda name: "/" + name).filter(lambda name: name not in ("/.", "/..")), min_size=1, max_size=3
)
shares = st.floats(0, 1, exclude_max=True)
positive = st.floats(0, 1e9, exclude_min=True)
counts = st.integers(1, 10**9)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    source = draw(files)
    data = draw(
        st.sampled_from(
            [
                DataRecipe(demo=draw(counts), validation=draw(counts)),
                DataRecipe(source=source, target=[name + ".en" for name in source], max_length=draw(counts)),
                DataRecipe(pairs=draw(files), columns=draw(st.sampled_from([None, (0, 2), ('a\x7f"\\', "b")]))),
                DataRecipe(pairs=draw(files), validation_pairs=draw(files), source_language=draw(texts)),
            ]
        )
    )
    kind = draw(st.sampled_from([None, "transformer", "encoder", "rnn-attention"]))
    return Recipe(
        name=draw(names),
        data=data,
        tokenizer=TokenizerRecipe(
            size=draw(st.none() | st.integers(5, 2**20)), sampling=draw(st.just(0.0) | st.floats(0.1, 1))
        ),
        model={"dropout": draw(shares), **({} if kind is None else {"kind": kind, "layers": draw(st.integers(1, 9))})},
        training=TrainingRecipe(
            lr=draw(st.none() | positive),
            steps=draw(st.none() | counts),
            betas=draw(st.tuples(shares, shares)),
            eps=draw(positive),
            compile=draw(st.booleans()),
            freeze=draw(st.lists(texts, max_size=2)),
            device=draw(st.sampled_from([None, "cpu", "cuda:3"])),
        ),
        decoding=DecodingRecipe(beam=draw(counts), max_tokens=draw(st.none() | counts)),
    )


@given(recipe=recipes())
def test_written_recipe_reads_back_equal(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("r") / "other.toml"
    path.write_text(to_toml(recipe, {"training.compile": "because"}), encoding="utf-8")
    assert read_recipe(path) == recipe
    assert recipe_from(json.loads(json.dumps(dataclasses.asdict(recipe)))) == recipe  # as config.json holds it
    plain = tomllib.loads(to_toml(recipe))
    assert plain["name"] == recipe.name and tuple(plain["training"]["betas"]) == recipe.training.betas


def test_reasons_become_comments() -> None:
    recipe = Recipe(name="a", data=DataRecipe(demo=9))
    assert "\ndemo = 9  # so it is\n" in to_toml(recipe, {"data.demo": "so it is"})


# Going on.


def changed(old: Recipe, **settings: Any) -> list[str]:
    return changed_keys(old, dataclasses.replace(old, training=dataclasses.replace(old.training, **settings)))


def test_changed_keys() -> None:
    old = Recipe(name="a", data=DataRecipe(demo=9), model={"layers": 2}, training=TrainingRecipe(steps=10, lr=0.1))
    assert changed_keys(old, old) == changed(old, steps=11) == changed(old, lr=None) == []
    assert changed(old, validate_every=5, save_every=6, log_every=7, keep=8, samples=9, patience=10) == []
    assert changed(old, steps=9, lr=0.2) == ["training.steps: 10 -> 9", "training.lr: 0.1 -> 0.2"]
    assert changed(old, seed=2, average=3) == ["training.seed: 1 -> 2", "training.average: 1 -> 3"]
    other = dataclasses.replace(old, name="b", data=DataRecipe(demo=8), model={"layers": 3, "dim": 64})
    assert changed_keys(old, other) == [
        "name: a -> b",
        "data.demo: 9 -> 8",
        "model.layers: 2 -> 3",
        "model.dim: None -> 64",
    ]


def test_fill_in_takes_the_choices_of_the_beginning() -> None:
    old = Recipe(
        name="a",
        data=DataRecipe(demo=9, max_length=5),
        model={"kind": "transformer", "layers": 2},
        training=TrainingRecipe(steps=10, lr=0.1, device="cpu"),
    )
    new = Recipe(name="a", data=DataRecipe(demo=9), training=TrainingRecipe(steps=20, device="auto"))
    assert fill_in(new, old) == dataclasses.replace(old, training=dataclasses.replace(old.training, steps=20))


# What ships.

TRANSLATORS = ("demo", "demo-rnn-seq2seq", "demo-rnn-attention", "demo-luong-dot", "demo-luong-bilinear")


def test_shipped_recipes_are_there() -> None:
    assert set(shipped_recipes()) >= {*TRANSLATORS, "demo-encoder", "characters-transformer", "characters-rnn"}


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipe_reads(name: str, tmp_path: Path) -> None:
    recipe = read_recipe(name)
    assert recipe.name == name and recipe.kind == recipe.model["kind"]
    (tmp_path / "a.toml").write_text(to_toml(recipe), encoding="utf-8")
    assert read_recipe(tmp_path / "a.toml") == recipe


def test_files_of_shipped_recipes_are_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = read_recipe("multi30k-tiny", {"data.source_language": "fr"}).data
    assert data.source == (f"{tmp_path}/data/multi30k/tok/train.lc.norm.tok.fr.gz",)
    assert data.validation_target == (f"{tmp_path}/data/multi30k/tok/val.lc.norm.tok.de.gz",)


def test_transformer_tiny_has_the_size_of_the_paper() -> None:
    """Wu et al. 2021: 2.6 million parameters, of which a table of 10,000 pieces is the half."""
    size = read_recipe("multi30k-tiny").tokenizer.size
    assert size == 10_000
    model = make_model(read_recipe("multi30k-tiny").config(source_vocabulary=size, target_vocabulary=size))
    table, attention, feed_forward = size * 128, 4 * (128 * 128 + 128), 2 * 128 * 256 + 256 + 128
    norms = (4 * (2 + 3) + 2) * 2 * 128  # a stack of pre-norm blocks ends with one more
    assert sum(p.numel() for p in model.parameters()) == table + 12 * attention + 8 * feed_forward + norms == 2_605_568


def test_the_pair_with_and_without_attention_differs_in_nothing_else() -> None:
    found = [dataclasses.asdict(read_recipe(f"multi30k-{name}")) for name in ("gru", "seq2seq")]
    for recipe in found:
        del recipe["name"]
        for key in ("kind", "attention", "style"):
            recipe["model"].pop(key, None)
    assert found[0] == found[1]


def test_shipped_recurrent_translators_can_be_compared() -> None:
    """Similar numbers of parameters at the vocabularies of the demo corpus, and the same data and batches."""
    found = [read_recipe(name) for name in TRANSLATORS if name != "demo"]
    for recipe in found:
        model = make_model(recipe.config(source_vocabulary=1925, target_vocabulary=1220))
        assert 1.1e6 < sum(parameter.numel() for parameter in model.parameters()) < 1.4e6
    assert len({(r.data, r.tokenizer, r.training.steps, r.training.batch_tokens, r.training.seed) for r in found}) == 1
