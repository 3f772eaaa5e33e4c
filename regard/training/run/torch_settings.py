"""Process-wide settings of torch for the time of a training run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from regard.training.recipe.schema import TrainingRecipe

CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # environment variable; torch asks for it in deterministic mode


@contextmanager
def torch_settings(training: TrainingRecipe, device: torch.device) -> Iterator[None]:
    """Set which of torch's kernels a training run uses, and restore the settings afterwards.

    With training.deterministic only kernels that give the same bits each time; on a GPU some of them are slower.
    cuDNN's attention builds a new plan for every batch shape (on an H200, 60 batches of as many shapes took 28.8 s with
    it and 3.8 s without), so only compiled training uses it, where long texts of one shape gain most.
    """
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    used_cudnn_attention = torch.backends.cuda.cudnn_sdp_enabled()
    sets_workspace = training.deterministic and CUBLAS_WORKSPACE not in os.environ
    if training.deterministic:
        os.environ.setdefault(CUBLAS_WORKSPACE, ":4096:8")
        torch.use_deterministic_algorithms(True)
    if device.type == "cuda" and not training.compile:
        torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic)
        torch.backends.cuda.enable_cudnn_sdp(used_cudnn_attention)
        if sets_workspace:
            os.environ.pop(CUBLAS_WORKSPACE, None)
