"""Record the attention weights of a model: every layer, every head, by name, while it runs.

H4. Hooks request the weights from each attention module and remove them from its output again, so the model computes
the same as without a recording, and costs nothing when nothing is recorded. Row i of a map is the distribution that was
used to compute output token i.

    B batch   H heads   m queries   n keys
"""

from __future__ import annotations

import difflib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.recording.other_libraries import foreign_layers, plain_torch_layers, record_layer


class Recording(Mapping[str, Tensor]):
    """Attention maps by layer name; `recording["decoder.2.cross"]` is (B, H, m, n).

    The steps of a generation are joined along m. Keys that did not exist yet at an earlier step have weight 0.
    """

    def __init__(self, names: list[str]) -> None:
        self._steps: dict[str, list[Tensor]] = {name: [] for name in names}

    def steps(self, name: str) -> list[Tensor]:
        """Return the weights of each call of that layer in order, (B, H, m, n) each."""
        if name not in self._steps:
            near = difflib.get_close_matches(name, self._steps, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise KeyError(f"no attention layer {name!r}{hint} (recorded: {', '.join(self._steps) or 'none'})")
        return self._steps[name]

    def __getitem__(self, name: str) -> Tensor:
        steps = self.steps(name)
        if not steps:
            raise KeyError(f"layer {name!r} has not run since the recording began")
        if len({(step.shape[0], step.shape[1]) for step in steps}) > 1:
            raise ValueError(f"the calls of {name!r} had different batch sizes: take them one by one with steps()")
        n = max(step.shape[3] for step in steps)
        return torch.cat([F.pad(step, (0, n - step.shape[3])) for step in steps], dim=2)

    def __iter__(self) -> Iterator[str]:
        return (name for name, steps in self._steps.items() if steps)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        """Delete what was recorded so far, for example between two sentences."""
        for steps in self._steps.values():
            steps.clear()


@contextmanager
def record(model: nn.Module) -> Iterator[Recording]:
    """Record all attention weights of `model` inside the block, of calls in this thread.

        with regard.record(model) as r:
            model(source, target)
        r["decoder.2.cross"]  # (B, H, m, n)

    A layer's name is encoder or decoder, the number of the block, and self or cross. Compiled models run eagerly inside
    the block. PyTorch's own layers and those of `transformers` models with eager attention are recorded as well
    (other_libraries.py).

    >>> import regard, torch
    >>> model = regard.make_model(regard.preset("transformer-tiny", source_vocabulary=9, target_vocabulary=9))
    >>> with record(model) as recording:
    ...     _ = model(torch.tensor([[5, 6, 7]]), torch.tensor([[2, 8]]))
    >>> recording["decoder.0.cross"].shape[-2:]  # a distribution over 3 source tokens for each of 2 target tokens
    torch.Size([2, 3])
    """
    # Nobody trains on recorded weights, so they are stored without their graph.
    layers = {layer_name(path): module for path, module in model.named_modules() if _returns_weights(module)}
    others = foreign_layers(model)
    recording = Recording([*layers, *others])
    asked: set[str] = set()
    handles = []
    try:
        for name, module in layers.items():
            ask, take = _hooks(name, recording, asked)
            handles.append(module.register_forward_pre_hook(ask, with_kwargs=True))
            handles.append(module.register_forward_hook(take, prepend=True))
        for name, module in others.items():
            handles += record_layer(module, recording.steps(name).append)
        with running_eagerly(), plain_torch_layers() if others else nullcontext():
            yield recording
    finally:
        for handle in handles:
            handle.remove()


def running_eagerly() -> AbstractContextManager[Any]:
    """Run compiled models eagerly inside the block, so that their hooks run."""
    # Without PyTorch's compiler, whose import takes a second, nothing can be compiled.
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def layer_name(path: str) -> str:
    """Return the short name of a layer: decoder.blocks.2.cross_attention -> decoder.2.cross."""
    parts = [part.removesuffix("_attention") for part in path.split(".") if part not in ("blocks", "_orig_mod")]
    return ".".join(parts) or "attention"


def _returns_weights(module: nn.Module) -> bool:
    return getattr(module, "returns_weights", False) is True


def _hooks(name: str, recording: Recording, asked: set[str]) -> tuple[Callable, Callable]:
    """Return a hook that requests the weights, and one that stores them and returns what the caller requested.

    Both leave the calls of other threads alone, which may use the model at the same time, as in a server.
    """
    owner = threading.get_ident()

    def ask(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        if threading.get_ident() != owner:
            return None
        if kwargs.get("return_weights"):
            asked.add(name)
        else:
            asked.discard(name)
        return args, {**kwargs, "return_weights": True}

    def take(module: nn.Module, args: tuple, result: tuple[Tensor, Tensor]) -> Tensor | tuple[Tensor, Tensor] | None:
        if threading.get_ident() != owner:
            return None
        output, weights = result
        weights = weights.detach()
        recording.steps(name).append(weights if weights.dim() == 4 else weights.unsqueeze(1))
        return result if name in asked else output

    return ask, take
