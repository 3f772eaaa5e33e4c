"""Which parameters train, and the optimizer that updates them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from regard.attention.linear.features import RandomFeatures
from regard.errors import UsageError
from regard.training.parallel.sharding import is_sharded
from regard.training.recipe.schema import TrainingRecipe

# For the learned scales of random features. Adam changes every number by about the learning rate. In a softmax head a
# whole matrix sets the sharpness; here only these few numbers do, so they move faster.
SCALE_RATE_FACTOR = 10.0
ADAGRAD_START = 1.0  # of the sums of squares, as in the code of GloVe: the first steps are no larger than the rate
FUSED_DEVICES = ("cpu", "cuda")  # devices on which torch has a fused Adam


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Freeze the parameters whose name matches a pattern such as `encoder.*`; all others train."""
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


def trainable_parameters(model: nn.Module) -> dict[Tensor, str]:
    """Return the parameters that train, in the order of the model, each with its name."""
    return {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}


def learned_scales(model: nn.Module) -> set[Tensor]:
    """Return the scales sigma of random features: one factor per head and dimension, 1 at first."""
    features = [module for module in model.modules() if isinstance(module, RandomFeatures)]
    return {module.sigma for module in features if module.sigma is not None}


def make_optimizer(model: nn.Module, recipe: TrainingRecipe) -> torch.optim.Optimizer:
    """Return the recipe's optimizer; weight decay applies to matrices, not to biases, norms and learned scales."""
    parameters, scale_parameters = trainable_parameters(model), learned_scales(model)
    scales = [parameter for parameter in parameters if parameter in scale_parameters]
    others = [parameter for parameter in parameters if parameter not in scale_parameters]
    matrices = [parameter for parameter in others if parameter.dim() > 1]
    vectors = [parameter for parameter in others if parameter.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay, "rate_factor": 1.0},
        {"params": vectors, "weight_decay": 0.0, "rate_factor": 1.0},
        {"params": scales, "weight_decay": 0.0, "rate_factor": SCALE_RATE_FACTOR},
    ]
    device = next(iter(parameters)).device
    on_gpu = device.type == "cuda"
    groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=0.0)
    if recipe.optimizer == "adagrad":
        return torch.optim.Adagrad(groups, lr=0.0, eps=recipe.eps, initial_accumulator_value=ADAGRAD_START)
    return {"adam": torch.optim.Adam, None: torch.optim.AdamW, "adamw": torch.optim.AdamW}[recipe.optimizer](
        # A captured step (loop/cuda_graphs.py) reads its learning rate from a tensor, one per group, so it can change.
        [group | {"lr": torch.zeros((), device=device) if on_gpu else 0.0} for group in groups],
        betas=recipe.betas,
        eps=recipe.eps,
        fused=device.type in FUSED_DEVICES,
        capturable=on_gpu,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["rate_factor"])
        else:
            group["lr"] = rate * group["rate_factor"]


def update_if_finite(optimizer: torch.optim.Optimizer, norm: Tensor) -> None:
    """Update the weights unless the gradient norm is not finite; fused kernels check that without waiting for it."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    is_fused = any(group.get("fused") for group in optimizer.param_groups)
    if is_fused and norm.device.type in FUSED_DEVICES and not any(map(is_sharded, parameters)):
        optimizer.found_inf = (~norm.isfinite()).to(torch.float32)  # type: ignore[attr-defined]  # as GradScaler does
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif norm.isfinite():
        optimizer.step()
