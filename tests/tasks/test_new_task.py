"""Adding a task is one file and one registration: an invented one trains, resumes and loads like the others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.api.translator import Translator
from regard.cli.shared.model_options import load_as
from regard.errors import UsageError
from regard.models.presets import MODELS
from regard.tasks import TASKS, default_kind, face_for, register, task_for, unregister
from regard.tasks.folder_face import face_of
from regard.training.recipe.schema import DataRecipe, Recipe

from .toy_task import ClassifyLines

ANIMALS, TOOLS = ("cat", "dog", "hen", "cow"), ("saw", "axe", "pin", "jar")


@pytest.fixture
def toy_task() -> Iterator[ClassifyLines]:
    task = ClassifyLines()
    register(task)
    yield task
    unregister(task.name)


def write_lines(path: Path) -> Path:
    """Lines of three words; the class is that of all of them."""
    draw = random.Random(1)
    rows = []
    for _ in range(200):
        name, words = draw.choice([("A", ANIMALS), ("B", TOOLS)])
        rows.append(" ".join(draw.choice(words) for _ in range(3)) + f"\t{name}\n")
    path.write_text("".join(rows))
    return path


def recipe_for(path: Path, **training: Any) -> dict[str, Any]:
    settings = {"steps": 60, "lr": 0.05, "batch_tokens": 128, "warmup": 1, "device": "cpu", **training}
    return {f"training.{key}": value for key, value in settings.items()}


def test_a_new_task_trains_and_loads(toy_task: ClassifyLines, tmp_path: Path) -> None:
    recipe = Recipe(
        name="lines",
        data=DataRecipe(pairs=(str(write_lines(tmp_path / "lines.tsv")),)),
        model={"kind": "line-classifier", "dim": 8},
    )
    assert recipe.task is toy_task
    lines: list[str] = []
    overrides = {**recipe_for(tmp_path), "tokenizer.kind": "characters"}
    run = regard.train(recipe, out=tmp_path / "run", overrides=overrides, say=lines.append)
    assert run.scores["accuracy"] == 1.0
    classifier = run.load(device="cpu")
    assert classifier.classify("cat hen dog") == "A" and classifier.classify("jar pin saw") == "B"
    with pytest.raises(UsageError, match="is not a translator, so this command cannot use it"):
        load_as(Translator, str(run.folder), "cpu", "float32")
    assert face_of(run.folder) == "classifier"
    assert "python classify.py THIS_FOLDER" in (run.folder / "README.md").read_text()
    again = regard.train(recipe, out=tmp_path / "run", overrides=overrides, say=lines.append)  # nothing is left to do
    assert again.scores == run.scores and any("already complete" in line for line in lines)


def test_a_recipe_with_a_setting_of_another_kind_is_refused(toy_task: ClassifyLines) -> None:
    with pytest.raises(UsageError, match=r"unknown key 'heads' in \[model\] of kind 'line-classifier'"):
        Recipe(name="a", data=DataRecipe(demo=9), model={"kind": "line-classifier", "heads": 2})
    with pytest.raises(UsageError, match="a model of kind line-classifier learns from pairs"):
        Recipe(name="a", data=DataRecipe(text=("a.txt",)), model={"kind": "line-classifier"})


def test_a_kind_belongs_to_one_task(toy_task: ClassifyLines) -> None:
    class Other(ClassifyLines):
        name = "other"

    with pytest.raises(UsageError, match="the kind of model 'line-classifier' already exists"):
        register(Other())
    assert "other" not in TASKS and task_for("line-classifier") is toy_task


def test_the_tasks_of_regard_cannot_be_replaced(toy_task: ClassifyLines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassifyLines, "name", "translation")  # as if a subclass of Translation forgot its name
    for action in (lambda: register(ClassifyLines()), lambda: unregister("translation")):
        with pytest.raises(UsageError, match="'translation' is a task of regard itself"):
            action()
    monkeypatch.undo()
    assert task_for("transformer").name == "translation"


def test_the_table_of_tasks_is_complete() -> None:
    """Each kind of model has just one task, and the table says what the tasks themselves say."""
    kinds = [kind for entry in TASKS.values() for kind in entry.kinds]
    assert sorted(kinds) == sorted(MODELS)
    for name, entry in TASKS.items():
        task = task_for(entry.kinds[0])
        assert (task.name, task.face, tuple(task.models), task.reads) == (name, entry.face, entry.kinds, entry.reads)
        assert all(task.models[kind] == MODELS[kind] and face_for(kind) == entry.face for kind in entry.kinds)
    forms = {form: default_kind(form) for form in ("source", "pairs", "demo", "text")}
    assert forms == {"source": "transformer", "pairs": "transformer", "demo": "transformer", "text": "transformer-lm"}


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="unknown kind of model 'transformr'; did you mean 'transformer'"):
        task_for("transformr")
    with pytest.raises(UsageError, match="no task learns from data given as smells"):
        default_kind("smells")
