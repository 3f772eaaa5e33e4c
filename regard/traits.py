"""Traits: short names for what a module computes, so that an engine can refuse what it does not implement.

A module with options has a property `traits`. An engine (a kernel, a decoder in C) declares the set of traits that
it implements and leaves every model with any other trait to the plain modules. A new option is therefore never
silently ignored: its trait is unknown to every engine until someone implements it there.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

CONTAINERS_AND_PRIMITIVES = frozenset({"Linear", "Dropout", "ModuleList", "Sequential", "Identity"})
COMPUTING_METHODS = ("forward", "decode", "project", "start")


def traits_of(module: nn.Module) -> frozenset[str]:
    """Return the traits of a module and of everything inside it."""
    return frozenset().union(*map(own_traits, module.modules()))


def own_traits(module: nn.Module) -> frozenset[str]:
    """Return the traits of a module without those of the modules inside it.

    A module that declares no traits contributes its class name, which no engine knows. So does a subclass that
    overrides what its parent computes and declares no traits of its own.
    """
    attributes = vars(module)
    kind: Any = type(module)
    if _is_primitive(kind) and "traits" not in attributes:
        return frozenset()
    if (hasattr(kind, "traits") and _declares_what_it_computes(kind)) or "traits" in attributes:
        declared: frozenset[str] = module.traits  # type: ignore[assignment]  # not a submodule
        return declared if "forward" not in attributes else declared | {f"module {kind.__name__}"}
    return frozenset({f"module {kind.__name__}"})


@cache
def _is_primitive(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.") and kind.__name__ in CONTAINERS_AND_PRIMITIVES


@cache
def _declares_what_it_computes(kind: type) -> bool:
    """Whether no subclass overrides a computing method below the class that declares the traits.

    The fused modules of regard.kernels override methods to compute the same function, so they inherit the traits.
    """
    for parent in kind.__mro__:
        if "traits" in vars(parent):
            return True
        overrides = any(method in vars(parent) for method in COMPUTING_METHODS)
        if overrides and not parent.__module__.startswith("regard.kernels."):
            return False
    return True


def why_unknown(module: nn.Module, known: Set[str]) -> str | None:
    """Return the reason to refuse a module that has traits outside of `known`, or None if there is none."""
    return why_not_known(traits_of(module), known)


def why_not_known(traits: Set[str], known: Set[str]) -> str | None:
    """Return the reason to refuse these traits if some are not in `known`, otherwise None."""
    unknown = sorted(traits - known)
    return f"not implemented here: {', '.join(unknown)}" if unknown else None
