"""Traits: short names for what a module computes, so that an engine can refuse what it does not implement.

A module with options has a property `traits`. An engine (a kernel, a decoder in C) declares the set of traits that
it implements and leaves every model with any other trait to the plain modules. A new option is therefore never
silently ignored: its trait is unknown to every engine until someone implements it there.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

CONTAINERS_AND_PRIMITIVES = frozenset({"Linear", "Dropout", "ModuleList", "Sequential", "Identity"})


def traits_of(module: nn.Module) -> frozenset[str]:
    """Return the traits of a module and of everything inside it.

    A module that declares no traits contributes its class name, which no engine knows. So does a subclass that
    overrides `forward` and inherits the traits of its base.
    """
    traits: set[str] = set()
    for part in module.modules():
        declared = getattr(part, "traits", None) if _declares_traits(type(part)) else None
        if declared is not None:
            traits |= declared
        elif not (type(part).__module__.startswith("torch.nn.") and type(part).__name__ in CONTAINERS_AND_PRIMITIVES):
            traits.add(f"module {type(part).__name__}")
    return frozenset(traits)


def _declares_traits(cls: type) -> bool:
    """Whether the traits were declared by the class that wrote `forward`, or by a subclass of it."""
    for base in cls.__mro__:
        if "traits" in vars(base):
            return True
        if "forward" in vars(base):
            return False
    return False


def why_unknown(module: nn.Module, known: Set[str]) -> str | None:
    """Return the reason to refuse a module that has traits outside of `known`, or None if there is none."""
    unknown = sorted(traits_of(module) - known)
    return f"not implemented here: {', '.join(unknown)}" if unknown else None
