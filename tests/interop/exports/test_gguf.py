"""Exported GGUF files, opened by llama.cpp and by its Python package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from random_models import SIZES, VOCABULARY, random_model

import regard
from regard.api.model_names import SHIPPED
from regard.errors import UsageError
from regard.interop import export_model, import_model
from regard.models.config import TransformerLMConfig
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.subwords import train_subwords

LLAMA = {"norm": "rms", "order": "pre", "position": "rotary", "activation": "swiglu", "bias": False}
OPTIONS: dict[str, dict[str, Any]] = {
    "llama": {**LLAMA, "kv_heads": 2, "rope_base": 300.0, "norm_eps": 1e-3},
    "qwen2": {**LLAMA, "qkv_bias": True, "scale_embedding": False, "rope_layout": "interleaved"},
    "qwen3": {**LLAMA, "qk_norm": True, "norm_eps": 1e-5, "d_k": 6, "d_v": 6, "tie_output": False},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_the_way_there_and_back(tmp_path: Path, options: str, storage: str) -> None:
    """llama.cpp's package reads names, types and numbers; an import gives the same model."""
    model = random_model(tmp_path / "ours", TransformerLMConfig(**SIZES, vocabulary=VOCABULARY, **OPTIONS[options]))
    out = export_model(tmp_path / "ours", tmp_path / "model.gguf", to="gguf", storage=storage)
    reader = gguf.GGUFReader(out)
    assert reader.get_field("general.architecture").contents() == options
    expected = {tensor.value for tensor in gguf.MODEL_TENSORS[getattr(gguf.MODEL_ARCH, options.upper())]}
    known = {gguf.TENSOR_NAMES[gguf.MODEL_TENSOR(number)].replace("{bid}", "0") for number in expected}
    names = {tensor.name.rpartition(".")[0].replace("blk.1", "blk.0") for tensor in reader.tensors}
    assert names <= known
    back = regard.load_model(import_model(out, tmp_path / "back"))
    tokens = torch.randint(0, VOCABULARY, (2, 20), generator=torch.Generator().manual_seed(1))
    if storage == "bfloat16":
        model = model.bfloat16().float() if model.config.tie_output and not model.config.scale_embedding else model
    with torch.no_grad():
        tolerance = 1e-5 if storage == "float32" else 0.1
        torch.testing.assert_close(back(tokens), model(tokens), atol=tolerance, rtol=tolerance)


def test_q8_0(tmp_path: Path) -> None:
    """Matrices are stored in blocks of 32 numbers, as llama.cpp's package quantizes them."""
    sizes = {**SIZES, "dim": 32, "hidden": 64}
    model = random_model(
        tmp_path / "ours", TransformerLMConfig(**sizes, vocabulary=VOCABULARY, **LLAMA, scale_embedding=False)
    )
    out = export_model(tmp_path / "ours", tmp_path / "model.gguf", to="gguf", storage="int8")
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(out).tensors}
    weight = model.state_dict()["decoder.blocks.0.feed_forward.down.weight"].numpy()
    theirs = gguf.quantize(weight, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(stored["blk.0.ffn_down.weight"].data, theirs)
    assert stored["blk.0.attn_norm.weight"].tensor_type == gguf.GGMLQuantizationType.F32


def test_llama_cpp_writes_the_same(tmp_path: Path) -> None:
    """With merged bytes, characters, and a unigram model; the texts have blanks, line breaks and letters."""
    lines = [line.strip() for line in (SHIPPED.parents[1] / "LICENSE").read_text().splitlines() if line.strip()]
    tokenizers = {
        "characters": train_characters(lines),
        "unigram": train_subwords(lines, size=700, kind="unigram", lossless=False),
    }
    jobs, expected = [], []
    for name, options in (("llama", {}), ("characters", {}), ("unigram", {"kv_heads": 2})):
        tokenizer = tokenizers.get(name)
        vocabulary = tokenizer.size if tokenizer else VOCABULARY - 3
        folder, config = tmp_path / name, TransformerLMConfig(**SIZES, vocabulary=vocabulary, **LLAMA, **options)
        if tokenizer is None:
            random_model(folder, config)
        else:
            torch.manual_seed(5)
            model = regard.make_model(config)
            for parameter in model.parameters():
                parameter.data.add_(torch.randn_like(parameter) * 0.3)
            regard.save_model(model, folder, tokenizer=tokenizer)
        out = export_model(folder, tmp_path / f"{name}.gguf", to="gguf")
        prompt = "The work of the License"
        jobs.append([str(out), prompt, 10])
        writer = regard.load(folder, device="cpu", dtype="float32")
        expected.append(writer.write(prompt, search=regard.Greedy(), max_tokens=10))
    script = Path(__file__).with_name("run_llama_cpp.py")
    command = [sys.executable, str(script), json.dumps(jobs)]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, timeout=240)
    assert result.returncode == 0, result.stderr[-2000:]
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("RESULT"))
    assert json.loads(line.removeprefix("RESULT")) == expected


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Llama, Qwen2 and Qwen3 only.*GPTNeoX.*--to hf"):
        export_model(SHIPPED / "shakespeare", tmp_path / "a.gguf", to="gguf")
    with pytest.raises(UsageError, match="no model of the kind 'transformer'"):
        export_model(SHIPPED / "fr-en", tmp_path / "a.gguf", to="gguf")
    scaled = {"rope_scaling": "llama3", "rope_factor": 8.0, "rope_trained_length": 8192}
    random_model(tmp_path / "ours", TransformerLMConfig(**SIZES, vocabulary=VOCABULARY, **LLAMA, **scaled))
    with pytest.raises(UsageError, match="rope_scaling = 'llama3'"):
        export_model(tmp_path / "ours", tmp_path / "a.gguf", to="gguf")
    assert not (tmp_path / "a.gguf").exists()


def test_word_vectors(tmp_path: Path) -> None:
    """The text format of word2vec, without the special tokens; other models are refused."""
    vectors = tmp_path / "in.txt"
    vectors.write_text("2 3\nking 0.5 1 -2\nqueen 0.25 0 1\n")
    regard.WordVectors.from_file(vectors).save(tmp_path / "words")
    out = export_model(tmp_path / "words", tmp_path / "out.txt", to="words")
    first, *lines = out.read_text().splitlines()
    assert first == "2 3"
    assert [(line.split()[0], [float(n) for n in line.split()[1:]]) for line in lines] == [
        ("king", [0.5, 1, -2]),
        ("queen", [0.25, 0, 1]),
    ]
    with pytest.raises(UsageError, match="has no word vectors"):
        export_model(SHIPPED / "fr-en", tmp_path / "other.txt", to="words")
