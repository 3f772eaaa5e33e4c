"""The presets: as many parameters as the papers' sizes come to, counted by hand.

p width   f inner width   V vocabulary   h hidden   e embedding
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard import make_model, preset
from regard.errors import UsageError
from regard.models.presets import PRESETS


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def encoder_block(p: int, f: int) -> int:
    """Four projections, two layers of the feed-forward net, two norms of a gain and a shift."""
    return 4 * linear(p, p) + linear(p, f) + linear(f, p) + 2 * 2 * p


def decoder_block(p: int, f: int) -> int:
    """The same, four more projections and a third norm for cross-attention."""
    return encoder_block(p, f) + 4 * linear(p, p) + 2 * p


def gates(count: int, inputs: int, h: int) -> int:
    """A recurrent layer: for each gate a matrix on the input, one on the state, and two biases."""
    return count * h * (inputs + h + 2)


def transformer(layers: int, p: int, f: int, tables: int) -> int:
    return tables + layers * (encoder_block(p, f) + decoder_block(p, f))


EXPECTED: dict[str, tuple[dict[str, Any], int]] = {
    # 37,000 shared byte pairs: one table, which is also the output layer (section 3.4).
    "transformer-base": (
        {"source_vocabulary": 37000, "target_vocabulary": 37000, "share_embeddings": True},
        transformer(6, 512, 2048, 37000 * 512),
    ),
    "transformer-big": (
        {"source_vocabulary": 37000, "target_vocabulary": 37000, "share_embeddings": True},
        transformer(6, 1024, 4096, 37000 * 1024),
    ),
    "transformer-tiny": (
        {"source_vocabulary": 9000, "target_vocabulary": 10000},
        transformer(4, 128, 256, 19000 * 128),
    ),
    "gpt2": (
        {"vocabulary": 50257},
        (50257 + 1024) * 768 + 12 * encoder_block(768, 3072) + 2 * 768,  # its blocks have no cross-attention
    ),
    "sutskever": (
        {"source_vocabulary": 160_000, "target_vocabulary": 80_000},
        240_000 * 1000 + 2 * 4 * gates(4, 1000, 1000) + linear(1000, 80_000),
    ),
    "bahdanau": (
        {"source_vocabulary": 30_000, "target_vocabulary": 30_000},
        60_000 * 620
        + 2 * gates(3, 620, 1000)  # two directions
        + linear(2000, 1000)  # the decoder's first state
        + gates(3, 620 + 2000, 1000)
        + (1000 + 2000 + 1) * 1000  # W_a, U_a, v_a
        + linear(1000 + 2000 + 620, 1000)  # s_i, c_i, y_{i-1}
        + linear(1000, 30_000),
    ),
    "luong": (
        {"source_vocabulary": 50_000, "target_vocabulary": 50_000},
        100_000 * 1000
        + 4 * gates(4, 1000, 1000)
        + gates(4, 2000, 1000)  # input feeding
        + 3 * gates(4, 1000, 1000)
        + 1000 * 1000  # W_a
        + linear(2000, 1000)  # W_c
        + linear(1000, 50_000),
    ),
}


def count(name: str, **settings: Any) -> int:
    with torch.device("meta"):
        model = make_model(preset(name, **settings))
    return sum(parameter.numel() for parameter in model.parameters())


def test_every_preset_is_counted() -> None:
    assert set(EXPECTED) == set(PRESETS)


@pytest.mark.parametrize("name", EXPECTED)
def test_parameters(name: str) -> None:
    settings, expected = EXPECTED[name]
    assert count(name, **settings) == expected


def test_published_counts() -> None:
    assert EXPECTED["gpt2"][1] == 124_439_808  # Radford et al. 2019, as released
    assert EXPECTED["transformer-base"][1] == 63_082_496  # table 3 says 65 million
    assert EXPECTED["transformer-big"][1] == 214_245_376  # 213 million
    assert round(EXPECTED["sutskever"][1] / 1e6) == 384  # section 3.4: 384 million
    assert round(8 * gates(4, 1000, 1000) / 1e6) == 64  # of them recurrent


def test_own_settings_win() -> None:
    config = preset("transformer-base", source_vocabulary=9, target_vocabulary=9, layers=2, position="rotary")
    settings = config.to_dict()
    assert (settings["layers"], settings["position"], settings["dim"]) == (2, "rotary", 512)


def test_the_sizes_of_the_paper() -> None:
    base = preset("transformer-base", source_vocabulary=9, target_vocabulary=9).to_dict()
    table_3 = {"layers": 6, "dim": 512, "heads": 8, "hidden": 2048, "dropout": 0.1, "order": "post"}
    assert table_3.items() <= base.items()
    big = preset("transformer-big", source_vocabulary=9, target_vocabulary=9).to_dict()
    assert {"layers": 6, "dim": 1024, "heads": 16, "hidden": 4096, "dropout": 0.3}.items() <= big.items()


def test_errors() -> None:
    with pytest.raises(UsageError, match="unknown preset 'transformer-bas'; did you mean 'transformer-base'"):
        preset("transformer-bas")
    with pytest.raises(UsageError, match="needs the setting 'vocabulary'"):
        preset("gpt2")
    with pytest.raises(UsageError, match="unknown setting of TransformerLMConfig 'layer'; did you mean 'layers'"):
        preset("gpt2", vocabulary=9, layer=2)
