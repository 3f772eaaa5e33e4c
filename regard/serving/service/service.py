"""What the routes of `regard serve` share: models, limits, keys, metrics, and whether the server stops."""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field

from regard.errors import RegardError
from regard.serving.keys import KeyRing
from regard.serving.limits import SERVICE_LIMITS, ServiceLimits
from regard.serving.service.detection import can_detect, identifier
from regard.serving.service.hosted_models import HostedModels
from regard.serving.service.metrics import Metrics


def warm_up() -> None:
    """Import PyTorch, which alignments and rare searches need, and load the language detector."""
    import torch  # noqa: F401

    if can_detect():
        identifier()


def spare_collector() -> None:
    """Exclude everything that is loaded from garbage collection, which would stop all requests for 0.1 s each time."""
    gc.collect()
    gc.freeze()


@dataclass(eq=False)
class Service:
    """A running server."""

    models: HostedModels
    metrics: Metrics
    limits: ServiceLimits = SERVICE_LIMITS
    keys: KeyRing | None = None
    stopping: bool = False
    characters: Counter[str] = field(default_factory=Counter)  # translated through DeepL's API since the start, by key
    reloading: threading.Lock = field(default_factory=threading.Lock)

    def why_not_ready(self) -> str | None:
        """Return the reason why a balancer should send its requests to another server, or None."""
        if self.stopping:
            return "stopping"
        models = list(self.models)
        if any(model.state == "loading" for model in models):
            return "loading"
        if models and all(model.state == "failed" for model in models):
            return "no model could be loaded"
        if any(len(model.batcher) >= self.limits.queue for model in models):
            return "a queue is full"
        if any(model.stuck for model in models):
            return "a model does not answer"
        return None

    def load(self) -> None:
        """Load the models in another thread, then what the first requests would wait for."""

        def load_all() -> None:
            self.models.load()
            if self.models.translators:
                warm_up()
            spare_collector()

        threading.Thread(target=load_all, name="load", daemon=True).start()

    def reload(self) -> None:
        """Read the keys again, and the models whose folders have changed, in another thread."""
        threading.Thread(target=self._reload, name="reload", daemon=True).start()

    def _reload(self) -> None:
        with self.reloading:
            try:
                if self.keys is not None:
                    self.keys.reread()
            except RegardError as error:
                sys.stderr.write(f"regard: {error}; the keys that were read before stay valid\n")
            names = self.models.reload()
            spare_collector()
            sys.stderr.write(f"regard: reloaded: {', '.join(names) or 'no model has changed'}\n")
