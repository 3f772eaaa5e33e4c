"""The tensors of a training run by name, as checkpoints store them: whole, on the CPU, and each shared one once.

Sharded tensors (FSDP) are gathered, so another number of processes can continue; then all processes must take part.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.attention.linear.features import read_draws
from regard.errors import ModelError
from regard.models.folder.weights_file import distinct_weights
from regard.training.parallel.sharding import full_tensor, shard_like


def on_cpu(tensor: Tensor) -> Tensor:
    """Return the full value of a tensor as a checkpoint stores it."""
    return full_tensor(tensor).cpu().contiguous()


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights."""
    return {name: on_cpu(weight) for name, weight in distinct_weights(model).items()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model; raise ModelError unless names and shapes are exactly the model's."""
    expected = distinct_weights(model)
    if expected.keys() != weights.keys():
        odd = min(expected.keys() ^ weights.keys())
        raise ModelError(f"the weight {odd!r} {'is missing' if odd in expected else 'belongs to no part of the model'}")
    with torch.no_grad():
        for name, weight in expected.items():
            if weight.shape != weights[name].shape:
                raise ModelError(
                    f"the weight {name!r} has shape {tuple(weights[name].shape)}, not {tuple(weight.shape)}"
                )
            weight.copy_(shard_like(weights[name], weight))
    read_draws(model)


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """Return the optimizer's state by parameter name: `decoder.0.….weight/exp_avg`."""
    return {
        f"{names[parameter]}/{key}": on_cpu(value)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def load_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]
) -> None:
    """Copy the tensors of `optimizer_tensors` back into an optimizer."""
    parameters = {name: parameter for parameter, name in names.items()}
    is_fused = any(group.get("fused") for group in optimizer.param_groups)
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("/")
        parameter = parameters[name]
        # A fused optimizer keeps its step count on the parameter's device, any other on the CPU.
        device = parameter.device if key != "step" or is_fused else value.device
        if key != "step":
            value = shard_like(value, parameter)
        optimizer.state[parameter][key] = value.to(device).clone()


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random generators that dropout draws from, in this process."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def load_generator_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the states of `generator_states`."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
