"""Decoding on a CPU: packed and int8 weights, and Transformers in C.

c_matrix        matrices in the layout that the C code reads, and their product
packed_weight   weights that are int8 or packed, used like plain ones
packed_copy     the packed copy with which a plain model decodes
c_structs       blocks and stacks as C reads them
c_decoder       a whole decoding step by one call of C
c_network       a whole translation model as C reads it
c_batch         a batch of requests as C reads it, and its results
c_search        greedy and beam search wholly in C
module_search   which modules C can search with, and whether they have changed
quantize        give a model packed weights, the C decoder and the C search

Without torch:

network_settings     the settings that C implements, from config.json
transformer_arrays   the weights of a folder in the structure of the modules
folder_model         a folder that C decodes with; the modules are made when something needs them
"""
