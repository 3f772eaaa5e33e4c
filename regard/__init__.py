"""The attention toolkit. This file is only a table of the public names; each is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import Any

from regard.version import __version__

_WHERE = {
    "positions": "regard.positions",
    "masks": "regard.attention.masks",
    "attend": "regard.attention.dispatch",
    "AdditiveScore": "regard.attention.scores",
    "BilinearScore": "regard.attention.scores",
    "ConcatScore": "regard.attention.scores",
    "DotScore": "regard.attention.scores",
    "ContentAttention": "regard.attention.forms",
    "KeyValueAttention": "regard.attention.forms",
    "MultiHeadAttention": "regard.attention.multihead",
    "KVCache": "regard.attention.cache",
    "StaticCache": "regard.attention.cache",
    "record": "regard.attention.recording",
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    module = importlib.import_module(_WHERE[name])
    value = module if module.__name__.rpartition(".")[2] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
