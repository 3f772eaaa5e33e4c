"""Whether the GPU of this process runs regard's kernels, as a constant that torch.compile can rely on.

Import this module only where a tensor is on a GPU: the question initializes CUDA.
"""

from __future__ import annotations

from regard.machine import is_ampere

AMPERE = is_ampere()
