"""A language model from a GGUF file in regard and in llama.cpp: perplexity of each dtype, and tokens per second.

    python benchmarks/interop/language_models.py SmolLM2-135M-Instruct.Q4_1.gguf --texts input.txt LICENSE

regard imports the file and runs it in float32, int8 and int4; llama.cpp (package xllamacpp) runs the file itself. Each
stream is a prompt of 16 tokens and a greedy continuation; the tools take turns, and the medians of the rounds are
compared. Perplexities are those of the beginning of each text, in windows of 512 tokens. Targets: int8 within 1% of
float32, int4 at least as fast as llama.cpp with one stream and twice as fast with 8. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.timing import command, hardware, keep
from regard.api.writer import Writer
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.greedy import Greedy
from regard.interop import import_model

DTYPES = ("float32", "int8", "int4")
PROMPT = 16
BATCH_TOKENS = 2**20  # all streams in one batch
WINDOW = 512


def perplexity(writer: Writer, text: str, windows: int) -> float:
    """Return the perplexity of the first tokens of a text, in windows that know nothing of each other."""
    tokens = torch.tensor(writer.tokenizer.encode(text)[: windows * WINDOW])
    rows = tokens[: len(tokens) // WINDOW * WINDOW].view(-1, WINDOW)
    logps = []
    with torch.inference_mode():
        for row in rows.split(2):
            scores = writer.decoding_model(row)[:, :-1].log_softmax(-1)
            logps.append(scores.gather(-1, row[:, 1:, None]).flatten())
    return float(torch.cat(logps).mean().neg().exp())


def make_prompts(writer: Writer, text: str, streams: int) -> list[list[int]]:
    """Return prompts of one length from several places of a text."""
    tokens = writer.tokenizer.encode(text[: 400 * (streams + 1)])
    return [tokens[i * PROMPT : (i + 1) * PROMPT] for i in range(streams)]


def regard_runner(writer: Writer, prompts: Sequence[Sequence[int]], length: int) -> Callable[[], int]:
    def run() -> int:
        results = generate_tokens(
            writer.decoding_model,
            None,
            search=Greedy(),
            prefixes=prompts,
            max_tokens=length,
            batch_tokens=BATCH_TOKENS,
        )
        return sum(len(texts[0].tokens) for texts in results)

    return run


def llama_runner(file: Path, prompts: Sequence[Sequence[int]], length: int, threads: int) -> Callable[[], int]:
    """Return a function that continues the prompts with llama.cpp, one slot of its server for each."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_parallel = len(prompts)
    params.n_ctx = len(prompts) * 256
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.verbosity = -1
    server = xllamacpp.Server(params)
    request = {
        "prompt": [list(prompt) for prompt in prompts],
        "n_predict": length,
        "temperature": 0.0,
        "top_k": 1,
        "samplers": ["top_k"],
        "cache_prompt": False,
        "ignore_eos": True,
    }

    def run() -> int:
        answer = server.handle_completions(request)
        if len(answer["choices"]) != len(prompts):
            raise RuntimeError(f"llama.cpp answered {len(answer['choices'])} of {len(prompts)} prompts")
        return len(prompts) * length

    return run


def measure(file: Path, faces: dict[str, Writer], text: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return tokens per second of each tool, with each number of streams and threads."""
    cells = []
    for threads, streams in product(options.threads, options.streams):
        torch.set_num_threads(threads)
        prompts = make_prompts(faces["float32"], text, streams)
        runs = {f"regard {name}": regard_runner(face, prompts, options.length) for name, face in faces.items()}
        if not options.alone:
            runs["llama.cpp"] = llama_runner(file, prompts, options.length, threads)
        speeds: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(options.rounds + 1):
            for name, run in runs.items():
                start = time.perf_counter()
                tokens = run()
                if turn:  # the first round warms up
                    speeds[name].append(tokens / (time.perf_counter() - start))
        medians = {name: round(statistics.median(each), 1) for name, each in speeds.items()}
        cells.append({"threads": threads, "streams": streams, "tokens per second": medians, "all": speeds})
        print(f"threads {threads}  streams {streams:2}  ", *(f"{name} {value:,}" for name, value in medians.items()))
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--windows", type=int, default=16, help="of each text, for the perplexity; 0: none")
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without llama.cpp")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    texts = {path.name: path.read_text(encoding="utf-8") for path in options.texts}
    with tempfile.TemporaryDirectory() as temporary:
        folder = import_model(options.file, Path(temporary) / "model")
        faces: dict[str, Any] = {dtype: regard.load(folder, device="cpu", dtype=dtype) for dtype in DTYPES}
        perplexities = {
            name: {dtype: perplexity(face, text, options.windows) for dtype, face in faces.items()}
            for name, text in texts.items()
            if options.windows
        }
        for name, values in perplexities.items():
            changes = (f"{dtype} {value:.3f} ({value / values['float32'] - 1:+.2%})" for dtype, value in values.items())
            print(f"perplexity of {name}: ", *changes)
        cells = measure(options.file, faces, next(iter(texts.values())), options)
    report = {"date": date.today().isoformat(), "command": command(), "hardware": hardware("cpu")}
    report |= {"file": options.file.name, "perplexity": perplexities, "cells": cells}
    keep(report, options.out)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
