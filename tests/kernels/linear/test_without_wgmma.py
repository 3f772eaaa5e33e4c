"""DISABLE_MMA_V3 is set only while a kernel is compiled, by one thread at a time, and is restored afterwards."""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
VARIABLE = "DISABLE_MMA_V3"


@pytest.fixture
def kernel() -> Any:
    """A kernel of its own for each test, as `triton.jit` and the decorator make it."""
    import triton

    from regard.kernels.linear.without_wgmma import without_wgmma

    def empty(x):  # type: ignore[no-untyped-def]
        pass

    return without_wgmma(triton.JITFunction(empty))


@pytest.mark.parametrize("before", [None, "0", "1"])
def test_the_variable_is_set_while_compiling_and_restored(
    kernel: Any, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    kernel.compile = lambda source, **options: (source, options, os.environ[VARIABLE])
    assert kernel.compile("source", target=90) == ("source", {"target": 90}, "1")
    assert os.environ.get(VARIABLE) == before

    def fail(source: str) -> None:
        raise RuntimeError(source)

    kernel.compile = fail
    with pytest.raises(RuntimeError, match="source"):
        kernel.compile("source")
    assert os.environ.get(VARIABLE) == before


def test_a_compiler_that_triton_assigns_is_the_one_that_is_called(kernel: Any) -> None:
    """As JITFunction.create_binder does it."""
    import triton

    assert kernel.compile.args == (triton.compile,)
    assert isinstance(kernel, triton.JITFunction)


def test_two_threads_compile_one_after_the_other(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second thread asks while the first one compiles, and the first one ends while the second one compiles.

    Without a lock the first thread would remove the variable under the second one, which would then restore the "1".
    """
    monkeypatch.delenv(VARIABLE, raising=False)
    first_compiles, second_asks, first_is_done = threading.Event(), threading.Event(), threading.Event()
    seen: dict[str, list[str | None]] = {"first": [], "second": []}

    def compile(name: str) -> None:
        seen[name].append(os.environ.get(VARIABLE))
        if name == "first":
            first_compiles.set()
            assert second_asks.wait(10)
            second_compiles.wait(0.3)  # with the lock this never happens
        else:
            second_compiles.set()
            assert first_is_done.wait(10)
        seen[name].append(os.environ.get(VARIABLE))

    second_compiles = threading.Event()
    kernel.compile = compile

    def first() -> None:
        kernel.compile("first")
        first_is_done.set()

    def second() -> None:
        assert first_compiles.wait(10)
        second_asks.set()
        kernel.compile("second")

    run_together(first, second)
    assert seen == {"first": ["1", "1"], "second": ["1", "1"]}
    assert VARIABLE not in os.environ


def run_together(*functions: Callable[[], None]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_the_kernels_with_products_are_decorated() -> None:
    from regard.kernels.linear import attention_triton, gradients_triton, segment_sums_triton
    from regard.kernels.linear.without_wgmma import KernelWithoutWgmma

    for kernel in (attention_triton.mix, gradients_triton.grad, segment_sums_triton.sums):
        assert isinstance(kernel, KernelWithoutWgmma)
