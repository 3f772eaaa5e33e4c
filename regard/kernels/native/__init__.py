"""C sources for a CPU, and the code that compiles and loads them.

compiler      compiles a C file on first use; common.h and threads.h are for all of them
decoder/      decoding: a step of a Transformer's decoder (decoder.c), and whole translations (translate.h)
linear_step   the step of a layer of random features
word_vectors  training of word vectors
"""
