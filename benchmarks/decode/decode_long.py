"""Does a long text slow a language model down by more than its growing cache? Milliseconds a token over 10,000 tokens.

A Transformer language model of random weights writes one text, token by token. A step reads all weights, which is the
same each time, and the keys and values so far, which are more each time. What a token near the end takes longer than
one near the beginning is compared with the time to read that much more of the cache at the speed that the machine was
measured to read at. Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import torch

import regard
from benchmarks.timing import command, hardware, keep
from regard.decoding.benchmark import read_speed
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.engine import stream_tokens
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens
from regard.models.config import TransformerLMConfig
from regard.models.language_model import TransformerLM

PARTS = 10  # of the text, whose medians are shown


def make_model(*, quick: bool) -> TransformerLM:
    torch.manual_seed(0)
    size = (
        {"layers": 2, "dim": 32, "heads": 2, "hidden": 64}
        if quick
        else {"layers": 6, "dim": 384, "heads": 6, "hidden": 1536}
    )
    return TransformerLM(TransformerLMConfig(vocabulary=1000, order="pre", position="rotary", **size)).eval()


def seconds_a_token(model: TransformerLM, tokens: int) -> list[float]:
    """Of each token of one text."""
    seconds, before = [], time.perf_counter()
    for _ in stream_tokens(model, [5], search=Greedy(rules=(MinTokens(tokens),)), max_tokens=tokens):
        now = time.perf_counter()
        seconds.append(now - before)
        before = now
    return seconds


def measure(model: TransformerLM, tokens: int) -> dict[str, object]:
    """Medians of the parts of the text, and what the cache's growth explains of their growth."""
    seconds = seconds_a_token(model, tokens)
    size = tokens // PARTS
    parts = [median(seconds[part * size : (part + 1) * size]) for part in range(PARTS)]
    config = model.config
    more = 2 * config.layers * config.dim * 4 * (tokens - size)  # bytes of keys and values between the two
    device = next(model.parameters()).device
    reading = more / read_speed(max(more, 2**24), device)
    return {
        "milliseconds": [1e3 * part for part in parts],
        "growth": 1e3 * (parts[-1] - parts[0]),
        "reading": 1e3 * reading,
        "growth_over_reading": (parts[-1] - parts[0]) / reading,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, help="of the text (default: 10000; quick: 50)")
    parser.add_argument("--threads", type=int, default=2, help="(default: 2)")
    parser.add_argument("--quick", action="store_true", help="a toy size: does it run?")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    tokens = args.tokens or (50 if args.quick else 10_000)
    device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
    report = {
        "benchmark": "decode_long",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device),
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__, "regard": regard.__version__},
        "tokens": tokens,
    }
    torch.set_num_threads(args.threads)
    model = make_model(quick=args.quick).to(device)
    forms = {"modules": model}
    if device == "cpu":
        forms |= {"packed": pack_weights(deepcopy(model), "packed"), "int8": pack_weights(deepcopy(model), "int8")}
    print(report["hardware"], report["versions"], sep="\n")
    print(f"\nmilliseconds a token, in {PARTS} parts of {tokens:,} tokens; growth, and what reading the cache explains")
    results = {}
    for name, form in forms.items():
        results[name] = measured = measure(form, tokens)
        parts = " ".join(f"{part:7.3f}" for part in measured["milliseconds"])
        print(f"{name:10}{parts}   {measured['growth']:.3f} of which {measured['reading']:.3f}", flush=True)
    report["forms"] = results
    keep(report, args.out)
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
