"""The models of `regard serve`: load, batch, and replace them while the server runs."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from regard.errors import ModelError, RegardError, UsageError
from regard.machine import sharing_cores
from regard.models.folder.config_file import read_json
from regard.serving.service.batcher import Batcher
from regard.serving.service.metrics import Metrics
from regard.tasks import face_for
from regard.tasks.folder_face import kind_of

if TYPE_CHECKING:
    from regard.serving.service.writing import WritingBatch

State = Literal["waiting", "loading", "ready", "failed"]
PAIR = re.compile(r"([a-z]{2,3}(?:[-_][A-Z][A-Za-z]{1,3})?)-([a-z]{2,3}(?:[-_][A-Z][A-Za-z]{1,3})?)")
STUCK_SECONDS = 30.0  # a batch takes far less
FACES = ("translator", "writer", "embedder")


class LoadOptions(NamedTuple):
    """How the models of a server are loaded."""

    device: str = "auto"
    dtype: str = "auto"
    beam: int | None = None  # width of the beam of translations; None: the Translator's own


class TranslationOptions(NamedTuple):
    """Options that the texts of a batch share."""

    translations: int = 1  # of each text
    attention: bool = False


class HostedModel:
    """A model folder with its batcher. The model is loaded by `load`, at the latest for its first batch."""

    loading_lock = threading.Lock()  # models load one after the other, so that the first is ready soon

    def __init__(self, name: str, folder: Path, options: LoadOptions, *, queue: int, metrics: Metrics) -> None:
        self.name, self.folder, self.options, self.metrics = name, folder, options, metrics
        self.task_face = face_for(kind_of(folder))  # such as "translator"
        if self.task_face not in FACES:
            raise UsageError(
                f"{name} is a model for a {self.task_face}; `regard serve` serves models that translate, "
                "write text, or embed sentences"
            )
        self.languages = languages_of(name, folder) if self.task_face == "translator" else None
        self.state: State = "waiting"
        self.error: str | None = None
        self.face: Any = None  # what `regard.load` returns
        self.fingerprint: bytes | None = None  # of the folder as it was loaded
        self.batcher: Batcher | WritingBatch
        if self.task_face == "writer":
            from regard.serving.service.writing import WritingBatch  # imports PyTorch, which translators can do without

            self.batcher = WritingBatch(name, self.load, queue=queue, metrics=metrics)
        else:
            self.batcher = Batcher(name, self._compute, queue=queue, on_batch=self._observe)
        metrics.queue_length.labels(name).set_function(self.batcher.__len__)

    @property
    def batches(self) -> Batcher:
        """The batcher of texts that are computed as a whole."""
        assert isinstance(self.batcher, Batcher)
        return self.batcher

    @property
    def writing(self) -> WritingBatch:
        """The batch of texts that grow token by token, of a language model."""
        assert not isinstance(self.batcher, Batcher)
        return self.batcher

    def load(self) -> Any:
        """Return the model, loading it if that has not been done; ModelError if it cannot be loaded."""
        if self.face is None:
            with self.loading_lock:
                if self.face is None and self.state != "failed":
                    self._load()
        if self.face is None:
            raise ModelError(f"{self.name!r} could not be loaded: {self.error}")
        return self.face

    def reload(self) -> bool:
        """Load the folder again if it has changed, and return whether a new model is in use.

        The old model is used meanwhile, and for good if the new one cannot be loaded.
        """
        with self.loading_lock:
            if self.state == "waiting" or (self.face is not None and fingerprint(self.folder) == self.fingerprint):
                return False
            return self._load()

    @property
    def stuck(self) -> bool:
        """Whether a batch takes so long that something must be wrong."""
        return self.batcher.seconds_busy() > STUCK_SECONDS

    def _load(self) -> bool:
        from regard.tasks.loading import load

        if self.face is None:
            self.state = "loading"
        try:
            before = fingerprint(self.folder)
            self.face = load(self.folder, device=self.options.device, dtype=self.options.dtype)
        except Exception as error:
            self.error = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
            consequence = "" if self.face is None else "; the model that was loaded before stays in use"
            self.state = "failed" if self.face is None else "ready"
            sys.stderr.write(f"regard: {self.name} could not be loaded: {self.error}{consequence}\n")
            return False
        self.fingerprint, self.error, self.state = before, None, "ready"
        if self.task_face == "translator" and self.face.decodes_in_c:
            from regard.decoding.cpu.c_search import usable_threads

            self.batches.use_workers(usable_threads())
        return True

    def _compute(self, texts: Sequence[str], options: Any, sharing: int) -> Sequence[Any]:
        face = self.load()
        if self.task_face == "embedder":
            return face.embed(texts)
        width = self.options.beam
        wide_enough = None if width is None else max(width, options.translations)
        with sharing_cores(sharing):
            results = face.translate(texts, beam=wide_enough, alternatives=options.translations)
        if options.attention:
            for result in results:
                result.attention  # noqa: B018  # a cached property: computed now, in this thread
        return results

    def _observe(self, rows: int, queued: Sequence[float], seconds: float) -> None:
        self.metrics.batch_rows.labels(self.name).observe(rows)
        self.metrics.batch_seconds.labels(self.name).observe(seconds)
        for waited in queued:
            self.metrics.queue_seconds.labels(self.name).observe(waited)


class HostedModels:
    """All models of a server by name, and the ways to translate from one language to another."""

    def __init__(self, models: Iterable[HostedModel], *, pivot: bool = True) -> None:
        self._models = {model.name: model for model in models}
        self.translators: dict[tuple[str, str], HostedModel] = {}
        for model in self:
            if model.languages is not None:
                if (other := self.translators.get(model.languages)) is not None:
                    source, target = model.languages
                    raise UsageError(f"{other.name} and {model.name} both translate from {source} to {target}")
                self.translators[model.languages] = model
        self.paths = {pair: [model] for pair, model in self.translators.items()}
        if pivot:
            self.paths = {**pivots(self.translators), **self.paths}

    def __iter__(self) -> Iterator[HostedModel]:
        return iter(self._models.values())

    def get(self, name: str) -> HostedModel | None:
        return self._models.get(name)

    def named(self, *faces: str) -> list[str]:
        """Return the names of the models of these types."""
        return [model.name for model in self if model.task_face in faces]

    @property
    def sources(self) -> list[str]:
        """The languages that the models translate from."""
        return list(dict.fromkeys(source for source, _ in self.translators))

    def targets(self, source: str) -> list[str]:
        """Return the languages that a text in `source` can be translated into."""
        return [target for first, target in self.paths if first == source]

    def load(self) -> None:
        """Load all models, one after the other. A failure is in the state of its model."""
        for model in self:
            try:
                model.load()
            except ModelError:
                continue

    def reload(self) -> list[str]:
        """Load the folders that have changed, and return the names of the models that are new."""
        return [model.name for model in self if model.reload()]


def pivots(translators: dict[tuple[str, str], HostedModel]) -> dict[tuple[str, str], list[HostedModel]]:
    """Return the pairs of languages that two models translate, one after the other."""
    return {
        (source, target): [first, second]
        for (source, middle), first in translators.items()
        for (other, target), second in translators.items()
        if middle == other and source != target
    }


def languages_of(name: str, folder: Path) -> tuple[str, str]:
    """Return the languages of a translation model, from its config.json or its name; UsageError if neither has them."""
    languages = read_json(folder / "config.json").get("languages")
    if isinstance(languages, dict) and all(isinstance(languages.get(side), str) for side in ("source", "target")):
        return languages["source"], languages["target"]
    if match := PAIR.fullmatch(name):
        return match[1], match[2]
    raise UsageError(
        f"the languages of {name} are unknown: its config.json does not name them, and neither does its name. Name the "
        f"model by its languages, for example fr-en={folder}"
    )


def fingerprint(folder: Path) -> bytes:
    """Return what changes when a model folder is replaced: its manifest, which has the checksum of each file."""
    try:
        return (folder / "manifest.json").read_bytes()
    except OSError as error:
        raise ModelError(f"{folder}: manifest.json: {error.strerror or error}") from error
