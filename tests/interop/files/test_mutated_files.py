"""Damaged and hostile files of every format: an import either works or raises one of regard's errors, nothing else."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from random_models import SIZES, VOCABULARY, random_model
from small_models import make_original
from test_single_files import VOCABULARY as LLAMA2C_VOCABULARY, write_llama2c, write_nanogpt, write_tokens

from regard.api.model_names import SHIPPED
from regard.errors import RegardError
from regard.interop import export_model, read
from regard.models.config import TransformerLMConfig

ODD_VALUES = [None, True, -1, 0, 1, 3, 2**31, 1.5, 1e30, "", "x", "float32", [], [1], {}, {"a": 1}, [[0]]]
BYTES_OF_A_HEADER = 3000  # where damage matters most


def make_gguf(folder: Path) -> Path:
    llama = {"norm": "rms", "order": "pre", "position": "rotary", "activation": "swiglu", "bias": False}
    random_model(folder / "ours", TransformerLMConfig(**{**SIZES, "layers": 1}, vocabulary=VOCABULARY, **llama))
    return export_model(folder / "ours", folder / "model.gguf", to="gguf")


def make_llama2c(folder: Path) -> Path:
    margin = LLAMA2C_VOCABULARY - 270
    model = make_original("llama", folder / "hf", vocabulary_margin=margin, attention_bias=False).model
    write_llama2c(folder / "model.bin", model, version=1, tied=False)
    write_tokens(folder / "tokenizer.bin")
    shutil.rmtree(folder / "hf")
    return folder / "model.bin"


def make_nanogpt(folder: Path) -> Path:
    write_nanogpt(folder, bias=True)
    return folder / "ckpt.pt"


def make_ctranslate2(folder: Path) -> Path:
    return export_model(SHIPPED / "lecture", folder / "ct2", to="ct2", storage="int8")


def make_argos(folder: Path) -> Path:
    return export_model(SHIPPED / "lecture", folder / "model.argosmodel", to="argos")


def make_hub(folder: Path) -> Path:
    make_original("gpt2", folder / "hf")
    return folder / "hf"


def make_torch(folder: Path) -> Path:
    import torch
    from safetensors.torch import load_file

    make_original("qwen3", folder / "hf")
    torch.save(load_file(folder / "hf/model.safetensors"), folder / "hf/pytorch_model.bin")
    (folder / "hf/model.safetensors").unlink()
    return folder / "hf"


FORMATS: dict[str, Callable[[Path], Path]] = {
    "gguf": make_gguf,
    "llama2c": make_llama2c,
    "nanogpt": make_nanogpt,
    "ctranslate2": make_ctranslate2,
    "argos": make_argos,
    "hub": make_hub,
    "torch": make_torch,
}


def mutate_bytes(content: bytes, draws: random.Random) -> bytes:
    """Flip, cut, repeat or insert bytes, mostly in the header or at the end, where archives have their directory."""
    damaged = bytearray(content)
    for _ in range(draws.choice((1, 1, 2, 8))):
        size = len(damaged)
        start = draws.choice((0, 0, max(0, size - BYTES_OF_A_HEADER)))
        at = min(size - 1, start + draws.randrange(min(BYTES_OF_A_HEADER, size))) if size else 0
        kind = draws.randrange(5)
        if kind == 0 and size:
            damaged[at] ^= 1 << draws.randrange(8)
        elif kind == 1 and size:
            damaged[at : at + 4] = draws.randbytes(4)
        elif kind == 2:
            del damaged[at : at + draws.choice((1, 4, 8, size))]
        elif kind == 3:
            damaged[at:at] = draws.randbytes(draws.choice((1, 4, 8)))
        elif size:
            damaged[at : at + 8] = draws.choice((b"\xff" * 8, b"\0" * 8, (2**40).to_bytes(8, "little")))
    return bytes(damaged)


def mutate_json(content: bytes, draws: random.Random) -> bytes:
    """Replace, remove or add an entry somewhere in the tree."""
    root = json.loads(content)
    part: Any = root
    while True:
        keys = (
            list(part) if isinstance(part, dict) else list(range(min(len(part), 50))) if isinstance(part, list) else []
        )
        if not keys:
            return mutate_bytes(content, draws)
        key = draws.choice(keys)
        if isinstance(part[key], dict | list) and part[key] and draws.random() < 0.7:
            part = part[key]
            continue
        if draws.random() < 0.3:
            del part[key]
        else:
            part[key] = draws.choice(ODD_VALUES)
        if isinstance(part, dict) and draws.random() < 0.1:
            part[draws.choice(("new_key", ""))] = draws.choice(ODD_VALUES)
        return json.dumps(root).encode()


def mutate(source: Path, draws: random.Random) -> None:
    """Damage one file of a model, or remove it."""
    files = sorted(
        path for path in (source.rglob("*") if source.is_dir() else source.parent.iterdir()) if path.is_file()
    )
    path = draws.choice(files)
    if draws.random() < 0.02:
        path.unlink()
        return
    content = path.read_bytes()
    if path.suffix == ".json" and draws.random() < 0.8:
        path.write_bytes(mutate_json(content, draws))
    else:
        path.write_bytes(mutate_bytes(content, draws))


def check(folder: Path, format: str, count: int, seed: int) -> dict[str, int]:
    """Read mutated copies of a model, and return how many were read, and refused."""
    (folder / "original").mkdir()
    original = FORMATS[format](folder / "original")
    if (folder / "original/ours").is_dir():
        shutil.rmtree(folder / "original/ours")
    counts = {"read": 0, "refused": 0}
    for number in range(count):
        draws = random.Random(seed * 1_000_000 + number)
        shutil.copytree(folder / "original", folder / "copy")
        source = folder / "copy" / original.relative_to(folder / "original")
        mutate(source, draws)
        message = ""
        try:
            for _ in read(source).weights():
                pass
            counts["read"] += 1
        except RegardError as error:
            message = str(error)
            counts["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{format}, mutation {number}: {error!r}") from error
        assert len(message) < 2000, message
        shutil.rmtree(folder / "copy")
    return counts


@pytest.mark.parametrize("format", FORMATS)
def test_some_mutations(tmp_path: Path, format: str) -> None:
    counts = check(tmp_path, format, 40, seed=1)
    assert counts["refused"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_many_mutations(tmp_path: Path, format: str) -> None:
    """10,000 in all."""
    check(tmp_path, format, 1430, seed=2)
