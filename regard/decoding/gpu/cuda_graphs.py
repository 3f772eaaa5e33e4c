"""CUDA graphs: capture work on a GPU once, and replay it without Python between the kernels.

E8. A graph has fixed shapes and reads the weights where they were when it was captured. Shapes are rounded up, so that
there are few of them; the graphs of the shapes used last are kept for each model.
"""

from __future__ import annotations

import subprocess
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn

from regard.decoding.decoder_layout import all_modules

MAX_SHAPES_PER_MODEL = 8  # whose graphs are kept
ROUND_UP_TO = {"source": 16, "capacity": 64}  # tokens


class CapturedWork:
    """A function without arguments, captured as a CUDA graph; on other devices each call runs the function."""

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        self.work, self.graph = work, None
        if device.type != "cuda":
            return
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # the first run compiles the kernels and chooses among them
                work()
        torch.cuda.current_stream(device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            work()

    def __call__(self) -> None:
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()


class ModelGraphs:
    """What was captured for one model, by shape; the shapes used last are kept."""

    def __init__(self, model: nn.Module) -> None:
        self.weight_pointers = weight_pointers(model)
        self.failed = False  # a failure is reported once; from then on the modules decode
        self.by_shape: OrderedDict[Any, Any] = OrderedDict()
        self.accepted_states: WeakSet[Any] = WeakSet()  # whose model was found to be supported
        self.lock = threading.RLock()  # the buffers of a shape serve one text or batch at a time

    def get(self, shape: tuple[Any, ...], capture: Callable[[], Any]) -> Any:
        """Return what `capture` captured for this shape, now or before; None if that is not possible."""
        from triton import TritonError

        if shape not in self.by_shape and not self.failed:
            while len(self.by_shape) >= MAX_SHAPES_PER_MODEL:
                self.by_shape.popitem(last=False)
            try:
                self.by_shape[shape] = capture()
            except torch.cuda.OutOfMemoryError:  # a smaller batch may fit
                self.by_shape.clear()
                return None
            except (RuntimeError, OSError, subprocess.SubprocessError, TritonError) as error:
                self.failed = True
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                warnings.warn(
                    f"decoding cannot be captured as CUDA graphs here and is slower ({reason})",
                    RuntimeWarning,
                    stacklevel=2,
                )
        if self.failed:
            return None
        self.by_shape.move_to_end(shape)
        return self.by_shape[shape]


_graphs: WeakKeyDictionary[nn.Module, ModelGraphs] = WeakKeyDictionary()


def graphs_of(model: nn.Module) -> ModelGraphs:
    """Return the captured graphs of a model; none yet if its weights have moved since."""
    graphs = _graphs.get(model)
    if graphs is None or graphs.weight_pointers != weight_pointers(model):
        graphs = _graphs[model] = ModelGraphs(model)
    return graphs


def weight_pointers(model: nn.Module) -> list[int]:
    """Return the addresses of all weights, which captured graphs read."""
    weights = (weight for module in all_modules(model) for weight in module._parameters.values())
    return [weight.data_ptr() for weight in weights if weight is not None]


def round_up(tokens: int, kind: str) -> int:
    """Round the length of the source or the capacity up to one of few sizes."""
    step = ROUND_UP_TO[kind]
    return -(-tokens // step) * step
