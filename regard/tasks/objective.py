"""The loss of a model, as its task defines it.

E7, C2.
"""

from __future__ import annotations

from torch import nn

from regard.models.protocols import config_of
from regard.recipes.tables import TrainingRecipe
from regard.tasks import task_for
from regard.tasks.losses import Objective, Together


def objective(
    model: nn.Module,
    *,
    smoothing: float = 0.0,
    temperature: float = 0.05,
    r_drop: float = 0.0,
    together: Together | None = None,
) -> Objective:
    """Return the loss that this kind of model is trained with, as a function of (model, batch).

    `smoothing` and `r_drop` are for models that predict tokens, `temperature` and `together` for sentence encoders.
    """
    training = TrainingRecipe(label_smoothing=smoothing, temperature=temperature, r_drop=r_drop)
    return recipe_objective(model, training, together=together)


def recipe_objective(model: nn.Module, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
    """Return the loss that a recipe trains this model with; `together` gathers the pairs of all processes."""
    return task_for(config_of(model).kind).objective(training, together=together)
