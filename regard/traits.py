"""Traits: short names for what a module computes, so that a backend can refuse what it does not implement.

A module with options has a property `traits`. A backend (a kernel, a decoder in C) declares the set of traits that
it implements and leaves every model with any other trait to the plain modules. A new option is therefore never
silently ignored: its trait is unknown to every backend until someone implements it there.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from typing import Any

import torch
from torch import nn

CONTAINERS_AND_PRIMITIVES = frozenset({"Linear", "Dropout", "ModuleList", "Sequential", "Identity"})
# What a subclass may define without declaring traits, because it does not change what the module computes.
HARMLESS = frozenset({"__init__", "__repr__", "extra_repr", "__dict__", "__weakref__", "__annotate_func__"})


def traits_of(module: nn.Module) -> frozenset[str]:
    """Return the traits of a module and of everything inside it."""
    return frozenset().union(*map(own_traits, module.modules()))


def own_traits(module: nn.Module) -> frozenset[str]:
    """Return the traits of a module without those of the modules inside it.

    A module that declares no traits contributes its class name, which no backend knows. So does a subclass that defines
    methods and declares no traits, and, outside of torch.compile, a module with a method replaced on the instance:
    `regard.kernels.fuse` and the trainer look for such modules before they compile.
    """
    attributes = vars(module)
    kind: Any = type(module)
    if "traits" in attributes or _traceable(_declares_traits)(kind):
        declared: frozenset[str] = module.traits  # type: ignore[assignment]  # not a submodule
    elif _traceable(_is_primitive)(kind):
        declared = frozenset()
    else:
        return frozenset({f"module {kind.__name__}"})
    if torch.compiler.is_compiling():  # torch 2.11 cannot trace the comparison below, so compiled code goes without it
        return declared
    return declared if _method_names(kind).isdisjoint(attributes) else declared | {f"module {kind.__name__}"}


def replaced_methods(module: nn.Module) -> list[str]:
    """Return the names of the methods that were replaced on an instance; compiled ones still compute the same."""
    kind, attributes = type(module), vars(module)
    names = sorted(_method_names(kind).intersection(attributes))  # type: ignore[arg-type]  # a class is hashable
    return [name for name in names if _before_compiling(attributes[name]) is not getattr(kind, name)]


def _before_compiling(method: Any) -> Any:
    """Return the function that torch.compile was given, of a method without its instance."""
    method = getattr(method, "_torchdynamo_orig_callable", method)
    return getattr(method, "__func__", method)


def _traceable(cached: Any) -> Any:
    """Return a cached function, inside of torch.compile without its cache: the compiler warns about caches."""
    return cached.__wrapped__ if torch.compiler.is_compiling() else cached


@cache
def _is_primitive(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.") and kind.__name__ in CONTAINERS_AND_PRIMITIVES


@cache
def _method_names(kind: type) -> frozenset[str]:
    """Return the names that must not be replaced on an instance."""
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name, None)))


@cache
def _declares_traits(kind: type) -> bool:
    """Whether a class declares traits, or inherits them and adds nothing that could change what is computed."""
    declaring = next((parent for parent in kind.__mro__ if "traits" in vars(parent)), None)
    if declaring is None:
        return False
    return not any(_adds_methods(parent) for parent in kind.__mro__ if parent not in declaring.__mro__)


def _adds_methods(kind: type) -> bool:
    """Whether a class defines more than data and the harmless methods: a method, a property, any other descriptor.

    The classes that torch.distributed puts around a sharded module compute what the module computes.
    """
    if kind.__module__.startswith("torch.distributed."):
        return False
    return any(
        callable(value) or hasattr(value, "__get__") for name, value in vars(kind).items() if name not in HARMLESS
    )


def why_unknown(module: nn.Module, known: Set[str]) -> str | None:
    """Return the reason to refuse a module that has traits outside of `known`, or None if there is none."""
    return why_not_known(traits_of(module), known)


def why_not_known(traits: Set[str], known: Set[str]) -> str | None:
    """Return the reason to refuse these traits if some are not in `known`, otherwise None."""
    unknown = sorted(traits - known)
    return f"not implemented here: {', '.join(unknown)}" if unknown else None
