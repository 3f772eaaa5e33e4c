"""Run test files as scripts, with their Triton kernels in Triton's interpreter; see the fixture `interpret`.

    TRITON_INTERPRET=1 python tests/interpreted.py FILE …   run one file, with arguments
    TRITON_INTERPRET=1 python tests/interpreted.py          run one file for every line of JSON on standard input

A line is {"file": FILE, "folder": FOLDER, "arguments": [ARGUMENT, …]}. PyTorch is imported once, and each file runs in
a fork of this process, with its output in FOLDER/stdout and FOLDER/stderr. The answer is a line with the exit code and
the folder.

The interpreter patches Triton's language anew for every call of every function, which takes a good part of its time,
and removes the patches after each kernel. Here the language is patched once.

It also computes every sum and product of integers a second time in 64 bits, to look for overflows that it then
reports to nobody. Here it does not.

The interpreter reads and writes any address. Here a kernel may only access the memory of the tensors that it was given.

Triton up to 3.6 converts arrays of one element to integers by `int(array)`, which is an error from numpy 2.5 on.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

put_in = interpreter._patch_lang
ready: set[int] = set()


def put_in_once(function: Callable[..., object]) -> SimpleNamespace:
    seen = {id(value) for value in function.__globals__.values() if value is tl or value is tl.core}
    if not seen or not seen <= ready:
        put_in(function)
        ready.update(seen)
        tl.core.tensor.__index__ = lambda self: self.handle.data.item()
    return SimpleNamespace(restore=lambda: None)


class Checked:
    """The interpreter's reads and writes, none of them elsewhere than in the tensors of the kernel that runs."""

    def __init__(self) -> None:
        self.plain, self.first, self.last = interpreter._interpreter, np.zeros(0, np.uint64), np.zeros(0, np.uint64)

    def own(self, arguments: list[Any]) -> None:
        stores = {x.untyped_storage() for x in arguments if hasattr(x, "untyped_storage")}
        places = sorted((x.data_ptr(), x.data_ptr() + x.nbytes()) for x in stores)
        self.first, self.last = np.array(places, np.uint64).reshape(-1, 2).T

    def check(self, pointers: np.ndarray, mask: np.ndarray, size: int) -> None:
        at = pointers[mask.astype(bool)].astype(np.uint64)
        which = np.searchsorted(self.first, at, side="right")
        if at.size and (which.min() == 0 or (at + np.uint64(size) > self.last[which - 1]).any()):
            raise IndexError("the kernel reads or writes memory that it was not given")

    def load(self, pointers: np.ndarray, mask: np.ndarray, other: np.ndarray, dtype: Any) -> np.ndarray:
        self.check(pointers, mask, np.dtype(dtype).itemsize)
        return self.plain.load(pointers, mask, other, dtype)

    def store(self, pointers: np.ndarray, value: np.ndarray, mask: np.ndarray) -> None:
        self.check(pointers, mask, value.itemsize)
        self.plain.store(pointers, value, mask)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


def give(executor: Any, arguments: Any, named: dict[str, Any]) -> Any:
    given = take(executor, arguments, named)
    checked.own([*given[0], *given[1].values()])
    return given


checked, take = Checked(), interpreter.GridExecutor._init_args_hst
interpreter._interpreter, interpreter.GridExecutor._init_args_hst = checked, give
interpreter._patch_lang = put_in_once
interpreter.interpreter_builder.options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)


def warm_up() -> None:
    """Import what torch.compile and torch.library.opcheck import when they are first used."""
    x = torch.ones(1, requires_grad=True)
    torch.compile(torch.sin, backend="aot_eager")(x).backward()
    torch.compiler.reset()
    torch.library.opcheck(torch.ops.aten.sin.default, (x,), test_utils="test_faketensor")


def fork_and_run(file: str, folder: Path, arguments: list[str]) -> int:
    """Run a file in a child process -> its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
    code, sys.argv = 1, [file, *arguments]
    try:
        runpy.run_path(file, run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if len(sys.argv) > 1:
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
else:
    warm_up()
    for line in sys.stdin:
        request = json.loads(line)
        code = fork_and_run(request["file"], Path(request["folder"]), request["arguments"])
        print(code, request["folder"], flush=True)
