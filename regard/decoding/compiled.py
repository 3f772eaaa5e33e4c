"""The C of this folder: compiled when it is first wanted, and kept; without a compiler torch does it all.

Here too are matrices in the order in which that code reads them, and their product with rows of numbers.

    r rows   i features in   o features out
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from ctypes import POINTER, Structure, byref, c_int, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.files import cache_folder

SOURCE = Path(__file__).with_name("native.c")
PRODUCT = Path(__file__).with_name("product.h")
# Sums in any order, so that they can be done side by side; all of -ffast-math would round small numbers of the whole
# process to zero, torch's among them.
FAST = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno")
FLAGS = ("-O3", "-march=native", *FAST, "-shared", "-fPIC", "-lm")
GROUP = 4  # whole numbers of a row that are multiplied at once


class Matrix(Structure):
    """As in product.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("weight", "numbers", "worth", "sums", "bias")),
        ("out", c_int),
        ("columns", c_int),
    )


class LaidOut:
    """A matrix (o, i) as product.h reads it: blocks of outputs, and in each the inputs one after the other.

    Of float32, or of whole numbers of eight bits with the worth of one in each row, (o,).
    """

    def __init__(self, code: Any, numbers: Tensor, worth: Tensor | None = None) -> None:
        self.code, width = code, code.outputs_of_a_block()
        self.out, self.columns = numbers.shape
        parts = {"weight": blocks(numbers, width)}
        if worth is not None:
            # The rows that they are multiplied by have 128 added to each number: what that adds is taken off again.
            sums = -128 * numbers.sum(1, dtype=torch.int32)
            rows = {"worth": worth.float(), "sums": sums}
            parts = {name: F.pad(part, (0, -len(part) % width)) for name, part in rows.items()}
            parts["numbers"] = blocks(numbers, width, GROUP)
        self.parts = {name: part.contiguous() for name, part in parts.items()}  # what the pointers point to
        pointers = {name: part.data_ptr() for name, part in self.parts.items()}
        self.matrix = Matrix(**pointers, out=self.out, columns=self.columns)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """(…, i) -> (…, o)."""
        rows = x.reshape(-1, self.columns).contiguous()
        y = x.new_empty(len(rows), self.out)
        numbers = map(pointer, (bias, rows, y))
        if len(rows) and self.code.multiply(byref(self.matrix), *numbers, len(rows), torch.get_num_threads()):
            raise MemoryError(f"no memory for a product of {len(rows)} rows")
        return y.view(*x.shape[:-1], self.out)


def blocks(numbers: Tensor, outputs: int, inputs: int = 1) -> Tensor:
    """(o, i) -> (blocks of outputs, groups of inputs, outputs, inputs), with zeros where there is nothing."""
    o, i = numbers.shape
    padded = F.pad(numbers, (0, -i % inputs, 0, -o % outputs))
    return padded.view(-1, outputs, padded.shape[1] // inputs, inputs).transpose(1, 2).contiguous()


def pointer(tensor: Tensor | None) -> c_void_p:
    return c_void_p(None if tensor is None else tensor.data_ptr())


@cache
def compiled() -> Any:
    """The functions of native.c; None where there is no compiler, or no place for what it makes."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or os.environ.get("REGARD_NATIVE") == "0":
        return None
    try:
        texts = [path.read_text(encoding="utf-8") for path in (SOURCE, PRODUCT)]
        about = f"{texts} {FLAGS} {platform.machine()} {_cpu()}"
        place = cache_folder() / f"native-{hashlib.sha256(about.encode()).hexdigest()[:16]}.so"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as folder:
                fresh = Path(folder) / place.name
                compile_to(fresh, compiler, FLAGS)
                fresh.replace(place)
        return open_library(place)
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError):  # the last: there is no home folder
        return None


def open_library(path: Path) -> Any:
    code = ctypes.CDLL(str(path))
    code.multiply.argtypes = [POINTER(Matrix), *[c_void_p] * 3, c_int, c_int]
    code.decode_step.argtypes = [*[c_void_p] * 4, *[c_int] * 3, *[c_void_p] * 4, c_int]
    return code


def compile_to(out: Path, compiler: str, flags: tuple[str, ...]) -> None:
    """With threads where the compiler knows them, else without."""
    for threads in (["-fopenmp"], []):
        command = [compiler, str(SOURCE), *threads, *flags, "-o", str(out)]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        if done.returncode == 0:
            return
    raise OSError(done.stderr.decode(errors="replace"))


def _cpu() -> str:
    """What tells this CPU from another that shares the folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""
