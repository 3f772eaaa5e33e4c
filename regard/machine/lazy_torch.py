"""torch, imported when it is first used.

C translates without torch, whose import takes longer than everything else that `regard translate` does. The modules on
the way from a text to C therefore take torch from here:

    from regard.machine.lazy_torch import torch
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class LazyTorch:
    """Stands for the module torch; each of its names is looked up once."""

    def __getattr__(self, name: str) -> Any:
        import torch

        value = getattr(torch, name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import torch as torch
else:
    torch = LazyTorch()
