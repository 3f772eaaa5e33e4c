"""When the training kernels run, and the seeds from which they draw dropout masks.

Srivastava et al. 2014. A stored mask is written once and read twice. The kernels of dropout_triton.py draw the mask in
the forward pass and again in the backward pass, from the same seed. The seed is a number on the device that torch's
generator draws at each call. A captured CUDA graph therefore draws new masks at each replay, `torch.manual_seed` fixes
all masks, and a training run that resumes from a checkpoint continues with the same masks.
"""

from __future__ import annotations

from collections.abc import Set

import torch
from torch import Tensor, nn

from regard.kernels.devices import runs_triton
from regard.traits import own_traits

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_DROPOUT = 0.99  # the kernels count the probability in 1/65536


def why_not_train(module: nn.Module, known: Set[str], x: Tensor, dropout: float = 0.0) -> str | None:
    """Return the reason why no kernel may do the work of a module on x, or None if one may.

    `known` are the traits of the module that the kernel implements.
    """
    if not module.training:
        return "the module is not in training mode"
    if not torch.is_grad_enabled():
        return "gradients are disabled"
    if not has_known_traits(module, known):
        return "the module has a trait that the kernel does not implement"
    if dropout > MAX_DROPOUT:
        return "the dropout probability is above 0.99"
    if x.dtype not in DTYPES:
        return "the dtype is not float32, bfloat16 or float16"
    return None if runs_triton(x.device) else "Triton kernels do not run on this device"


def has_known_traits(module: nn.Module, known: Set[str]) -> bool:
    """Whether `known` covers the module's own traits; submodules are asked on their own."""
    return own_traits(module) <= known


def has_hooks(module: nn.Module) -> bool:
    """Whether hooks observe or change the calls of a module or their gradients."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def must_be_called(module: nn.Module) -> bool:
    """Whether the work of a module must go through `module(…)`, because it has hooks or was compiled."""
    return has_hooks(module) or module._compiled_call_impl is not None


def is_plain(module: nn.Module, *classes: type[nn.Module], known: Set[str] = frozenset()) -> bool:
    """Whether a kernel may do the work of a part without calling it: of one of these classes, unchanged, no hooks."""
    return type(module) in classes and has_known_traits(module, known) and not must_be_called(module)


def draw_seed(like: Tensor, count: int = 1) -> Tensor:
    """Draw the seeds of `count` masks from torch's generator, (count,), on the device of `like`, with one launch."""
    return torch.randint(2**63 - 1, (count,), device=like.device)
