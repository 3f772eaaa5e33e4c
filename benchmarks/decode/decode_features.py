"""Does decoding by random features cost the same at token 256 and at token 8,192, and from where on less than a cache?

A step of one attention layer and of a whole language model, by random features and exactly with a cache of keys and
values, at texts of growing length; on CUDA also recorded as CUDA graphs, where nobody waits for Python. Beside it the
bytes that each keeps of a text. Prints a table and, as the last line, everything as one JSON object. See
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.timing import Samples, command, hardware, keep, recorded, take_turns
from regard.attention.cache import KVCache
from regard.attention.linear.cache import FeatureCache
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.multihead import MultiHeadAttention
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.model_step import step
from regard.kernels import fuse
from regard.models.config import TransformerLMConfig
from regard.models.language_model import TransformerLM

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
FEATURES = 128
FLAT = 1.1  # so many times the time of the shortest text, at most, is flat
Run = Callable[..., object]


def set_length(cache: Any, length: int) -> None:
    """Let a cache hold a text of that length; its numbers do not matter."""
    if isinstance(cache, FeatureCache):
        cache.lengths.fill_(length)
    else:
        cache.length = length


def cache_bytes(cache: Any, length: int) -> int:
    """What is kept of each text of that length."""
    if isinstance(cache, KVCache):
        return (cache.k[:, :, :length].nbytes + cache.v[:, :, :length].nbytes) // len(cache)
    state = cache.state
    return sum(part.nbytes for part in (state.S, state.z, state.log_scale, state.log_decay, cache.lengths)) // len(
        cache
    )


def layer_runs(args: argparse.Namespace, length: int) -> tuple[dict[str, Run], dict[str, int]]:
    """A step of each attention layer behind a text of that length, and the bytes that it keeps."""
    torch.manual_seed(0)
    layers: dict[str, Any] = {
        "features": RandomFeatureAttention(
            dim=args.dim, heads=args.heads, features=FEATURES, learned_scale=True, position="rotary"
        ),
        "exact": MultiHeadAttention(dim=args.dim, heads=args.heads, position="rotary"),
    }
    x = torch.randn(args.batch, 1, args.dim, device=args.device, dtype=args.dtype)
    runs: dict[str, Run] = {}
    sizes = {}
    for name, layer in layers.items():
        fuse(layer.to(device=args.device, dtype=args.dtype).eval())
        cache = layer.new_cache(args.batch, length + 1)

        def take(length: int = length, layer: Any = layer, cache: Any = cache) -> None:
            set_length(cache, length)
            layer(x, causal=True, cache=cache)

        take()
        runs[name], sizes[name] = take, cache_bytes(cache, length)
    return with_graphs(runs, args.device), sizes


def model_runs(args: argparse.Namespace, length: int) -> dict[str, Run]:
    """A step of each language model; on a CPU also as regard decodes with it: by one call of C."""
    torch.manual_seed(0)
    size: dict[str, Any] = {"layers": args.layers, "dim": args.dim, "heads": args.heads, "hidden": 4 * args.dim}
    size |= {"vocabulary": 1000, "order": "pre", "position": "rotary"}
    configs = {
        "features": TransformerLMConfig(**size, attention="random-features", features=FEATURES),
        "exact": TransformerLMConfig(**size),
    }
    models: dict[str, Any] = {
        name: fuse(TransformerLM(config).to(device=args.device, dtype=args.dtype).eval())
        for name, config in configs.items()
    }
    if args.device == "cpu":
        for name, config in configs.items():
            models[f"{name} in C"] = pack_weights(TransformerLM(config).eval(), "packed")
    tokens = torch.full((args.batch,), 5, device=args.device)
    runs: dict[str, Run] = {}
    for name, model in models.items():
        state = model.start(args.batch, length + 1)

        def take(length: int = length, model: Any = model, state: Any = state) -> None:
            for cache in state.caches:
                set_length(cache, length)
            step(model, state, tokens)

        take()
        runs[name] = take
    return with_graphs(runs, args.device)


def with_graphs(runs: dict[str, Run], device: str) -> dict[str, Run]:
    """On CUDA each of them once more, recorded."""
    if device != "cuda":
        return runs
    return runs | {f"{name}, graph": recorded(run) for name, run in runs.items()}


@torch.inference_mode()
def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row of milliseconds for each length."""
    rows = []
    for length in args.lengths:
        runs, sizes = layer_runs(args, length)
        row: dict[str, Any] = {"length": length, "bytes": sizes}
        for part, contenders in (("layer", runs), ("model", model_runs(args, length))):
            samples: Samples = take_turns(contenders, device=args.device, rounds=args.rounds, budget=0.0)
            row[part] = {name: 1e3 * samples.median(name) for name in contenders}
            row[f"{part}_speedup"] = samples.ratio("exact", "features")
            if "exact in C" in contenders:
                row["model_speedup_in_c"] = samples.ratio("exact in C", "features in C")
            if args.device == "cuda":
                row[f"{part}_speedup_graph"] = samples.ratio("exact, graph", "features, graph")
        rows.append(row)
        show(row)
    return rows


