"""The models of the server. Each model has its own thread, which loads it and then runs one request at a time.

So the server answers immediately after startup and while models are working. PyTorch is imported in these threads, not
at startup.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

from regard.errors import ModelError, RegardError, unknown_name
from regard.tasks import face_for, input_for
from regard.tasks.folder_face import kind_of

State = Literal["waiting", "loading", "ready", "failed"]
Face = Any  # what `regard.load` returns, such as a Translator; importing its types would import PyTorch
Job = tuple[Callable[[Face], Any], "Future[Any]"]


class BusyError(RegardError):
    """Too many requests are waiting for a model."""


class ServedModel:
    """A model folder that is loaded at the first request, or when `open` is called."""

    loading_lock = threading.Lock()  # models load one after the other, so that the first is ready soon

    def __init__(self, name: str, folder: Path, *, device: str = "auto", queue_size: int = 16) -> None:
        self.name, self.folder, self.device = name, folder, device
        self.kind = kind_of(folder)  # such as "transformer"
        self.face = face_for(self.kind)  # such as "translator"
        self.reads = input_for(self.kind)
        self.state: State = "waiting"
        self.error: str | None = None
        self.about: dict[str, Any] | None = None
        self._jobs: queue.Queue[Job] = queue.Queue(queue_size)
        self._thread = threading.Thread(target=self._run, name=f"model {name}", daemon=True)

    def open(self) -> None:
        """Start loading, unless it has started."""
        if self.state == "waiting":
            self.state = "loading"
            self._thread.start()

    def submit(self, work: Callable[[Face], Any]) -> Future[Any]:
        """Queue a function that the thread of the model will call with the model."""
        self.open()
        done: Future[Any] = Future()
        try:
            self._jobs.put_nowait((work, done))
        except queue.Full:
            raise BusyError(
                f"{self._jobs.maxsize} requests are already waiting for {self.name!r}: try again later"
            ) from None
        return done

    def _run(self) -> None:
        face = self._load()
        while True:
            work, done = self._jobs.get()
            if not done.set_running_or_notify_cancel():
                continue  # cancelled: the client has disconnected
            try:
                if face is None:
                    raise ModelError(f"{self.name!r} could not be loaded: {self.error}")
                done.set_result(work(face))
            except Exception as error:
                done.set_exception(error)

    def _load(self) -> Face | None:
        with self.loading_lock:
            try:
                from regard.tasks.loading import load

                face = load(self.folder, device=self.device)
                self.about = describe(face, self.name)
            except Exception as error:
                self.error = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
                self.state = "failed"
                sys.stderr.write(f"regard: {self.name} could not be loaded: {self.error}\n")
                return None
        self.state = "ready"
        return face


class ModelShelf:
    """All available models by name; `default` is the one that the page shows first."""

    def __init__(self, models: Iterable[ServedModel], *, default: str | None = None) -> None:
        self._models = {model.name: model for model in models}
        self.default = default

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def __getitem__(self, name: str) -> ServedModel:
        if name not in self._models:
            raise UnknownError(unknown_name("model", name, tuple(self._models)))
        return self._models[name]


class UnknownError(RegardError):
    """A request with an unknown name of a model or a trace."""


def describe(face: Face, name: str) -> dict[str, Any]:
    """Return the description of a model for the page."""
    from regard.look.trace.tracing import describe_model
    from regard.positions.learned import Learned

    config = face.model.config
    model = describe_model(config, name)
    data = (getattr(face, "info", None) or {}).get("recipe", {}).get("data", {})
    learned = [path for path, module in face.model.named_modules() if isinstance(module, Learned)]
    return {
        "kind": model.kind,
        "layers": model.layers,
        "heads": model.heads,
        "width": model.widths.get("model", model.widths["hidden"]),
        "parameters": sum(parameter.numel() for parameter in face.model.parameters()),
        "positions": getattr(config, "position", None),
        "position_parameter": f"{learned[0]}.table" if learned else None,
        "trained_length": data.get("max_length"),  # the longest text in training, in tokens
    }
