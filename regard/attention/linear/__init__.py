"""Attention in linear time by random features: exp(q.k) as a product of two vectors, so that keys can be summed up.

Rahimi & Recht 2007, Peng et al. 2021, Choromanski et al. 2021; F2, F3. To be read in this order: draws, maps,
features, reference, state, chunked, representable, dispatch, cache, step, step_native, layer, mixed; variance and
crossover say what it costs. For GPUs: mix_triton with phi_triton, grad_triton, sums_triton, launch_triton, op_triton,
step_triton, fused. For CPUs: step.h.
"""
