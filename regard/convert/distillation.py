"""Distil exact heads into swapped ones: minimise the difference of their outputs on the same inputs.

Hinton et al. 2015 for the idea; Kasai et al. 2021 and Zhang et al. 2024 convert Transformers to linear attention this
way. All layers learn in parallel, each from its inputs in the exact model, so errors do not accumulate.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.convert.head_analysis import both_outputs, exact_layers, layer_calls, squared_error
from regard.convert.sample_texts import Tokens
from regard.convert.swap_heads import random_heads, random_layers, random_part

LEARNING_RATE = 1e-3  # of Adam at the start; decays linearly to 0

Watch = Callable[[Sequence[int]], Iterable[int]]


def distil(
    teacher: Any, student: nn.Module, batches: Sequence[Tokens], *, steps: int, seed: int = 0, watch: Watch = iter
) -> None:
    """Train W_Q, W_K, W_V and the scale of the student's random heads by the mean squared error of their outputs.

    The error of each head is relative to the size of its output, so that all heads have equal weight. W is not
    trained. `watch` wraps the steps, to show progress.
    """
    layers, exact, draw = random_layers(student), exact_layers(teacher), random.Random(seed)
    trained: list[nn.Parameter] = []
    for layer in layers.values():
        part = random_part(layer)
        trained += [
            *part.input.parameters(),
            *part.features.parameters(),
        ]  # W^O is not trained, because exact heads use it too
    optimizer = torch.optim.Adam(trained, lr=LEARNING_RATE)
    for step in watch(range(steps)):
        calls = layer_calls(teacher, draw.choice(batches))
        losses: list[Tensor] = []
        for name, layer in layers.items():
            call, numbers = calls[name], random_heads(layer)
            outputs = both_outputs(exact[name], random_part(layer), numbers, call)
            losses.append(squared_error(*outputs, call.text).mean())
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - step / steps)
        optimizer.step()
