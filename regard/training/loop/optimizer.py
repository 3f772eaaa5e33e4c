"""Which weights train, and by which optimizer."""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.training.parallel.group import is_spread
from regard.training.recipe.schema import TrainingRecipe

SCALE = ".sigma"  # of random features: a factor for each dimension, 1 at first
# Adam moves every number by about the rate. How sharp a softmax head is, a whole matrix decides, and this these few.
SCALE_TIMES = 10.0
FUSED = ("cpu", "cuda")  # devices with an optimizer in one kernel


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Parameters whose name matches a pattern (`encoder.*`) stay as they are; all others train."""
    named = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            raise UsageError(
                f"training.freeze: {pattern!r} matches no parameter; names look like {', '.join(list(named)[:3])}"
            )
    for name, parameter in named.items():
        parameter.requires_grad_(not any(fnmatchcase(name, pattern) for pattern in patterns))
    if not any(parameter.requires_grad for parameter in named.values()):
        raise UsageError("training.freeze leaves nothing to train")


def trained(model: nn.Module) -> dict[Tensor, str]:
    """The parameters that train, with their names."""
    return {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}


def make_optimizer(names: dict[Tensor, str], recipe: TrainingRecipe) -> torch.optim.Optimizer:
    """Adam or AdamW in one kernel; weight decay is for matrices, not for biases, norms and learned scales."""
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
    matrices = [parameter for parameter, name in names.items() if parameter.dim() > 1 and not name.endswith(SCALE)]
    scales = [parameter for parameter, name in names.items() if name.endswith(SCALE)]
    vectors = [parameter for parameter, name in names.items() if parameter.dim() <= 1 and not name.endswith(SCALE)]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay, "times": 1.0},
        {"params": vectors, "weight_decay": 0.0, "times": 1.0},
        {"params": scales, "weight_decay": 0.0, "times": SCALE_TIMES},
    ]
    device = next(iter(names)).device
    on_gpu = device.type == "cuda"
    return kind(
        # A number on a GPU can change without a new recording of the step (captured.py), and each group has its own.
        [group | {"lr": torch.zeros((), device=device) if on_gpu else 0.0} for group in groups if group["params"]],
        betas=recipe.betas,
        eps=recipe.eps,
        fused=device.type in FUSED,
        capturable=on_gpu,
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["times"])
        else:
            group["lr"] = rate * group["times"]


def update(optimizer: torch.optim.Optimizer, norm: Tensor) -> None:
    """One step, left out where the gradient's norm is not finite; where the kernel can tell, nobody waits for it."""
    if norm.device.type in FUSED and not any(map(is_spread, _parameters(optimizer))):
        optimizer.found_inf = (~norm.isfinite()).to(torch.float32)  # type: ignore[attr-defined]  # as GradScaler does
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif norm.isfinite():
        optimizer.step()


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
