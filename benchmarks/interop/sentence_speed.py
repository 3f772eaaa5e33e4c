"""Sentence vectors of one encoder: regard, sentence-transformers in float32, and onnxruntime in int8.

    python benchmarks/interop/sentence_speed.py all-MiniLM-L6-v2 --threads 2

The argument is a folder of sentence-transformers. 1,000 sentences, the lines of the documentation with at least five
words, are embedded in batches that each tool forms by itself; onnxruntime gets them sorted by length in batches of 32,
and the model as `regard export --to onnx` writes it, quantized by onnxruntime itself. The tools take turns in one
process; the medians of the rounds are compared. The vectors of sentence-transformers and regard must agree. Needs
sentence-transformers and onnxruntime. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard
from benchmarks.timing import command, hardware, keep
from regard.interop import export_model, import_model

ROOT = Path(__file__).parents[2]
SENTENCES, LEAST_WORDS, ROWS = 1000, 5, 32


def sentences() -> list[str]:
    """Return lines of the documentation, the same ones in every run."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    lines = [line.strip() for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if len(line.split()) >= LEAST_WORDS][:SENTENCES]


def onnx_runner(folder: Path, place: Path, tokenizer: Any, threads: int) -> Callable[[list[str]], np.ndarray]:
    """Return a function that embeds sentences with onnxruntime in int8."""
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic

    graphs = export_model(folder, place / "onnx", to="onnx")
    quantize_dynamic(graphs / "model.onnx", place / "int8.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(place / "int8.onnx", options)

    def embed(texts: list[str]) -> np.ndarray:
        ids = [tokenizer.token_ids(text) for text in texts]
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        vectors = np.zeros((len(ids), session.get_outputs()[1].shape[-1]), np.float32)
        for start in range(0, len(order), ROWS):
            rows = order[start : start + ROWS]
            batch = np.zeros((len(rows), len(ids[rows[0]])), np.int64)
            mask = np.zeros_like(batch)
            for number, row in enumerate(rows):
                batch[number, : len(ids[row])], mask[number, : len(ids[row])] = ids[row], 1
            vectors[rows] = session.run(["sentence_embedding"], {"input_ids": batch, "attention_mask": mask})[0]
        return vectors

    return embed


def measure(source: Path, *, threads: int, rounds: int) -> dict[str, Any]:
    """Return the seconds of each tool, and how far their vectors are apart."""
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    texts = sentences()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folder = import_model(source, place / "model")
        theirs = SentenceTransformer(str(source), device="cpu", local_files_only=True)
        ours = {dtype: regard.load(folder, device="cpu", dtype=dtype) for dtype in ("float32", "int8")}
        tools: dict[str, Callable[[list[str]], Any]] = {
            "sentence-transformers float32": lambda texts: theirs.encode(texts, show_progress_bar=False),
            "regard float32": ours["float32"].embed,
            "regard int8": ours["int8"].embed,
            "onnxruntime int8": onnx_runner(folder, place, ours["float32"], threads),
        }
        vectors = {tool: torch.as_tensor(np.asarray(embed(texts))) for tool, embed in tools.items()}  # and warm up
        seconds: dict[str, list[float]] = {tool: [] for tool in tools}
        cpu: dict[str, list[float]] = {tool: [] for tool in tools}
        for _ in range(rounds):
            for tool, embed in tools.items():
                start, cpu_start = time.perf_counter(), time.process_time()
                embed(texts)
                seconds[tool].append(time.perf_counter() - start)
                cpu[tool].append(time.process_time() - cpu_start)
    expected = vectors["sentence-transformers float32"]
    medians = {tool: statistics.median(values) for tool, values in seconds.items()}
    return {
        "sentences": len(texts),
        "threads": threads,
        "seconds": {tool: round(value, 3) for tool, value in medians.items()},
        "CPU seconds": {tool: round(statistics.median(values), 3) for tool, values in cpu.items()},
        "all seconds": {tool: [round(value, 3) for value in values] for tool, values in seconds.items()},
        "largest difference": {tool: float((each - expected).abs().max()) for tool, each in vectors.items()},
        "least cosine": {tool: float((each * expected).sum(1).min()) for tool, each in vectors.items()},
        "speedup of regard": round(medians["sentence-transformers float32"] / medians["regard float32"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = measure(options.source, threads=options.threads, rounds=options.rounds)
    report = {"date": date.today().isoformat(), "command": command(), "hardware": hardware("cpu"), "result": result}
    keep(report, options.out)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
