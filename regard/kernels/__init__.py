"""The engine: Triton and C kernels, and fused forms of the plain modules. Skip this folder on a first reading."""
