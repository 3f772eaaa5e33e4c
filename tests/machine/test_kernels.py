"""Which kernels can run on a device."""

from __future__ import annotations

import pytest
import torch

from regard import machine

CPU = torch.device("cpu")


def test_triton_interprets_kernels_if_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not machine.triton_is_interpreted()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert machine.triton_is_interpreted()


def test_the_compiler_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/bin/gcc" if name == "gcc" else None)
    monkeypatch.delenv("REGARD_NATIVE", raising=False)
    assert machine.c_compiler() == "/bin/gcc"
    monkeypatch.setenv("REGARD_NATIVE", "0")
    assert machine.c_compiler() is None


def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: False)
    assert machine.available_devices()["cuda"] == 0 and machine.available_devices()["cpu"] == 1
    assert machine.compute_capability.__wrapped__() == (0, 0) and machine.is_ampere.__wrapped__()
    assert machine.multiprocessors(CPU) == 1 and machine.peak_allocated() is None
    machine.synchronize(CPU)


def test_memory_that_ran_out() -> None:
    assert machine.is_out_of_memory(torch.OutOfMemoryError("full")) and machine.is_out_of_memory(MemoryError())
    assert machine.is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"))
    assert not machine.is_out_of_memory(RuntimeError("inconsistent tensor size"))
