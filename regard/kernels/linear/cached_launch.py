"""Launch a Triton kernel again without Triton's analysis of its arguments.

At each launch, Triton looks at every argument to find the compiled form of the kernel that fits: its type, whether a
number is 1 or a multiple of 16, whether an address is. With fifty arguments, this takes longer than the GPU takes to
start the kernel. Here the compiled form is remembered by what Triton looks at, and launched directly. This uses what a
launch returns, the compiled kernel, as Triton's tutorial on softmax does. If Triton returns something else, as its
interpreter does, each launch goes the usual way.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from torch import Tensor

ALIGNMENT = 16  # bytes of an address, or what a number is a multiple of
MAX_REMEMBERED = 1024  # forms of a kernel; more are forgotten all at once

Grid = tuple[int, ...]


class CachedLaunch:
    """A kernel with what was compiled for earlier launches."""

    enabled = True

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.compiled: dict[tuple[object, ...], Any] = {}

    def __call__(
        self, grid: Grid, tensors: Sequence[Tensor], numbers: Sequence[float], constants: dict[str, Any]
    ) -> None:
        """Launch the kernel with its tensors, then its numbers, then constants and options such as num_warps by name.

        The tensors are on the current device.
        """
        key = (
            tensors[0].device,
            *[(tensor.dtype, tensor.data_ptr() % ALIGNMENT == 0) for tensor in tensors],
            *numbers,
            *constants.items(),
        )
        compiled = self.compiled.get(key) if CachedLaunch.enabled else None
        if compiled is not None and self._launch(compiled, grid, tensors, numbers, constants):
            return
        returned = self.kernel[grid](*tensors, *numbers, **constants)
        if is_launchable(returned):
            if len(self.compiled) >= MAX_REMEMBERED:
                self.compiled.clear()
            self.compiled[key] = returned

    def _launch(
        self,
        compiled: Any,
        grid: Grid,
        tensors: Sequence[Tensor],
        numbers: Sequence[float],
        constants: dict[str, Any],
    ) -> bool:
        """Launch a compiled kernel; if this Triton refuses, warn once and return False from then on."""
        names = self.kernel.arg_names[len(tensors) + len(numbers) :]
        width, height, depth = (*grid, 1, 1)[:3]
        try:
            compiled[width, height, depth](*tensors, *numbers, *[constants[name] for name in names])
        except TypeError as error:  # other arguments than this file knows: nothing was launched
            CachedLaunch.enabled = False
            warnings.warn(f"Triton's compiled kernels cannot be launched directly: {error}", stacklevel=3)
            return False
        return True


def is_launchable(compiled: Any) -> bool:
    """Whether what a launch returned is a compiled kernel that can be launched with a grid and arguments."""
    return hasattr(type(compiled), "__getitem__") and hasattr(compiled, "packed_metadata")
