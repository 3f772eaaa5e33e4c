"""What all fused classes have in common."""

from __future__ import annotations

from torch import nn


class FusedClass(nn.Module):
    """Base of the classes that `fuse` gives to plain modules.

    A fused class declares the traits of its plain class, because it computes the same function.
    """

    @classmethod
    def why_not_fuse(cls, module: nn.Module) -> str | None:
        """Return the reason why a plain module must stay plain, or None. Fused modules ask about inputs themselves."""
        return None
