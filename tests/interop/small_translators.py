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
        if type(module).__name__ == "M2M100SinusoidalPositionalEmbedding":
            positions, dim = module.weights.shape
            exponents = torch.arange(dim // 2, dtype=torch.float64) / (dim // 2 - 1)
            angles = torch.arange(positions, dtype=torch.float64)[:, None] / 10000**exponents
            module.weights.copy_(torch.cat([angles.sin(), angles.cos()], dim=1))
        if type(module).__name__ == "T5LayerNorm":
            module.forward = lambda x, norm=module: (
                norm.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.variance_epsilon)
            )
        if type(module).__name__ == "MarianSinusoidalPositionalEmbedding":
            positions, dim = module.weight.shape
            exponents = 2 * torch.arange(dim // 2, dtype=torch.float64) / dim
            angles = torch.arange(positions, dtype=torch.float64)[:, None] / 10000**exponents
            with torch.no_grad():
                module.weight.copy_(torch.cat([angles.sin(), angles.cos()], dim=1))
    return model


def make_marian(
    folder: Path, *, separate: bool = False, codes: bool = False, size: int | None = None, **settings: Any
) -> Original:
    """Make a Marian model with its tokenizers; `codes` adds those of two languages to the vocabulary.

    `size` is the number of tokens, most of which no text has.
    """
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
    if size is not None:
        vocabularies[0][-1:-1] = [f"unused{number}" for number in range(size - len(vocabularies[0]))]
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
        vocab_size=size, decoder_vocab_size=len(vocabularies[-1]), scale_embedding=True,
        share_encoder_decoder_embeddings=not separate, forced_eos_token_id=None,
        **{"activation_function": "swish", "max_position_embeddings": 64, **sizes, **tokens, **settings},
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    randomize(model, 3)
    with torch.no_grad():
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias) * 0.1)
        for table in {model.get_input_embeddings(), model.model.decoder.embed_tokens}:
            table.weight[size - 1] = 0.0
        for stack in (model.model.encoder, model.model.decoder):  # the sinusoids, which randomize has replaced
            stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())
    tokens["eos_token_id"] = [0, *range(6, min(size - 3, 100), 2)]  # so many that random models end their texts
    generation = {"bad_words_ids": [[size - 1]], "num_beams": 4, "max_length": 40, **tokens}
    model.generation_config = transformers.GenerationConfig(**generation)
    model.save_pretrained(folder)
    return Original(model, folder)


WIDTHS = {"ffn_dim": 24, "attention_heads": 4}


def save_tokenizer(folder: Path, special: list[str], codes: list[str], *, unknown: str = "<unk>") -> int:
    """Save a tokenizer.json with these tokens first and codes of languages last; return the number of its tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted({letter for line in [*FRENCH, *ENGLISH] for letter in line if letter != " "})
    words = ["▁", *letters, *sorted({f"▁{word}" for line in [*FRENCH, *ENGLISH] for word in line.split()})]
    pieces = [*special, *words]
    scores = [(piece, 0.0 if piece in special else -float(number)) for number, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=special.index(unknown), byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in [*special, *codes]])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer.get_vocab_size()


def make_fairseq(folder: Path, family: str, **settings: Any) -> Original:
    """Make an M2M100 (as NLLB has it) or mBART-50 model; `tokens` of M2M100 and mBART are those of fairseq."""
    import transformers

    codes = ["fra_Latn", "eng_Latn"] if family == "m2m_100" else ["fr_XX", "en_XX"]
    size = save_tokenizer(folder, ["<s>", "<pad>", "</s>", "<unk>"], codes)
    sizes: dict[str, Any] = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "vocab_size": size}
    sizes |= {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in WIDTHS.items()}
    sizes |= {"max_position_embeddings": 64, "scale_embedding": True, "decoder_start_token_id": 2}
    name = {"m2m_100": "M2M100", "mbart": "MBart"}[family]
    config = getattr(transformers, f"{name}Config")(**{**sizes, **settings})
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    tables = [model.model.encoder.embed_positions, model.model.decoder.embed_positions]
    stored = [table.weights.clone() for table in tables] if family == "m2m_100" else []
    randomize(model, 5)
    for table, weights in zip(tables, stored, strict=False):
        table.weights.copy_(weights)
    ends = [2, *range(5, size - 3, 3)]
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=2, eos_token_id=ends, pad_token_id=1, bos_token_id=0, max_length=40, num_beams=1
    )
    model.save_pretrained(folder)
    return Original(model, folder)


def make_t5(folder: Path, **settings: Any) -> Original:
    """Make a T5 model; `untied` gives it an output matrix of its own, as T5 1.1 and Flan-T5 have."""
    import transformers

    untied = settings.pop("untied", False)
    size = save_tokenizer(folder, ["<pad>", "</s>", "<unk>"], []) + 4
    sizes: dict[str, Any] = {"d_model": 16, "d_kv": 4, "num_heads": 2, "d_ff": 24, "num_layers": 2}
    config = transformers.T5Config(vocab_size=size, decoder_start_token_id=0, **{**sizes, **settings})
    model = transformers.T5ForConditionalGeneration(config).eval()
    if untied:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros(size, 16))
    randomize(model, 7)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 1.0 if weight.dim() == 1 else 0.5  # scores are not divided by the root of the width
    ends = [1, *range(5, size - 5, 3)]
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=0, eos_token_id=ends, pad_token_id=0, max_length=40
    )
    model.save_pretrained(folder)
    return Original(model, folder)
