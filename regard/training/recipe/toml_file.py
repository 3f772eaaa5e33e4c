"""Recipes as TOML files: read with the line of every mistake, written so that they read back the same.

    read_recipe("demo", {"training.lr": "3e-4"})

The path of a file that exists, else the name of a recipe in regard/recipes.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.training.recipe.schema import Recipe, recipe_from
from regard.training.recipe.settings import RecipeError

SHIPPED = Path(__file__).parents[2] / "recipes"
FILES = tuple(f"{part}{kind}" for part in ("", "validation_") for kind in ("source", "target", "pairs", "text"))

# What a resumed run may have otherwise: it changes when things happen, not what is learnt until then.
MAY_CHANGE = ("parallel", "validate_every", "save_every", "log_every", "keep", "samples", "patience")

Tables = dict[str, Any]


def shipped_recipes() -> list[str]:
    """The names of the recipes that come with regard."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_recipe(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of that file or shipped name, with `overrides` such as {"training.lr": "3e-4"} laid over it.

    File names in a recipe are relative to its folder, those of overrides and of shipped recipes to the folder one works
    in. `{source}` and `{target}` in them stand for the languages. A text as the value of an override is read as TOML,
    and is plain text where it is none.
    """
    file = _find(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
        tables: Tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as text: {error}") from error
    except (ValueError, RecursionError) as error:  # TOML's tells line and column itself
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    _make_absolute(tables, Path.cwd() if file.parent == SHIPPED else file.parent)
    told = {key: f"{file.name}, line {line}" for key, line in key_lines(text).items()}
    tables.setdefault("name", file.stem)
    return _made(tables, overrides or {}, told, otherwise=file.name)


def apply_overrides(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """The recipe with `overrides` laid over it, as read_recipe does for one in a file."""
    return _made({"name": recipe.name, **_tables(recipe)}, overrides, {}, otherwise="recipe")


def _made(tables: Tables, overrides: Mapping[str, Any], told: dict[str, str], *, otherwise: str) -> Recipe:
    """The recipe of the tables; what is wrong in them is told with the place that it came from."""
    for key, value in overrides.items():
        told.update(_override(tables, key, value))
    try:
        _fill_languages(tables)
        return recipe_from(tables)
    except RecipeError as error:
        where = told.get(error.key) or told.get(error.key.partition(".")[0]) or otherwise
        raise UsageError(f"{where}: {error}") from error


def to_toml(recipe: Recipe, reasons: Mapping[str, str] | None = None) -> str:
    """The recipe as TOML that reads back equal; what is None is left out. `reasons` by dotted key become comments."""
    lines = [f"name = {_value(recipe.name)}"]
    for name, settings in _tables(recipe).items():
        told = {key: value for key, value in settings.items() if value is not None and value != ()}
        if told:
            lines += ["", f"[{name}]"]
        for key, value in told.items():
            reason = (reasons or {}).get(f"{name}.{key}")
            lines.append(f"{key} = {_value(value)}" + (f"  # {reason}" if reason else ""))
    return "\n".join(lines) + "\n"


def changed_keys(old: Recipe, new: Recipe) -> list[str]:
    """What keeps a run of the old recipe from going on with the new one, as "training.lr: 0.001 -> 0.01".

    More steps and other intervals are fine, and so is what the new recipe leaves open: then the old choice holds.
    """
    changed = [f"name: {old.name} -> {new.name}"] if old.name != new.name else []
    before, after = _tables(old), _tables(new)
    for table, settings in after.items():
        for key, value in settings.items():
            was = before[table].get(key)
            more_steps = key == "steps" and was is not None and value is not None and value > was
            allowed = table == "training" and (key in MAY_CHANGE or more_steps)
            if value is not None and value != was and not allowed:
                changed.append(f"{table}.{key}: {was} -> {value}")
    return changed


def fill_in(new: Recipe, old: Recipe) -> Recipe:
    """The new recipe with the old one's choices for what it leaves open: what a resumed run goes on with."""
    before, after = _tables(old), _tables(new)
    if new.training.device == "auto":
        after["training"]["device"] = None
    for table, settings in after.items():
        settings |= {key: value for key, value in before[table].items() if settings.get(key) is None}
    return recipe_from({"name": new.name, **after})


