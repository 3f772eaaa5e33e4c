"""Runs a test file as a script, its Triton kernels by Triton's interpreter; see the fixture `interpret`.

    TRITON_INTERPRET=1 python tests/interpreted.py FILE

The interpreter puts its own functions into the language anew for every call of every function, which is a good part
of its time, and takes them out after each kernel. Here they are put in once, and stay.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from types import SimpleNamespace

import triton.language as tl
from triton.runtime import interpreter

put_in = interpreter._patch_lang
ready: set[int] = set()


def put_in_once(function: Callable[..., object]) -> SimpleNamespace:
    seen = {id(value) for value in function.__globals__.values() if value is tl or value is tl.core}
    if not seen or not seen <= ready:
        put_in(function)
        ready.update(seen)
    return SimpleNamespace(restore=lambda: None)


interpreter._patch_lang = put_in_once
runpy.run_path(sys.argv[1], run_name="__main__")
