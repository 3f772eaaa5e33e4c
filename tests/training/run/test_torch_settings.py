"""Settings of the process that a training changes and restores."""

from __future__ import annotations

import os

import pytest
import torch

from regard.training.recipe.schema import TrainingRecipe
from regard.training.run.torch_settings import CUBLAS_WORKSPACE, torch_settings

CPU = torch.device("cpu")


@pytest.mark.parametrize("before", [None, ":16:8"])
def test_a_deterministic_training_leaves_the_process_as_it_was(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's workspace setting is used and stays; ours is there only during the training."""
    monkeypatch.delenv(CUBLAS_WORKSPACE, raising=False)
    if before is not None:
        monkeypatch.setenv(CUBLAS_WORKSPACE, before)
    with torch_settings(TrainingRecipe(deterministic=True), CPU):
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ[CUBLAS_WORKSPACE] == (before or ":4096:8")
    assert not torch.are_deterministic_algorithms_enabled()
    assert os.environ.get(CUBLAS_WORKSPACE) == before
