"""Write a text with llama.cpp for each GGUF file and prompt in a JSON list, in a process of its own."""

from __future__ import annotations

import json
import sys

import xllamacpp


def write(path: str, prompt: str, count: int) -> str:
    """Return a greedy text, computed with keys and values in float32."""
    options = xllamacpp.CommonParams()
    options.model.path = path
    options.n_ctx, options.warmup, options.cpuparams.n_threads, options.verbosity = 64, False, 1, -1
    options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    answer = xllamacpp.Server(options).handle_completions({"prompt": prompt, "max_tokens": count, "temperature": 0})
    text: str = answer["choices"][0]["text"]
    return text


if __name__ == "__main__":
    print("RESULT", json.dumps([write(*job) for job in json.loads(sys.argv[1])]))
