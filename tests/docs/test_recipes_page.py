"""docs/training/recipes.md lists every setting of a recipe with its true default: no key missing, none invented."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from regard.machine import Machine
from regard.models.config.random_features import RandomFeaturesConfig
from regard.models.config.token_ids import TOKEN_IDS
from regard.models.presets import MODELS, PRESETS
from regard.recipes.facts import DataFacts
from regard.training.recipe.defaults import complete
from regard.training.recipe.schema import TABLES, DataRecipe, Recipe
from regard.training.recipe.toml_file import shipped_recipes

PAGE = (Path(__file__).parents[2] / "docs/training/recipes.md").read_text(encoding="utf-8")
FROM_TOKENIZER = {"vocabulary", "source_vocabulary", "target_vocabulary", "pad_id", *TOKEN_IDS}
MODEL_TABLES = [
    ("### Transformers", ("transformer", "transformer-lm", "encoder", "classifier", "summarizer", "answerer")),
    ("### Recurrent models", ("rnn-attention", "rnn-seq2seq", "rnn-lm")),
    ("### Word vectors", ("word-vectors",)),
    ("### Images", ("image-classifier",)),
    ("### Captions", ("captioner",)),
    ("### Recurrent captions", ("rnn-captioner",)),
    ("### Forecasting", ("forecaster",)),
    ("### DLinear", ("dlinear",)),
    ("### Speech", ("speech-recognizer",)),
    ("### CTC", ("speech-ctc",)),
    ("### Listen, Attend and Spell", ("listen-attend-spell",)),
]
# Tables with what differs from, or is not in, another one.
EXTENDED = {
    **dict.fromkeys(("### Images", "### Captions", "### Forecasting", "### Speech"), "### Transformers"),
    "### CTC": "### Speech",
    "### Listen, Attend and Spell": "### Recurrent models",
}


def rows_under(heading: str) -> dict[str, list[str]]:
    """The cells of each row of the table below a heading, by key."""
    section = PAGE.split(f"\n{heading}\n")[1].split("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if "| `" in line]
    found = {row[0].strip("`| "): row[1:] for row in rows}
    assert len(found) == len(rows), f"{heading}: a key is listed twice"
    return found


def model_rows(heading: str) -> dict[str, list[str]]:
    """The rows of a table of [model], with those of the table that it extends."""
    base = model_rows(EXTENDED[heading]) if heading in EXTENDED else {}
    if heading == "### Listen, Attend and Spell":
        base = {key: ["all", *cells[1:]] for key, cells in base.items()}  # all that applies to `rnn-attention`
    return {**base, **rows_under(heading)}


def choices_of(kind: str) -> set[str]:
    """What `complete` fills in when nothing but the kind and the data is given."""
    data, shape, tokens = DataRecipe(source=("a",), target=("b",)), (), None
    if kind.endswith(("-lm", "-vectors")):
        data = DataRecipe(text=("a.txt",))
    elif kind == "answerer":
        data = DataRecipe(pairs=("a.jsonl",))
    elif kind == "image-classifier":
        data, shape, tokens = DataRecipe(images=("a",)), (3, 32, 32), 650_000
    elif kind.startswith(("speech", "listen")):
        data, shape = DataRecipe(speech=("a",)), (8_000,)
    elif kind.endswith("captioner"):
        data, shape, tokens = DataRecipe(images=("a",)), (1, 3, 32, 32), 640_000
    elif kind in ("forecaster", "dlinear"):
        data, shape, tokens = DataRecipe(series=("a.csv",)), (10_000, 7), 42 * 500_000
    recipe = Recipe(name="x", data=data, model={} if kind in ("transformer", "transformer-lm") else {"kind": kind})
    facts = DataFacts(10_000, words=100_000, characters=500_000, distinct_words=5_000, tokens=tokens, shape=shape)
    return {choice.key for choice in complete(recipe, facts, Machine("cpu", 2, 2**33))[1]}


CHOSEN = {kind: choices_of(kind) for kind in MODELS}


def as_shown(key: str, default: Any, chosen: set[str]) -> str:
    """A default as the page writes it."""
    if key in chosen:
        return "*chosen*"
    if default is None or default == ():
        return "*none*"
    if dataclasses.is_dataclass(default):
        return "*a table*"
    match default:
        case bool():
            return f"`{str(default).lower()}`"
        case str():
            return f'`"{default}"`'
        case tuple():
            return f"`[{', '.join(map(repr, default))}]`"
    return f"`{default!r}`"


@pytest.mark.parametrize("table", TABLES)
def test_tables(table: str) -> None:
    chosen = set().union(*CHOSEN.values())
    wanted = {
        field.name: as_shown(f"{table}.{field.name}", field.default, chosen)
        for field in dataclasses.fields(TABLES[table])
    }
    shown = {key: cells[0] for key, cells in rows_under(f"## `[{table}]`").items()}
    assert shown == wanted
    assert list(shown) == list(wanted), "the order of the page is that of the code"


@pytest.mark.parametrize(("heading", "kinds"), MODEL_TABLES)
def test_model_tables(heading: str, kinds: tuple[str, ...]) -> None:
    rows = model_rows(heading)
    for kind in kinds:
        shown = {
            key: default
            for key, (where, default, _) in rows.items()
            if where == "all" or kind in re.findall(r"`([\w-]+)`", where)
        }
        wanted = {
            field.name: as_shown(f"model.{field.name}", field.default, CHOSEN[kind])
            for field in dataclasses.fields(MODELS[kind][0])
            if field.name not in FROM_TOKENIZER
        }
        assert shown == wanted, kind


def test_table_of_random_features() -> None:
    shown = {key: cells[0] for key, cells in rows_under("### `[model.random_features]`").items()}
    wanted = {field.name: as_shown("", field.default, set()) for field in dataclasses.fields(RandomFeaturesConfig)}
    assert list(shown.items()) == list(wanted.items())


def test_kinds_presets_and_shipped_recipes() -> None:
    model = rows_under("## `[model]`")
    assert set(model) == {"kind", "preset"}
    assert set(re.findall(r"`([\w-]+)`", model["kind"][1])) == set(MODELS)
    assert set(re.findall(r"`([\w-]+)`", model["preset"][1])) == set(PRESETS)
    listed = PAGE.split("| recipe | trains |")[1].split("\n\n")[0]
    names = [name for line in listed.splitlines() for name in re.findall(r"`([\w-]+)`", line.split(" | ")[0])]
    assert sorted(names) == shipped_recipes()


def test_names_of_choices_exist() -> None:
    """The values that the page names for a setting with choices are those that the code accepts."""

    def told(cells: list[str], choices: Iterable[str]) -> set[str]:
        return set(re.findall(r"`\"?([\w-]+)\"?`", cells[-1])) - ({*MODELS, *rows} - {*choices})

    tables = {f"## `[{table}]`": schema for table, schema in TABLES.items()}
    for heading, schema in {**tables, "### `[model.random_features]`": RandomFeaturesConfig}.items():
        rows = rows_under(heading)
        for field in dataclasses.fields(schema):
            rule = field.metadata.get("rule")
            if rule is not None and rule.choices:
                assert told(rows[field.name], rule.choices) | {field.default} == {*rule.choices, field.default}, (
                    field.name
                )
    for heading, kinds in MODEL_TABLES:
        rows = model_rows(heading)
        for kind in kinds:
            for field in dataclasses.fields(MODELS[kind][0]):
                rule = field.metadata.get("rule")
                if rule is not None and rule.choices:
                    assert told(rows[field.name], rule.choices) == set(rule.choices), field.name


def test_planted_rows_are_found() -> None:
    """The reader of the tables sees what is wrong."""
    assert as_shown("training.lr", None, {"training.lr"}) == "*chosen*"
    assert as_shown("data.source", (), set()) == "*none*"
    assert as_shown("training.betas", (0.9, 0.98), set()) == "`[0.9, 0.98]`"
    assert as_shown("training.compile", False, set()) == "`false`"
