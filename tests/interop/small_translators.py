"""Tiny random translation models of the real classes of transformers, saved as their users save them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from small_models import Original

FRENCH = ["Le chat dort sur le tapis.", "Les élèves sont allés à l'école.", "Il pleut, dit-elle.", "Où est le chien ?"]
ENGLISH = ["The cat sleeps on the mat.", "The pupils went to school.", "It rains, she said.", "Where is the dog?"]
TEXTS = ["Le chat dort.", "Où sont les élèves ?", "ﬁn ½ ☃", "a", "Il pleut sur l'école, dit-elle, et le chien dort."]


def train_pieces(lines: list[str], size: int, **options: Any) -> bytes:
    """Train a sentencepiece model as Marian's users do, with its usual rules for characters."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 5), model_writer=model, vocab_size=size, hard_vocab_limit=False,
        minloglevel=2, **options,
    )  # fmt: skip
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]


def randomize(model: Any, seed: int) -> None:
    """Give a model random weights with which a text depends on its source more than on its last token."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_table = "shared" in name or "embed_tokens" in name
            weight.copy_(torch.randn_like(weight) * ((0.25 if is_table else 0.5) if weight.dim() > 1 else 0.05))
            if name.endswith("encoder_attn.out_proj.weight"):
                weight *= 3.0
            if "norm" in name and name.endswith("weight"):
                weight += 1.0


def in_float64(model: Any) -> Any:
    """Return the model in float64 throughout, also its sinusoids, which transformers computes in float32."""
    for module in model.double().modules():
        if type(module).__name__ == "MarianSinusoidalPositionalEmbedding":
            positions, dim = module.weight.shape
            exponents = 2 * torch.arange(dim // 2, dtype=torch.float64) / dim
            angles = torch.arange(positions, dtype=torch.float64)[:, None] / 10000**exponents
            with torch.no_grad():
                module.weight.copy_(torch.cat([angles.sin(), angles.cos()], dim=1))
    return model


def make_marian(folder: Path, *, separate: bool = False, codes: bool = False, **settings: Any) -> Original:
    """Make a Marian model with its tokenizers; `codes` adds those of two languages to the vocabulary."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    models = [train_pieces(lines, 60) for lines in (FRENCH, ENGLISH)]
    special = ["</s>", "<unk>"]
    sides = [[piece for piece in pieces_of(model)[3:] if piece not in special] for model in models]
    if separate:
        length = min(map(len, sides))
        vocabularies = [[*special, *side[:length], "<pad>"] for side in sides]
    else:
        # not in the order of sentencepiece, and not all of its pieces
        both = sorted({*sides[0][:-2], *sides[1]})
        vocabularies = [[*special, *both, *([">>eng<<", ">>deu<<"] if codes else []), "<pad>"]]
    size = len(vocabularies[0])
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    for name, tokens in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
        (folder / name).write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate, "model_max_length": 512})
    )
    sizes: dict[str, Any] = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2}
    sizes |= {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in WIDTHS.items()}
    tokens = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0, "bos_token_id": 0}
    config = transformers.MarianConfig(
        vocab_size=size, decoder_vocab_size=len(vocabularies[-1]), scale_embedding=True, max_position_embeddings=64,
        share_encoder_decoder_embeddings=not separate, forced_eos_token_id=None,
        **{"activation_function": "swish", **sizes, **tokens, **settings},
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    randomize(model, 3)
    with torch.no_grad():
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias) * 0.1)
        for table in {model.get_input_embeddings(), model.model.decoder.embed_tokens}:
            table.weight[size - 1] = 0.0
        for stack in (model.model.encoder, model.model.decoder):  # the sinusoids, which randomize has replaced
            stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())
    tokens["eos_token_id"] = [0, *range(6, size - 3, 2)]  # so many that random models end their texts
    generation = {"bad_words_ids": [[size - 1]], "num_beams": 4, "max_length": 40, **tokens}
    model.generation_config = transformers.GenerationConfig(**generation)
    model.save_pretrained(folder)
    return Original(model, folder)


WIDTHS = {"ffn_dim": 24, "attention_heads": 4}
