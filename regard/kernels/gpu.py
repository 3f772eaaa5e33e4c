"""Which GPUs regard's own kernels are for. Imported only where a tensor lies on one, for the question wakes it up."""

from __future__ import annotations

import torch

# NVIDIA's from Ampere on: Triton knows no earlier ones well, bfloat16 begins there, and products would take minutes to
# compile. Where there is no GPU at all, the kernels are interpreted, by tests.
AMPERE = not torch.cuda.is_available() or (torch.version.hip is None and torch.cuda.get_device_capability() >= (8, 0))