def _tables(recipe: Recipe) -> dict[str, dict[str, Any]]:
    return {key: settings for key, settings in asdict(recipe).items() if key != "name"}


def key_lines(text: str) -> dict[str, int]:
    """The line on which each dotted key of a valid TOML text begins.

    Lines are gathered until they parse: that is one whole header or one key with its value, however many lines long.
    """
    found: dict[str, int] = {}
    table, start, gathered = "", 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        gathered += line + "\n"
        try:
            content = tomllib.loads(gathered)
        except tomllib.TOMLDecodeError:
            continue
        header = gathered.lstrip().startswith("[")
        for key in _dotted(content):
            found.setdefault(key if header or not table else f"{table}.{key}", start)
            table = key if header else table  # the last one is the innermost
        start, gathered = number + 1, ""
    return found


def _dotted(content: Mapping[str, Any]) -> Iterator[str]:
    """Every key of nested dicts, outer ones first."""
    for key, value in content.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{below}" for below in _dotted(value))


def _find(path: str | Path) -> Path:
    file = Path(path)
    if file.is_file():
        return file
    if str(path) in shipped_recipes():
        return SHIPPED / f"{path}.toml"
    near = difflib.get_close_matches(str(path), shipped_recipes(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(
        f"{path}: there is no such recipe file, and no recipe of that name comes with regard{hint} "
        f"(shipped: {', '.join(shipped_recipes())})"
    )


def _make_absolute(tables: Tables, folder: Path) -> None:
    """File names of the [data] table as seen from `folder`."""
    _change_names(tables, lambda key, name: os.path.abspath(folder / name))


def _fill_languages(tables: Tables) -> None:
    """Put the languages in for `{source}` and `{target}`: so one recipe serves all directions."""

    def filled(key: str, name: str) -> str:
        for side in ("source", "target"):
            if f"{{{side}}}" in name:
                language = tables["data"].get(f"{side}_language")
                if not isinstance(language, str):
                    raise RecipeError(
                        f"data.{key}",
                        f"data.{key} is a file name with {{{side}}}, and data.{side}_language does not say which "
                        f"language that is: give it, for instance --set data.{side}_language=fr",
                    )
                name = name.replace(f"{{{side}}}", language)
        return name

    _change_names(tables, filled)


def _change_names(tables: Tables, change: Callable[[str, str], str]) -> None:
    """Change each file name of the [data] table, told with its key; what is no file name is left for the checks."""
    data = tables.get("data")
    if not isinstance(data, dict):
        return
    for key in FILES:
        match data.get(key):
            case str() as name:
                data[key] = change(key, name)
            case list() | tuple() as names:
                data[key] = [change(key, name) if isinstance(name, str) else name for name in names]


def _override(tables: Tables, key: str, value: Any) -> dict[str, str]:
    """Lay one setting over the tables, and say for each of its keys where it came from."""
    said = f"--set {key}={value}"
    if isinstance(value, str):
        try:
            parsed = tomllib.loads(f"value = {value}")
        except (ValueError, RecursionError):
            parsed = {"value": value}
        value = parsed["value"] if len(parsed) == 1 else value
    table, dot, setting = key.partition(".")
    fresh = {table: {setting: value}} if dot else {table: value}
    if table == "data":
        _make_absolute(fresh, Path.cwd())
    if not dot:
        tables[table] = value
        return {table: said}
    if not isinstance(tables.setdefault(table, {}), dict):
        raise UsageError(f"{said}: {table} is not a table")
    if value == "":
        if setting not in tables[table]:
            raise UsageError(f"{said}: an empty value leaves a setting out, and the recipe does not have this one")
        del tables[table][setting]
        return {key: said}
    tables[table].update(fresh[table])
    return {key: said} | ({} if table in ("data", "tokenizer", "model", "training", "decoding") else {table: said})


def _value(value: Any) -> str:
    """A value in TOML's notation."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            return repr(value)