@torch.inference_mode()
def growth(args: argparse.Namespace) -> dict[str, float]:
    """How many times as long a step by random features takes behind the longest text as behind the shortest.

    These two take turns alone, with one layer and one state: the keys of long texts, read in between, would push a
    layer's weights out of the CPU's cache, and two layers lie in memory as luck has it.
    """
    first, last = args.lengths[0], args.lengths[-1]
    models = model_runs(args, last)
    parts = {"layer": layer_runs(args, last)[0]["features"], "model": models["features"]}
    if args.device == "cpu":
        parts["model in C"] = models["features in C"]
    ratios = {}
    for part, run in parts.items():
        runs = {str(length): partial(run, length) for length in (first, last)}
        times = take_turns(runs, device=args.device, rounds=args.rounds, budget=0.1 * args.rounds)
        ratios[part] = times.ratio(str(last), str(first))
    return ratios


def show(row: dict[str, Any]) -> None:
    for part in ("layer", "model"):
        times = "  ".join(f"{name} {1e3 * time:8.1f} us" for name, time in row[part].items())
        print(f"{row['length']:6} {part:6}{times}  {row[f'{part}_speedup']:5.2f}x", flush=True)
    sizes = "  ".join(f"{name} {size:,}" for name, size in row["bytes"].items())
    print(f"{row['length']:6} bytes of a text in a layer: {sizes}")


def summary(rows: list[dict[str, Any]], growth: dict[str, float]) -> dict[str, Any]:
    """From where on a layer's step is ahead, whether it is flat, and what it keeps."""
    ahead = [row["length"] for row in rows if row["layer_speedup"] > 1]
    first, last = rows[0], rows[-1]
    return {
        "ahead_from": min(
            (length for length in ahead if all(n in ahead for n in lengths_from(rows, length))), default=None
        ),
        "growth": growth,
        "growth_beside_exact": {part: last[part]["features"] / first[part]["features"] for part in ("layer", "model")},
        "flat": max(growth.values()) <= FLAT,
        "bytes_flat": first["bytes"]["features"] == last["bytes"]["features"],
    }


def lengths_from(rows: list[dict[str, Any]], length: int) -> list[int]:
    return [row["length"] for row in rows if row["length"] >= length]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if cuda else "cpu")
    parser.add_argument("--batch", type=int, help="rows (default: 1 on a CPU, 64 on CUDA)")
    parser.add_argument("--rounds", type=int, help="(default: 20; quick: 2)")
    parser.add_argument("--threads", type=int, default=2, help="(default: 2)")
    parser.add_argument("--quick", action="store_true", help="a toy size on the CPU: does it run?")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    args = parser.parse_args()
    args.device = "cpu" if args.quick else args.device
    args.batch = args.batch or (64 if args.device == "cuda" else 1)
    args.rounds = args.rounds or (2 if args.quick else 20)
    args.dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    args.lengths = (8, 16) if args.quick else LENGTHS
    args.dim, args.heads, args.layers = (32, 2, 2) if args.quick else (512, 8, 6)
    return args


def main() -> int:
    args = arguments()
    report: dict[str, Any] = {
        "benchmark": "decode_features",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(args.device),
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__, "regard": regard.__version__},
        "batch": args.batch,
        "dim": args.dim,
        "heads": args.heads,
        "features": FEATURES,
    }
    torch.set_num_threads(args.threads)
    print(report["hardware"], report["versions"], sep="\n")
    print(
        f"\na step of {args.batch} rows behind texts of a length; width {args.dim}, {args.heads} heads, F = {FEATURES}"
    )
    report["rows"] = measure(args)
    report["summary"] = summary(report["rows"], growth(args))
    keep(report, args.out)
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
