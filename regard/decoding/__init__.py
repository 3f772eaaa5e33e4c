"""From a model to text: searches, and the engine that runs them on any model and device.

A module imports only from modules above it in this list:

    requests         the inputs of a call: checked, numbered, sorted into batches
    searches/        greedy search, sampling, beam search, minimum Bayes risk; and the rules that limit them
    decoder_layout   what the fast decoders ask about a model
    model_snapshot   notices quickly that a model has changed
    cpu/, gpu/       the fast decoders: C and packed weights on a CPU, kernels and CUDA graphs on a GPU
    model_step       encode, prefill, step: what a search asks of a model, with the fastest decoder that can do it
    running_batch    a batch that inputs enter and leave while others are being decoded
    ensemble         several models that decode as one (searches/speculative.py, which runs models itself, uses it)
    module_decoding  decode with modules: in C, by CUDA graphs, or step by step
    engine           generate_tokens and stream_tokens: run a search on all inputs
    forced           scores and attention of a given text
    ctc              the texts of labels that an encoder gives to its vectors, without a decoder
    benchmark        how fast a model decodes on this machine
"""
