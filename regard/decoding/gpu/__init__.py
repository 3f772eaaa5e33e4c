"""Decoding on a GPU, with kernels for the step and the search, replayed as CUDA graphs.

support           which models the kernels can decode
decoder           the step of a Transformer's decoder, by kernels, with fixed shapes
searches          greedy and beam search with fixed shapes: the GPU chooses, the host takes no part
cuda_graphs       capture work once and replay it; the captured graphs of each model
captured_search   whole batches: encode, step and choose, replayed until the texts are done
captured_step     single steps of one text, for searches that choose on the host
"""
