"""No setting of a source is ignored: each either changes the import, is refused, or is listed here as harmless."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import FAMILIES, make_original, mutations

from regard.errors import ModelError, RegardError
from regard.interop import read

# What has no effect on the outputs of a loaded model, by the documentation of transformers.
HARMLESS = {
    *("dtype", "transformers_version", "use_cache", "initializer_range", "attention_dropout", "_name_or_path"),
    *("output_attentions", "output_hidden_states", "return_dict", "id2label", "label2id", "problem_type"),
    *("attn_pdrop", "embd_pdrop", "resid_pdrop"),
    *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"),
}
# Qwen has a window only with all three of them.
SWITCHED_OFF = {"use_sliding_window", "sliding_window", "max_window_layers"}


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_original(request.param, tmp_path_factory.mktemp(request.param)).folder
    # generation_config.json has precedence; without it the tokens are those of config.json
    (folder / "generation_config.json").unlink()
    return folder


def what_is_read(folder: Path, **options: Any) -> Any:
    imported = read(folder, **options)
    return imported.config, imported.info["context"], imported.info["frame"], imported.notes


def test_every_key_counts(folder: Path) -> None:
    path = folder / "config.json"
    content = path.read_text(encoding="utf-8")
    settings = json.loads(content)
    original = what_is_read(folder)
    skipped = HARMLESS | (SWITCHED_OFF if settings["model_type"].startswith("qwen") else set())
    try:
        for key, value in settings.items():
            if key in skipped:
                continue
            for other in mutations(value):
                path.write_text(json.dumps({**settings, key: other}), encoding="utf-8")
                try:
                    changed = what_is_read(folder)
                except RegardError:
                    continue
                assert changed != original, f"{key} = {other!r} changes nothing"
        path.write_text(json.dumps({**settings, "unheard_of": 1}), encoding="utf-8")
        with pytest.raises(ModelError, match=r"does not know the key 'unheard_of'.*--allow-key unheard_of"):
            read(folder)
        assert what_is_read(folder, allow_keys=["unheard_of"]) == original
    finally:
        path.write_text(content, encoding="utf-8")


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}}),
    (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
                "high_freq_factor": 3.0, "original_max_position_embeddings": 16,
            },
            "mlp_bias": True, "attention_bias": False, "head_dim": 16,
        },
    ),
    (
        "qwen2",
        {
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16,
                "beta_fast": 4.0,
            },
            "hidden_act": "gelu_pytorch_tanh",
        },
    ),
    (
        "qwen3",
        {
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16,
                "mscale": 0.7, "mscale_all_dim": 0.3, "truncate": False, "head_dim": 16,
            },
            "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 0, "attention_bias": True,
        },
    ),
    ("gpt2", {"activation_function": "gelu", "n_inner": 20, "tie_word_embeddings": False}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "settings"), OPTIONS)
def test_options_compute_what_transformers_computes(family: str, settings: dict[str, Any], tmp_path: Path) -> None:
    settings = {key: dict(value) if isinstance(value, dict) else value for key, value in settings.items()}
    settings.get("rope_parameters", {}).pop("head_dim", None)
    original = make_original(family, tmp_path, **settings)
    tokens = torch.randint(0, 250, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        # The frequencies of a scaling are rounded in another order than theirs.
        torch.testing.assert_close(read(tmp_path).model()(tokens), original.model(tokens).logits, atol=5e-5, rtol=0)


def test_the_settings_that_transformers_4_wrote(tmp_path: Path) -> None:
    """rope_theta and rope_scaling instead of rope_parameters, with `type` for `rope_type`."""
    import transformers

    make_original("llama", tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    del settings["rope_parameters"], settings["head_dim"]
    settings |= {"rope_theta": 300.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    imported = read(tmp_path)
    assert (imported.config.rope_base, imported.config.rope_factor) == (300.0, 2.0)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.arange(30)[None]
    with torch.no_grad():
        torch.testing.assert_close(imported.model()(tokens), theirs(tokens).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantization_config": {"bits": 4}}, "quantization_config is .* reads only weights that are not quantized"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map is .* code of its own"),
        ({"model_type": "gemma"}, "unknown model_type 'gemma'.*cannot import other families yet"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1.0}}, "rope_type is 'longrope', known"),
        (
            {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4},
            "only some layers have a window",
        ),
        ({"sliding_window": ...}, "the key 'sliding_window' is missing"),
        ({"num_key_value_heads": ...}, "the key 'num_key_value_heads' is missing"),
        ({"eos_token_id": None}, "there is no eos_token_id"),
        ({"eos_token_id": 272}, "token 272 is none of the 270 of the tokenizer"),
        (
            {"vocab_size": 200},
            "the tokenizer has 270 tokens, but the model only 200|must lie|there are tokens 0 to 199",
        ),
        ({"hidden_size": 2**40}, "dim must be a whole number from 1"),
        ({"num_hidden_layers": 3}, r"weight 'layers\.2\..*' is missing"),
        ({"tie_word_embeddings": True}, r"'lm_head\.weight' and 'embed_tokens\.weight' differ"),
    ],
)
def test_refusals_say_what_is_wrong(changes: dict[str, Any], message: str, tmp_path: Path, mistral: Path) -> None:
    shutil.copytree(mistral, tmp_path / "m")
    settings = json.loads((tmp_path / "m/config.json").read_text(encoding="utf-8"))
    changed = {key: value for key, value in {**settings, **changes}.items() if value is not ...}
    (tmp_path / "m/config.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        read(tmp_path / "m")


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_original("mistral", tmp_path_factory.mktemp("refused")).folder
    (folder / "generation_config.json").unlink()
    return folder


def test_generation_settings(mistral: Path, tmp_path: Path) -> None:
    """Its tokens have precedence; its options are noted; what would change a search is refused."""
    shutil.copytree(mistral, tmp_path / "m")
    path = tmp_path / "m/generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [4, 9], "pad_token_id": 2, "temperature": 0.6}))
    imported = read(tmp_path / "m")
    assert (imported.config.end_ids, imported.config.pad_id) == ((4, 9), 2)
    assert any("temperature 0.6" in note for note in imported.notes)
    path.write_text(json.dumps({"eos_token_id": 4, "suppress_tokens": [3]}))
    with pytest.raises(ModelError, match="suppress_tokens is"):
        read(tmp_path / "m")
    path.write_text(json.dumps({"eos_token_id": 4, "watermarking": 3}))
    with pytest.raises(ModelError, match="does not know the key 'watermarking'"):
        read(tmp_path / "m")
