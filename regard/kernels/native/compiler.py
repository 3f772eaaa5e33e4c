"""C files of this package: each is compiled when it is first wanted, and kept; without a compiler torch does it all."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from ctypes import c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.files import cache_folder
from regard.machine import c_compiler, cpu_flags

if TYPE_CHECKING:
    from torch import Tensor

ROOT = Path(__file__).parent
COMMON = ROOT / "common.h"
# Sums in any order, so that they can be done side by side; all of -ffast-math would round small numbers of the whole
# process to zero, torch's among them.
FAST = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno")
FLAGS = ("-O3", "-march=native", *FAST, "-shared", "-fPIC", "-lm")


def load_library(source: Path, *headers: Path) -> Any:
    """The functions of a C file; None where there is no compiler, or no place for what it makes.

    It may include common.h, and others of the package, which are then to be named here.
    """
    compiler = c_compiler()
    if compiler is None:
        return None
    try:
        texts = [path.read_text(encoding="utf-8") for path in (source, COMMON, *headers)]
        about = f"{texts} {FLAGS} {cpu_flags()}"
        place = cache_folder() / f"{source.stem}-{hashlib.sha256(about.encode()).hexdigest()[:16]}.so"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as folder:
                fresh = Path(folder) / place.name
                compile_to(fresh, source, compiler, FLAGS)
                fresh.replace(place)
        return ctypes.CDLL(str(place))
    except (OSError, subprocess.SubprocessError, RuntimeError):  # the last: there is no home folder
        return None


def compile_to(out: Path, source: Path, compiler: str, flags: tuple[str, ...]) -> None:
    """With threads where the compiler knows them, else without."""
    for threads in (["-fopenmp"], []):
        command = [compiler, str(source), f"-I{ROOT}", *threads, *flags, "-o", str(out)]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        if done.returncode == 0:
            return
    raise OSError(done.stderr.decode(errors="replace"))


def pointer(tensor: Tensor | None) -> c_void_p:
    return c_void_p(None if tensor is None else tensor.data_ptr())
