"""Random-feature attention: exp(q.k) as a product of two vectors, so that keys can be summed up in linear time.

Rahimi & Recht 2007, Peng et al. 2021, Choromanski et al. 2021; F2, F3. Read the modules in this order: random_rows,
feature_maps, features, reference, state, chunked, mask_support, dispatch, cache, step, layer, mixed. variance has the
errors of the estimates as formulas. The kernels are in regard/kernels/linear (GPUs) and regard/kernels/native (CPUs),
with the same results.
"""
