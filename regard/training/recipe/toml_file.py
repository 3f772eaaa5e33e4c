"""Recipes as TOML files: read with the line of every mistake, written so that they read back the same.

    read_recipe("demo", {"training.lr": "3e-4"})

The first argument is the path of a file, or the name of a recipe in a folder of regard/recipes.
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
from regard.recipes.tables import FILES
from regard.settings import SettingError
from regard.training.recipe.schema import KEYS, Recipe, recipe_from

SHIPPED = Path(__file__).parents[2] / "recipes"

# What may differ in a resumed run: it changes when things happen, not what is learnt until then.
MAY_CHANGE = ("parallel", "validate_every", "save_every", "log_every", "keep", "samples", "patience")

Tables = dict[str, Any]


def shipped_recipes() -> list[str]:
    """Return the names of the recipes that come with regard."""
    return sorted(path.stem for path in SHIPPED.glob("*/*.toml"))


def read_recipe(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Read the recipe of that file or shipped name; `overrides` such as {"training.lr": "3e-4"} replace its settings.

    File names in a recipe are relative to its folder, those of overrides and of shipped recipes to the current folder.
    `{source}` and `{target}` in them stand for the languages. A string as the value of an override is read as TOML,
    and taken as it is where it is none.
    """
    file = _find(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
        tables: Tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as text: {error}") from error
    except (ValueError, RecursionError) as error:  # the message has line and column
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    _make_absolute(tables, Path.cwd() if file.parent.parent == SHIPPED else file.parent)
    origins = {key: f"{file.name}, line {line}" for key, line in key_lines(text).items()}
    tables.setdefault("name", file.stem)
    return _make_recipe(tables, overrides or {}, origins, otherwise=file.name)


def apply_overrides(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """Return the recipe with `overrides`, as read_recipe does for one in a file."""
    return _make_recipe({"name": recipe.name, **_tables(recipe)}, overrides, {}, otherwise="recipe")


def _make_recipe(tables: Tables, overrides: Mapping[str, Any], origins: dict[str, str], *, otherwise: str) -> Recipe:
    """Return the recipe of the tables; an error says where the wrong setting came from, a line or an override."""
    for key, value in overrides.items():
        origins.update(_override(tables, key, value))
    try:
        _fill_languages(tables)
        return recipe_from(tables)
    except SettingError as error:
        parts = error.key.split(".")
        outer = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]  # the setting, then the tables around it
        origin = next((origins[key] for key in outer if key in origins), otherwise)
        raise UsageError(f"{origin}: {error}") from error


def to_toml(recipe: Recipe, reasons: Mapping[str, str] | None = None) -> str:
    """Write the recipe as TOML that reads back equal; None is left out. `reasons` by dotted key become comments."""
    lines = [f"name = {_value(recipe.name)}"]
    for name, settings in _tables(recipe).items():
        inner = {f"{name}.{key}": value for key, value in settings.items() if isinstance(value, Mapping)}
        outer = {key: value for key, value in settings.items() if not isinstance(value, Mapping)}
        for table, content in {name: outer, **inner}.items():
            chosen = {key: value for key, value in content.items() if value is not None and value != ()}
            if chosen:
                lines += ["", f"[{table}]"]
            for key, value in chosen.items():
                reason = (reasons or {}).get(f"{table}.{key}")
                lines.append(f"{key} = {_value(value)}" + (f"  # {reason}" if reason else ""))
    return "\n".join(lines) + "\n"


def changed_keys(old: Recipe, new: Recipe) -> list[str]:
    """Return what keeps a run of the old recipe from going on with the new one, as "training.lr: 0.001 -> 0.01".

    More steps and other intervals are fine, and so is what the new recipe leaves open: then the old choice holds.
    """
    changed = [f"name: {old.name} -> {new.name}"] if old.name != new.name else []
    before = _flat(_tables(old))
    for key, value in _flat(_tables(new)).items():
        was, (table, _, setting) = before.get(key), key.partition(".")
        more_steps = setting == "steps" and was is not None and value is not None and value > was
        allowed = table == "training" and (setting in MAY_CHANGE or more_steps)
        if value is not None and value != was and not allowed:
            changed.append(f"{key}: {was} -> {value}")
    return changed


def fill_in(new: Recipe, old: Recipe) -> Recipe:
    """Return the new recipe with the old one's choices for what it leaves open: what a resumed run continues with."""
    before, after = _tables(old), _tables(new)
    if new.training.device == "auto":
        after["training"]["device"] = None
    for table, settings in after.items():
        _fill(settings, before[table])
    return recipe_from({"name": new.name, **after})


def _fill(settings: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Take from others what settings leave open, in tables inside of them too."""
    for key, value in others.items():
        if settings.get(key) is None:
            settings[key] = value
        elif isinstance(value, Mapping) and isinstance(settings[key], dict):
            _fill(settings[key], value)


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of nested tables by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def _tables(recipe: Recipe) -> dict[str, dict[str, Any]]:
    return {key: settings for key, settings in asdict(recipe).items() if key != "name"}


def key_lines(text: str) -> dict[str, int]:
    """Return the line on which each dotted key of a valid TOML text begins.

    Lines are gathered until they parse: that is one whole header or one key with its value, however many lines long.
    """
    lines: dict[str, int] = {}
    table, start, gathered = "", 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        gathered += line + "\n"
        try:
            content = tomllib.loads(gathered)
        except tomllib.TOMLDecodeError:
            continue
        header = gathered.lstrip().startswith("[")
        for key in _dotted(content):
            lines.setdefault(key if header or not table else f"{table}.{key}", start)
            table = key if header else table  # the last one is the innermost
        start, gathered = number + 1, ""
    return lines


def _dotted(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield every key of nested dicts, outer ones first."""
    for key, value in content.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{below}" for below in _dotted(value))


def _find(path: str | Path) -> Path:
    file = Path(path)
    if file.is_file():
        return file
    if str(path) in shipped_recipes():
        return next(SHIPPED.glob(f"*/{path}.toml"))
    near = difflib.get_close_matches(str(path), shipped_recipes(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(
        f"{path}: there is no such recipe file, and no recipe of that name comes with regard{hint} "
        f"(shipped: {', '.join(shipped_recipes())})"
    )


def _make_absolute(tables: Tables, folder: Path) -> None:
    """Make file names of the [data] table, relative to `folder`, absolute."""
    _change_names(tables, lambda key, name: os.path.abspath(folder / name))


def _fill_languages(tables: Tables) -> None:
    """Replace `{source}` and `{target}` by the languages, so that one recipe serves all directions."""

    def filled(key: str, name: str) -> str:
        for side in ("source", "target"):
            if f"{{{side}}}" in name:
                language = tables["data"].get(f"{side}_language")
                if not isinstance(language, str):
                    raise SettingError(
                        f"data.{key}",
                        f"data.{key} is a file name with {{{side}}}, and data.{side}_language does not say which "
                        f"language that is: give it, for instance --set data.{side}_language=fr",
                    )
                name = name.replace(f"{{{side}}}", language)
        return name

    _change_names(tables, filled)


def _change_names(tables: Tables, change: Callable[[str, str], str]) -> None:
    """Change each file name of the [data] table; what is no file name is left for the checks."""
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
    """Put one setting into the tables; return for each of its keys where it came from, for error messages."""
    origin = f"--set {key}={value}"
    if isinstance(value, str):
        try:
            parsed = tomllib.loads(f"value = {value}")
        except (ValueError, RecursionError):
            parsed = {"value": value}
        value = parsed["value"] if len(parsed) == 1 else value
    *outer, setting = key.split(".")
    if not outer:
        tables[setting] = value
        return {setting: origin}
    if outer == ["data"] and value != "":
        data = {"data": {setting: value}}
        _make_absolute(data, Path.cwd())
        value = data["data"][setting]
    table = tables
    for n, name in enumerate(outer):
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise UsageError(f"{origin}: {'.'.join(outer[: n + 1])} is not a table")
    if value == "":
        if setting not in table:
            raise UsageError(f"{origin}: an empty value leaves a setting out, and the recipe does not have this one")
        del table[setting]
        return {key: origin}
    table[setting] = value
    return {key: origin} | ({} if outer[0] in KEYS else {outer[0]: origin})


def _value(value: Any) -> str:
    """Write a value in TOML's notation."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            return repr(value)
