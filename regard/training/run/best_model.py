"""The best model of a run so far, saved as a model folder with its scores and its card."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.errors import StoppedError
from regard.models.config.random_features import flatten_settings
from regard.models.folder import save_model
from regard.system.files import replace_file
from regard.text.tokenizers.tokenizer import tokenizer_files
from regard.training.checkpoint import files as checkpoint_files
from regard.training.loop.torch_compile import uncompiled
from regard.training.prepared import Prepared
from regard.training.run.model_card import model_card
from regard.training.signals import Interrupted, StopFlag
from regard.training.state.tensors import load_weights, model_weights
from regard.training.state.train_state import TrainState

FINISHED = "finished"  # the file in training/ that marks a run as complete


class BestModel:
    """Validates the model of a training run, and saves it in the run's folder when it is the best so far."""

    def __init__(self, ready: Prepared, state: TrainState, folder: Path, stop: StopFlag) -> None:
        self.ready, self.state, self.folder, self.model = ready, state, folder, state.full_model
        self.info = model_info(ready)
        training = ready.recipe.training
        # Validation measures the plain likelihood, and only one process does it.
        plain = ready.recipe.task.objective(dataclasses.replace(training, r_drop=0.0))
        self.validator = ready.recipe.task.validator(
            self.model,
            ready.recipe,
            ready.corpora,
            ready.validation,
            ready.tokenizers,
            plain,
            folder=folder,
            device=ready.device,
            info=self.info,
            stop=stop,
        )

    def save(self) -> None:
        """Save the model with its current weights."""
        ready, validator = self.ready, self.validator
        info = {**self.info, "scores": validator.scores, "alignment": validator.alignment_head()}
        card = model_card(
            self.model,
            ready.recipe,
            self.state.progress,
            scores=validator.scores,
            samples=validator.samples,
            start=ready.start,
        )
        files = tokenizer_files(*ready.tokenizers)
        known = {key: value for key, value in info.items() if value is not None}
        save_model(self.model, self.folder, files=files, info=known, card=card)

    def finish(self, say: Callable[[str], None]) -> None:
        """Validate the average of the last checkpoints if the recipe asks for it, and save it if it is the best."""
        training, progress, folder = self.ready.recipe.training, self.state.progress, self.folder / "training"
        last = {name: weight.clone() for name, weight in model_weights(self.model).items()}
        if training.average > 1:
            weights, steps = checkpoint_files.average_weights(
                folder, training.average, fixed=dict(self.model.named_buffers())
            )
            load_weights(self.model, weights)
            try:
                with uncompiled(training.compile):
                    validation = self.validator(progress.step)
            except Interrupted:
                signal = self.validator.stop.signal or 0
                raise StoppedError("stopped before the average of the checkpoints was validated", signal) from None
            say(f"average of the checkpoints of steps {', '.join(map(str, steps))}: {validation.line}")
            if progress.best is None or validation.score > progress.best:
                progress.best, progress.best_step = validation.score, progress.step
                with uncompiled(training.compile):
                    self.save()
        load_weights(self.model, last)
        replace_file(folder / FINISHED, b"")  # a run that stops before this line finishes again at the next start


def model_info(ready: Prepared) -> dict[str, Any]:
    """Return what config.json holds in addition to the model's settings."""
    recipe, data = ready.recipe, ready.recipe.data
    settings = dataclasses.asdict(recipe)
    for key, value in settings["data"].items():
        if isinstance(value, tuple) and key != "columns":
            settings["data"][key] = [os.path.basename(name) for name in value]  # without the user's folders
    settings["model"] = flatten_settings(settings["model"])  # config.json has these names flat, in the recipe too
    info: dict[str, Any] = {"recipe": settings}
    if data.source_language or data.target_language:
        info["languages"] = {"source": data.source_language, "target": data.target_language}
    info |= recipe.task.info(recipe, ready.train, ready.tokenizers)
    return info if ready.start is None else ready.start.final_info(info)
