"""Compile and load the C files of this folder on first use. Without a C compiler, torch computes everything."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
import warnings
from ctypes import c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.machine import c_compiler, cpu_flags
from regard.system import is_private
from regard.system.files import cache_folder

if TYPE_CHECKING:
    from torch import Tensor

ROOT = Path(__file__).parent
# Sums may be reordered, so that they can be vectorised. All of -ffast-math would flush denormal numbers to zero in the
# whole process, for torch too.
FAST = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno")
MAX_SECONDS = 300  # of the compiler, on a machine with much other work
FLAGS = ("-O3", "-march=native", *FAST, "-shared", "-fPIC", "-lm")


class CompileError(Exception):
    """The compiler rejects the source; the text is the compiler's message."""


def load_library(source: Path) -> Any:
    """Return the compiled library of a C file; None if there is no compiler or no writable cache folder.

    The file may include headers of this folder; it is compiled again when any header here or in decoder/ changes.
    """
    compiler = c_compiler()
    if compiler is None:
        return None
    try:
        texts = [path.read_text(encoding="utf-8") for path in (source, *sorted(ROOT.rglob("*.h")))]
        key = hashlib.sha256(f"{texts} {FLAGS} {cpu_flags()}".encode()).hexdigest()[:16]
        library = cache_folder() / f"{source.stem}-{key}.so"
        library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_safe = is_private(library.parent)
        if is_safe and is_private(library):
            return ctypes.CDLL(str(library))
        # Where others can write, a library might be theirs: then compile one for this process only.
        with tempfile.TemporaryDirectory(dir=library.parent if is_safe else None) as folder:
            output = Path(folder) / library.name
            compile_to(output, source, compiler, FLAGS)
            output.chmod(0o700)
            return ctypes.CDLL(str(output.replace(library) if is_safe else output))
    except CompileError as error:
        message = next((line for line in str(error).splitlines() if "error" in line), "no message")
        warnings.warn(
            f"{compiler} cannot compile {source.name}, so the plain modules run instead, which are slower: {message}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    except (OSError, subprocess.SubprocessError, RuntimeError):  # RuntimeError: there is no home folder
        return None


def compile_to(out: Path, source: Path, compiler: str, flags: tuple[str, ...]) -> None:
    """Compile with OpenMP threads if the compiler supports them, otherwise without."""
    for threads in (["-fopenmp"], []):
        command = [compiler, str(source), f"-I{ROOT}", *threads, *flags, "-o", str(out)]
        process = subprocess.run(command, capture_output=True, timeout=MAX_SECONDS, check=False)
        if process.returncode == 0:
            return
    raise CompileError(process.stderr.decode(errors="replace"))


def pointer(tensor: Tensor | None) -> c_void_p:
    return c_void_p(None if tensor is None else tensor.data_ptr())
