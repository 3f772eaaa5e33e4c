"""Which GPUs regard's own kernels are for: see `regard.machine.is_ampere`."""

from __future__ import annotations

from regard.machine import is_ampere

AMPERE = is_ampere()
