"""Decoding on a CPU: packed and int8 weights, and the step of a Transformer's decoder in C.

c_matrix        matrices in the layout that the C code reads, and their product
packed_weight   weights that are int8 or packed, used like plain ones
c_decoder       a whole decoding step by one call of C
quantize        give a model packed weights and the C decoder
"""
