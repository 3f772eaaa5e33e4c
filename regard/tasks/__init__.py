"""Tasks: what models are trained for.

Each has one file, here or in arrays/ or copying/, and a line in TASKS; its models are in `MODELS`.

    task_for("transformer").objective(recipe.training)

`register(MyTask())` adds a task of your own and its models; docs/develop/extend.md shows a complete one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from regard.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from regard.tasks.task import Task


class Entry(NamedTuple):
    """An entry of the table. Its module is imported on first use, so that listing names takes no time."""

    module: str  # defines TASK; empty for a registered task
    face: str  # the kind of object that `regard.load` returns
    kinds: tuple[str, ...]  # the kinds of model that are trained for it
    reads: str = "text"  # what its models read: text, image (or video), series or sound


# A recipe without a kind of model gets the first task in this order that can learn from its data.
TASKS: dict[str, Entry] = {
    "translation": Entry("regard.tasks.translation", "translator", ("transformer", "rnn-attention", "rnn-seq2seq")),
    "language modeling": Entry("regard.tasks.language_modeling", "writer", ("transformer-lm", "rnn-lm")),
    "sentence embedding": Entry("regard.tasks.sentence_embedding", "embedder", ("encoder",)),
    "text classification": Entry("regard.tasks.classification", "classifier", ("classifier",)),
    "summarization": Entry("regard.tasks.copying.summarization", "summarizer", ("summarizer",)),
    "question answering": Entry("regard.tasks.copying.question_answering", "answerer", ("answerer",)),
    "word vectors": Entry("regard.tasks.word_vectors.task", "word vectors", ("word-vectors",)),
    "image classification": Entry(
        "regard.tasks.arrays.image_classification", "image classifier", ("image-classifier",), "image"
    ),
    "captioning": Entry("regard.tasks.arrays.captioning", "captioner", ("captioner", "rnn-captioner"), "image"),
    "forecasting": Entry("regard.tasks.arrays.forecasting", "forecaster", ("forecaster", "dlinear"), "series"),
    "speech recognition": Entry(
        "regard.tasks.arrays.speech_recognition",
        "transcriber",
        ("speech-recognizer", "listen-attend-spell", "speech-ctc"),
        "sound",
    ),
}
_loaded: dict[str, Task] = {}


def register(task: Task) -> None:
    """Add a task, with its kinds of model, to those that recipes can name and `regard.load` can read."""
    from regard.models.presets import MODELS

    _refuse_built_in(task.name)
    for kind in task.models:
        if kind in MODELS and kind not in TASKS.get(task.name, Entry("", "", ())).kinds:
            raise UsageError(f"task {task.name!r}: the kind of model {kind!r} already exists")
    MODELS.update(task.models)
    TASKS[task.name] = Entry("", task.face, tuple(task.models), task.reads)
    _loaded[task.name] = task


def unregister(name: str) -> None:
    """Remove a registered task and its kinds of model."""
    from regard.models.presets import MODELS

    _refuse_built_in(name)
    for kind in TASKS.pop(name).kinds:
        del MODELS[kind]
    del _loaded[name]


def _refuse_built_in(name: str) -> None:
    if name in TASKS and TASKS[name].module:
        raise UsageError(f"{name!r} is a task of regard itself: give your task another name")


def task_for(kind: str) -> Task:
    """Return the task that a kind of model is trained for."""
    for name, entry in TASKS.items():
        if kind in entry.kinds:
            if name not in _loaded:
                _loaded[name] = importlib.import_module(entry.module).TASK
            return _loaded[name]
    kinds = tuple(kind for entry in TASKS.values() for kind in entry.kinds)
    raise UsageError(unknown_name("kind of model", kind, kinds))


def default_kind(form: str) -> str:
    """Return the default kind of model for data of that form ("pairs", "text", …)."""
    for entry in TASKS.values():
        if form in task_for(entry.kinds[0]).forms:
            return entry.kinds[0]
    raise UsageError(f"no task learns from data given as {form}")


def face_for(kind: str) -> str:
    """Return what `regard.load` returns for a kind of model: such as "translator" or "image classifier"."""
    return _entry_of(kind).face


def input_for(kind: str) -> str:
    """Return what a kind of model reads: "text", "image" (also videos), "series" or "sound"."""
    return _entry_of(kind).reads


def _entry_of(kind: str) -> Entry:
    for entry in TASKS.values():
        if kind in entry.kinds:
            return entry
    raise LookupError(kind)
