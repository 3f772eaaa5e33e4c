"""Exported ONNX graphs compute in onnxruntime what the models compute, at other sizes than those of the export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from random_models import VOCABULARY, random_model

import regard
from regard.api.model_names import SHIPPED
from regard.decoding.engine import generate_tokens
from regard.errors import UsageError
from regard.interop import export_model
from regard.models.config import EncoderConfig, TransformerConfig, TransformerLMConfig

SIZES: dict[str, Any] = {"layers": 1, "dim": 16, "heads": 4, "hidden": 24}


class Graphs:
    """The graphs of a folder, and a greedy loop over them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, json.loads((folder / "config.json").read_text())
        self.sessions = {path.stem: onnxruntime.InferenceSession(path) for path in folder.glob("*.onnx")}

    def run(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = self.sessions[name]
        named = {each.name: inputs[each.name] for each in session.get_inputs()}
        return dict(zip((each.name for each in session.get_outputs()), session.run(None, named), strict=True))

    def greedy(self, source: list[int], start: list[int], count: int) -> list[int]:
        """Return the tokens that follow the start, up to an end token."""
        ids = np.array([source])
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "encoder_attention_mask": np.ones_like(ids)}
        if "encoder_model" in self.sessions:
            inputs["encoder_hidden_states"] = self.run("encoder_model", inputs)["last_hidden_state"]
        tokens, name = list(start), "decoder_model"
        inputs["input_ids"] = np.array([tokens])
        while len(tokens) < len(start) + count:
            outputs = self.run(name, inputs)
            logits = outputs.pop("logits")[0, -1]
            logits[self.config["bad_token_ids"]] = -np.inf
            tokens.append(int(logits.argmax()))
            if tokens[-1] in self.config["eos_token_id"]:
                break
            inputs |= {key.replace("present", "past_key_values"): value for key, value in outputs.items()}
            inputs["input_ids"], name = np.array([tokens[-1:]]), "decoder_with_past_model"
        return tokens[len(start) :]


def test_a_translator(tmp_path: Path) -> None:
    """Rotary positions, shared keys, RMSNorm; then two rows of other lengths with padding."""
    llama = {"norm": "rms", "order": "pre", "position": "rotary", "activation": "swiglu", "bias": False, "kv_heads": 2}
    config = TransformerConfig(
        **{**SIZES, **llama}, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, output_bias=True
    )
    model = random_model(tmp_path / "ours", config)
    graphs = Graphs(export_model(tmp_path / "ours", tmp_path / "onnx", to="onnx"))
    for source in ([7, 30, 41, 8, 99, 120, 3], [60, 3]):
        (best,) = generate_tokens(model, [source], search=regard.Greedy(), max_tokens=9)[0]
        assert graphs.greedy(source, [2], 9) == best.tokens
    ids = torch.tensor([[9, 8, 7, 6, 5, 3], [70, 3, 0, 0, 0, 0]])
    inputs = {"input_ids": ids.numpy(), "attention_mask": (ids != 0).long().numpy()}
    states = graphs.run("encoder_model", inputs)["last_hidden_state"]
    target = torch.tensor([[2, 44, 90, 6, 7], [2, 5, 4, 8, 9]])
    decoded = {"input_ids": target.numpy(), "encoder_hidden_states": states}
    logits = graphs.run("decoder_model", {**decoded, "encoder_attention_mask": inputs["attention_mask"]})["logits"]
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(logits), model(ids, target), atol=2e-5, rtol=0)


def test_a_language_model(tmp_path: Path) -> None:
    config = TransformerLMConfig(**SIZES, vocabulary=VOCABULARY, position="learned", order="pre", activation="gelu")
    model = random_model(tmp_path / "ours", config)
    graphs = Graphs(export_model(tmp_path / "ours", tmp_path / "onnx", to="onnx"))
    (best,) = generate_tokens(model, None, search=regard.Greedy(), prefixes=[[2, 17, 100]], max_tokens=9)[0]
    assert graphs.greedy([], [2, 17, 100], 9) == best.tokens
    single = graphs.run("decoder_model", {"input_ids": np.array([[2]])})["logits"]
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(single), model(torch.tensor([[2]])), atol=2e-5, rtol=0)


def test_an_encoder(tmp_path: Path) -> None:
    config = EncoderConfig(**SIZES, vocabulary=VOCABULARY, pooling="mean")
    model = random_model(tmp_path / "ours", config)
    graphs = Graphs(export_model(tmp_path / "ours", tmp_path / "onnx", to="onnx"))
    ids = torch.tensor([[5, 100, 7, 3, 0], [8, 3, 0, 0, 0]])
    outputs = graphs.run("model", {"input_ids": ids.numpy(), "attention_mask": (ids != 0).long().numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(outputs["sentence_embedding"]), model(ids), atol=2e-5, rtol=0)


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no ONNX graphs of the kind 'rnn-lm'"):
        export_model(SHIPPED / "shakespeare-lstm", tmp_path / "onnx", to="onnx")
    random_model(tmp_path / "ours", TransformerLMConfig(**SIZES, vocabulary=VOCABULARY, window=3))
    with pytest.raises(UsageError, match="of a window"):
        export_model(tmp_path / "ours", tmp_path / "onnx", to="onnx")
