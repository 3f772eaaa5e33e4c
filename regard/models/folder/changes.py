"""Compare a model with the one that its config makes, so that a folder never loads as another model.

A model folder stores settings and weights. Whatever else a user changed in a model would be lost without a word: a
module of their own in place of another, a method replaced on an instance, another option, a hook.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn

from regard.models.folder.loading import WithoutInitialization
from regard.models.folder.weights_file import distinct_weights
from regard.models.presets import make_model
from regard.traits import replaced_methods

# Classes from these packages compute what the class computes that they are derived from.
WRAPPERS = ("regard.kernels.", "torch.distributed.")
# Attributes that have no effect on the outputs in eval mode, and the number of a draw, which a buffer stores.
NOT_COMPARED = frozenset({"training", "p", "inplace", "dropout", "backend", "returns_weights", "redraw_every", "draw"})
COMPARED = (bool, int, float, str, tuple, FunctionType, type(None))


def why_not_saved(model: nn.Module) -> str | None:
    """Return why a folder of this model would load as another one, or None if it would not."""
    with torch.device("meta"), WithoutInitialization():
        fresh = make_model(model.config)  # type: ignore[arg-type]  # the caller checks that there is one
    change = next(_changes(model, fresh), None)
    if change is None:
        return None
    return (
        f"{change}, so the folder would load as another model: register your own score or position scheme, or a kind "
        "of model with your own modules (docs/develop/extend.md), or save model.state_dict() yourself"
    )


def _changes(model: nn.Module, fresh: nn.Module) -> Iterator[str]:
    """Yield each change of a model, as the beginning of a sentence."""
    modules, expected = dict(model.named_modules()), dict(fresh.named_modules())
    for path, module in modules.items():
        name = path or "the model"
        if path not in expected:
            yield f"{name} ({type(module).__name__}) is no module of a model with this config"
            continue
        kind, plain = _computing_class(type(module)), type(expected[path])
        if not _same(kind, plain):
            yield f"{name} is a {kind.__name__}, and a model with this config has a {plain.__name__} there"
        for method in replaced_methods(module):
            yield f"{name} ({kind.__name__}) has a method {method} of its own"
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        if any(not str(getattr(hook, "__module__", "")).startswith(("regard.", "torch.")) for hook in hooks):
            yield f"{name} ({kind.__name__}) has a hook, which could change its output"
        for option, value in vars(expected[path]).items():
            if option.startswith("_") or option in NOT_COMPARED or not isinstance(value, COMPARED):
                continue
            actual = vars(module).get(option)
            if not _same(actual, value):
                yield f"{name} ({kind.__name__}) has {option}={_shown(actual)}, and its config means {_shown(value)}"
    for path, module in expected.items():
        if path not in modules:
            yield f"{path} ({type(module).__name__}) is missing or shared with another module"
    weights, expected_weights = distinct_weights(model), distinct_weights(fresh)
    for path in weights.keys() ^ expected_weights.keys():
        yield f"the weight {path} {'is not part of' if path in weights else 'is missing or shared in'} this model"
    for path, weight in weights.items():
        if path in expected_weights and weight.shape != expected_weights[path].shape:
            shape, wanted = tuple(weight.shape), tuple(expected_weights[path].shape)
            yield f"the weight {path} has shape {shape}, and its config means {wanted}"


def _computing_class(kind: type) -> type:
    """Return the class that defines what a module computes, without what makes it faster or shards it."""
    return next(parent for parent in kind.__mro__ if not parent.__module__.startswith(WRAPPERS))


def _same(a: Any, b: Any) -> bool:
    """Whether two values, functions or classes are the same; a definition that was run again is the same."""
    if not isinstance(b, FunctionType | type):
        return bool(a == b)
    name = getattr(a, "__module__", None), getattr(a, "__qualname__", None)
    return a is b or (name == (b.__module__, b.__qualname__) and "<" not in b.__qualname__)


def _shown(value: Any) -> str:
    return getattr(value, "__name__", None) or repr(value)
