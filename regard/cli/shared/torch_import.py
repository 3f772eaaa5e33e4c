"""Import torch for commands that only run a model, in about two thirds of the time of a plain import.

Two parts of `import torch` are left out. The garbage collector searches a growing number of objects for cycles, again
and again, although imported modules have none to free. And `torch._meta_registrations` registers functions for tensors
without data, which torch.compile and torch.export use. They are registered when something asks for them.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

POSTPONED = "torch._meta_registrations"
USERS = ("torch._dynamo", "torch._decomp")  # the compiler, and the formulas that tensors without data are traced with


def import_torch() -> None:
    """Import torch, unless that has been done."""
    if "torch" in sys.modules:
        return
    collects = gc.isenabled()
    gc.disable()
    sys.meta_path.insert(0, Postponement())
    try:
        importlib.import_module("torch")
    finally:
        gc.freeze()  # later collections skip the objects of torch's modules
        if collects:
            gc.enable()


class Postponement(MetaPathFinder, Loader):
    """Imports an empty module in place of the postponed one, which is imported together with the first of its users."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == POSTPONED:
            return ModuleSpec(name, self)
        if name in USERS:
            sys.meta_path.remove(self)
            if sys.modules.pop(POSTPONED, None) is not None:
                importlib.import_module(POSTPONED)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python create the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module empty."""
