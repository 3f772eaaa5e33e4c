"""What a run leaves: a model folder with the best model so far."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import StoppedError
from regard.files import replace_file
from regard.models.folder import save_model
from regard.models.random_features import flatten_settings
from regard.text.tokenizers.tokenizer import tokenizer_files
from regard.training.checkpoint import files as checkpoint
from regard.training.loop.loop import Loop
from regard.training.loop.losses import objective
from regard.training.loop.signals import Interrupted, StopFlag
from regard.training.loop.torch_compile import uncompiled
from regard.training.run.model_card import model_card

if TYPE_CHECKING:
    from regard.training.run.training_run import Prepared

FINISHED = "finished"  # the file in training/ that says that nothing is left to do


class Result:
    """The run's model folder: the best model so far, with its scores and card."""

    def __init__(self, ready: Prepared, loop: Loop, folder: Path, stop: StopFlag) -> None:
        self.ready, self.loop, self.folder, self.model = ready, loop, folder, loop.whole_model
        self.info = model_info(ready)
        training = ready.recipe.training
        # Validation measures the plain likelihood, on the process that does it alone.
        plain = objective(self.model, smoothing=training.label_smoothing or 0.0, temperature=training.temperature)
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

    def keep(self) -> None:
        """Save the model as it is now."""
        ready, validator = self.ready, self.validator
        found = {**self.info, "scores": validator.scores, "alignment": validator.alignment_head()}
        card = model_card(
            self.model, ready.recipe, self.loop.progress, scores=validator.scores, samples=validator.samples
        )
        files = tokenizer_files(*ready.tokenizers)
        info = {key: value for key, value in found.items() if value is not None}
        save_model(self.model, self.folder, files=files, info=info, card=card)

    def finish(self, say: Callable[[str], None]) -> None:
        """Try the mean of the last checkpoints, where the recipe asks for it; the better one stays."""
        training, progress, kept = self.ready.recipe.training, self.loop.progress, self.folder / "training"
        last = {name: weight.clone() for name, weight in checkpoint.model_weights(self.model).items()}
        if training.average > 1:
            weights, steps = checkpoint.average_weights(kept, training.average, fixed=dict(self.model.named_buffers()))
            checkpoint.put_weights(self.model, weights)
            try:
                with uncompiled(training.compile):
                    found = self.validator(progress.step)
            except Interrupted:
                signal = self.validator.stop.signal or 0
                raise StoppedError("stopped before the mean of the checkpoints was tried", signal) from None
            say(f"mean of the checkpoints of steps {', '.join(map(str, steps))}: {found.line}")
            if progress.best is None or found.score > progress.best:
                progress.best, progress.best_step = found.score, progress.step
                with uncompiled(training.compile):
                    self.keep()
        checkpoint.put_weights(self.model, last)
        replace_file(kept / FINISHED, b"")  # stopped before this line, the next start finishes again


def model_info(ready: Prepared) -> dict[str, Any]:
    """What config.json says beside the model's settings."""
    recipe, data = ready.recipe, ready.recipe.data
    told = dataclasses.asdict(recipe)
    for key, value in told["data"].items():
        if isinstance(value, tuple) and key != "columns":
            told["data"][key] = [os.path.basename(name) for name in value]  # where they lie is nobody else's business
    told["model"] = flatten_settings(told["model"])  # config.json has these names flat, in the recipe too
    info: dict[str, Any] = {"recipe": told}
    if data.source_language or data.target_language:
        info["languages"] = {"source": data.source_language, "target": data.target_language}
    return info | recipe.task.info(recipe, ready.train, ready.tokenizers)
