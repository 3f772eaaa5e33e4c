"""A decorator for Triton kernels whose matrix products must not use Hopper's `wgmma` instruction.

The assembler that ships with Triton miscompiles `wgmma` where an operand is in registers (fixed in CUDA 13.3): outputs
are wrong. Compiled to `mma.sync`, as on older GPUs, the products are right. Triton has no compile option for this
choice. Its compiler reads the environment variable DISABLE_MMA_V3, which belongs to the whole process, so the variable
is set only while a new specialisation of a decorated kernel is compiled, under a lock. Launches do not touch it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import triton

VARIABLE = "DISABLE_MMA_V3"
_LOCK = threading.RLock()


@contextmanager
def wgmma_disabled() -> Iterator[None]:
    """Disable `wgmma` in Triton's compiler for one thread at a time, and restore the environment afterwards.

    Without the lock, a second thread would save the value that the first one set, and the first one would remove the
    variable while the second one still compiles. A kernel of another library that is compiled at the same time does
    without `wgmma` too: it is correct, but may be slower.
    """
    with _LOCK:
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before


class KernelWithoutWgmma(triton.JITFunction):  # type: ignore[misc]  # Triton carries no types
    """A kernel that compiles each new specialisation without `wgmma`.

    Triton assigns its compiler to the attribute `compile` of a kernel and calls it there, once for a specialisation.
    """

    def _get_compiler(self) -> Callable[..., Any]:
        return partial(_compile, self.__dict__.get("compiler", triton.compile))

    def _set_compiler(self, compiler: Callable[..., Any]) -> None:
        self.__dict__["compiler"] = compiler

    compile = property(_get_compiler, _set_compiler)


def without_wgmma(kernel: Any) -> Any:
    """Compile this kernel without `wgmma`; a kernel that Triton interprets is not compiled and stays what it is."""
    if isinstance(kernel, triton.JITFunction):
        kernel.__class__ = KernelWithoutWgmma
    return kernel


def _compile(compiler: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    with wgmma_disabled():
        return compiler(*arguments, **options)
