"""The model folders of format 1: what the models compute, and what saving them again writes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from comparison import checksum, exact, tensor_checksum

import regard

FOLDERS = Path(__file__).parents[1] / "data" / "format-1"
STORAGES = ("float32", "bfloat16", "int8")
FIELDS = ("kind", "model", "storage", "special_tokens")


def folder_facts() -> dict[str, Any]:
    return {path.name: facts_of(path) for path in sorted(FOLDERS.iterdir())}


def facts_of(path: Path) -> dict[str, Any]:
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    fixed = json.loads((path / "outputs.json").read_text(encoding="utf-8"))
    source, target = torch.tensor(fixed["source"]), torch.tensor(fixed["target"])
    model = regard.load_model(path)
    inputs = (source, target) if "target_vocabulary" in config["model"] else (source,)
    outputs = model(*inputs)
    weights = torch.arange(outputs.numel(), dtype=torch.float32).cos().view_as(outputs)
    (outputs * weights).sum().backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    facts: dict[str, Any] = {
        "class": type(model).__name__,
        "weights": tensor_checksum(model.state_dict()),
        "shape": list(outputs.shape),
        "outputs": tensor_checksum({"outputs": outputs}),
        "first outputs": [exact(number) for number in outputs.flatten()[:12].tolist()],
        "gradients": tensor_checksum(gradients),
        "gradient norm": exact(torch.stack([gradient.norm() for gradient in gradients.values()]).norm()),
    }
    stored = (path / "model.safetensors").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        for storage in STORAGES:
            again = regard.save_model(model, Path(folder) / storage, storage=storage)
            content = (again / "model.safetensors").read_bytes()
            written = json.loads((again / "config.json").read_text(encoding="utf-8"))
            facts[f"saved as {storage}"] = {
                "model.safetensors": checksum(content),
                "bytes": len(content),
                "config.json": {name: written[name] for name in FIELDS},
                "other fields": sorted(set(written) - set(FIELDS)),
                "files": sorted(file.name for file in again.iterdir()),
                "manifest.json": json.loads((again / "manifest.json").read_text(encoding="utf-8"))["format"],
            }
            if storage == config["storage"]:
                facts["saving gives the same file"] = content == stored
    return facts
