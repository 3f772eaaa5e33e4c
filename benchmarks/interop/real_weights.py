"""Published models after an import: the same outputs and the same greedy texts as with transformers.

    python benchmarks/interop/real_weights.py SmolLM2-135M-Instruct all-MiniLM-L6-v2

Each argument is a folder in the format of Hugging Face. Every model is imported into a temporary folder and compared
with transformers in float32: its tokens and outputs on the texts of `regard import --check`; of a language model also
greedy texts, and the perplexity of a text with the weights in float32 and in int8. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.timing import command, hardware, keep
from regard.interop import import_model, read
from regard.interop.comparison import TEXTS, compare
from regard.models.config import TransformerLMConfig

NEW_TOKENS = 32
TEXT = Path(__file__).parents[2] / "LICENSE"  # English that every checkout has


def measure(source: Path, *, new_tokens: int = NEW_TOKENS) -> dict[str, Any]:
    """Return what a comparison of one model found."""
    imported = read(source)
    result: dict[str, Any] = {"family": imported.family, "largest difference": compare(imported)}
    if not isinstance(imported.config, TransformerLMConfig):
        return result
    with tempfile.TemporaryDirectory() as temporary:
        folder = import_model(source, Path(temporary) / "model")
        result["greedy texts"] = len(TEXTS)
        result["equal greedy texts"] = equal_texts(source, folder, new_tokens)
        text = TEXT.read_text(encoding="utf-8")[:4000]
        for dtype in ("float32", "int8"):
            writer = regard.load(folder, device="cpu", dtype=dtype)
            result[f"perplexity {dtype}"] = round(writer.perplexity(text).perplexity, 3)
    return result


def equal_texts(source: Path, folder: Path, new_tokens: int) -> int:
    """Return for how many prompts both write the same."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    writer = regard.load(folder, device="cpu")
    equal = 0
    for prompt in TEXTS:
        ids = tokenizer(prompt, return_tensors="pt")
        options = {"max_new_tokens": new_tokens, "do_sample": False, "repetition_penalty": 1.0}
        written = model.generate(**ids, **options)[0, ids["input_ids"].shape[1] :]
        expected = tokenizer.decode(written, skip_special_tokens=True)
        equal += writer.write(prompt, search=regard.Greedy(), max_tokens=new_tokens) == expected
    return equal


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS, help="of each greedy text")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    models = {}
    for source in options.sources:
        models[source.name] = measure(source, new_tokens=options.tokens)
        print(source.name, *(f"{name}: {value}" for name, value in models[source.name].items()), sep="\n  ")
    report = {"date": date.today().isoformat(), "command": command(), "hardware": hardware("cpu"), "models": models}
    keep(report, options.out)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
