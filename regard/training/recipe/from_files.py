"""The recipe of `regard train fr.txt en.txt`: what the files are, their languages and a name for the run.

Languages are guessed from file names, and left out when those are unclear.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path

from regard.arrays.idx import is_label_name
from regard.errors import DataError, UsageError, unknown_name
from regard.models.presets import MODELS
from regard.tasks import task_for
from regard.text.files.column_names import LANGUAGES
from regard.text.files.compressed import content_name, missing_file
from regard.text.files.rows import PAIR_SUFFIXES
from regard.training.recipe.schema import DataRecipe, Recipe

PLAIN = (".txt", ".text", ".tok")


def recipe_for_files(
    files: Sequence[str | Path],
    *,
    model: str | None = None,
    name: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    columns: tuple[str | int, str | int] | None = None,
) -> Recipe:
    """The recipe for files given alone: parallel files, pairs, text, folders of images or recordings, or a series.

    Shards of parallel files are distinguished by the language in their names: a.fr b.fr a.en b.en.
    """
    if model is not None and model not in MODELS:
        raise UsageError(unknown_name("kind of model", model, tuple(MODELS)))
    paths = [Path(os.path.abspath(file)) for file in files]
    if not paths:
        raise UsageError(
            "no files were given: two parallel ones, one of pairs (.tsv, .csv, .jsonl, .parquet) or one of text"
        )
    forms = task_for(model).forms if model else ()
    for path in paths:
        if path.is_dir() and not {"images", "speech"} & set(forms):
            raise UsageError(
                f"{path} is a folder: with images in it, one folder per class, give --model image-classifier; with "
                f"captions.tsv, --model captioner; with WAV files, --model speech-recognizer"
            )
        if not path.exists():
            raise DataError(missing_file(path))
    _refuse_twins(paths)
    if "images" in forms:
        images = [path for path in paths if not is_label_name(path)]  # they are found beside the images
        return _recipe(DataRecipe(images=_names(images)), name, model)
    if "series" in forms:
        return _recipe(DataRecipe(series=_names(paths)), name, model)
    if "speech" in forms:
        return _recipe(DataRecipe(speech=_names(paths)), name, model)
    pairs = [path for path in paths if content_name(path).suffix.lower() in PAIR_SUFFIXES]
    languages: tuple[str, str] | None = None
    if ("text" in forms) if model else (len(paths) == 1 and not pairs):
        data = DataRecipe(text=_names(paths))
    elif len(pairs) == len(paths):
        data = DataRecipe(pairs=_names(paths))
        languages = _two_languages(paths[0])
    elif pairs:
        raise UsageError(f"{pairs[0].name} holds pairs and others do not: give files of one kind")
    else:
        source, target = _sides(paths)
        data = DataRecipe(source=_names(source), target=_names(target))
        languages = _languages_of_sides(source[0], target[0])
    if source_language is None and target_language is None and languages:
        source_language, target_language = languages
    data = dataclasses.replace(data, columns=columns, source_language=source_language, target_language=target_language)
    return _recipe(data, name, model)


def _recipe(data: DataRecipe, name: str | None, model: str | None) -> Recipe:
    return Recipe(name=name or _run_name(data), data=data, model={} if model is None else {"kind": model})


def language_of(path: Path) -> str | None:
    """The language code that a file name ends with: fr.txt, train.fr, x.fr-de.de.gz. Others tell nothing."""
    last = _parts(path)[-1]
    return last if last in LANGUAGES else None


def _two_languages(path: Path) -> tuple[str, str] | None:
    """The languages of a file of pairs, the two codes that its name ends with: news.fr-en.tsv."""
    match _parts(path)[-2:]:
        case [source, target] if {source, target} <= LANGUAGES and source != target:
            return source, target
    return None


def _languages_of_sides(source: Path, target: Path) -> tuple[str, str] | None:
    first, second = language_of(source), language_of(target)
    return (first, second) if first and second and first != second else None


def _sides(paths: list[Path]) -> tuple[list[Path], list[Path]]:
    """Parallel files as source and target: two as they stand, more by their languages, the first one's first."""
    if len(paths) == 1:
        raise UsageError(
            f"{paths[0].name} is one plain file: a model of this kind learns from two, or from a file of pairs"
        )
    if len(paths) == 2:
        return paths[:1], paths[1:]
    by_language: dict[str | None, list[Path]] = {}
    for path in paths:
        by_language.setdefault(language_of(path), []).append(path)
    groups = list(by_language.values())
    if None in by_language or len(groups) != 2 or len(groups[0]) != len(groups[1]):
        raise UsageError(
            f"{len(paths)} files, and their names do not tell which are source and which target: name them like a.fr "
            f"b.fr a.en b.en, give source and target in a recipe, or train a language model on them all "
            f"(--model transformer-lm)"
        )
    return groups[0], groups[1]


def _refuse_twins(paths: list[Path]) -> None:
    for i, path in enumerate(paths):
        for other in paths[:i]:
            if os.path.samefile(path, other):
                raise UsageError(f"{other} and {path} are the same file")


def _stem(path: Path) -> str:
    content = content_name(path)
    return content.stem if content.suffix.lower() in (*PAIR_SUFFIXES, *PLAIN) else content.name


def _parts(path: Path) -> list[str]:
    return re.split(r"[._-]", _stem(path).lower())


def _names(paths: list[Path]) -> tuple[str, ...]:
    return tuple(map(str, paths))


def _run_name(data: DataRecipe) -> str:
    """The languages, else the names of the files."""
    if data.source_language and data.target_language:
        return f"{data.source_language}-{data.target_language}"
    firsts = [
        Path(files[0])
        for files in (data.source, data.target, data.pairs, data.text, data.images, data.series, data.speech)
        if files
    ]
    name = re.sub(r"[^\w.+-]+", "-", "-".join(map(_stem, firsts))).strip("-.+")
    return name or "model"
