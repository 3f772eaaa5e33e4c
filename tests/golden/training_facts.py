"""Short trainings on the CPU: every recipe of recipes/, on the demo corpus."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from comparison import exact, tensor_checksum, with_exact_numbers
from safetensors.torch import load_file

import regard

RECIPES = Path(__file__).parent / "recipes"
COMMON = {"training.device": "cpu", "training.log_every": 1, "training.samples": 0, "training.validate_every": 8}
OF_PAIRS = {"decoding.sentences": 2, "decoding.max_tokens": 6}
SAME_EVERYWHERE = {"precision": "fp32", "label_smoothing": 0.0, "accumulate": 1, "save_every": 8}
STEP = ("loss", "gradient_norm", "lr", "padding")  # numbers of a training step that do not depend on the clock
SENTENCES = ("Le chat dort.", "The cat sleeps.", "Marie a vu la maison de son frère.")


def training_facts() -> dict[str, Any]:
    pairs = regard.demo_pairs("train", 5, seed=3)
    facts: dict[str, Any] = {"demo pairs": [[pair.source, pair.target, str(pair.alignment)] for pair in pairs]}
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(RECIPES.glob("*.toml")):
            facts[path.stem] = run_facts(path, Path(folder) / path.stem)
    return facts


def run_facts(path: Path, folder: Path) -> dict[str, Any]:
    """Train by a recipe, and read what the run wrote down."""
    text = path.read_text(encoding="utf-8")
    overrides = COMMON | (OF_PAIRS if "source_language" in text else {})
    # What a recipe leaves out would be chosen from the data and the machine.
    overrides |= {f"training.{key}": value for key, value in SAME_EVERYWHERE.items() if f"\n{key} =" not in text}
    regard.train(path, out=folder, overrides=overrides, quiet=True)
    facts: dict[str, Any] = {}
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        step = f"{record['kind']} step {record['step']}"
        if record["kind"] == "train":
            facts[step] = {key: exact(record[key]) for key in STEP if key in record} | {"tokens": record["tokens"]}
        else:
            facts[step] = {key: number for key, value in record.items() if (number := score(value)) is not None}
    facts["weights"] = tensor_checksum(load_file(folder / "model.safetensors"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    facts["kind"], facts["chosen head"] = config["kind"], with_exact_numbers(config.get("alignment"))
    if config["kind"] == "encoder":
        tokenizer = regard.SubwordTokenizer((folder / "tokenizer.model").read_bytes())
        vectors = regard.Embedder(regard.load_model(folder), tokenizer, info=config).embed(SENTENCES)
        facts["vectors"] = [[exact(number) for number in row[:4]] for row in vectors.tolist()]
    return facts


def score(value: Any) -> str | None:
    """A number of a validation; BLEU and chrF come with their signatures."""
    if isinstance(value, dict) and "value" in value:
        return exact(value["value"])
    return exact(value) if isinstance(value, float) else None
