"""Tiny random encoders of the real classes of transformers, and what sentence-transformers puts around them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnop")]


def make_encoder(family: str, folder: Path, **settings: Any) -> Any:
    """Make a random encoder, saved with a WordPiece tokenizer; in the files of RoBERTa padding is 1."""
    import transformers

    words = list(WORDS)
    if family == "roberta":
        words[0], words[1] = words[1], words[0]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(words[:4])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    sizes |= {"vocab_size": len(words), "max_position_embeddings": 40}
    tokens = {"pad_token_id": words.index("[PAD]"), "bos_token_id": 2, "eos_token_id": 3}
    name = "Bert" if family == "bert" else "Roberta"
    config = getattr(transformers, f"{name}Config")(**{**sizes, **tokens, **settings})
    torch.manual_seed(1)
    model = getattr(transformers, f"{name}Model")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return model


def put_around(
    folder: Path, *, pooling: dict[str, Any], limit: int = 12, modules: tuple[str, ...] = ("Normalize",)
) -> None:
    """Write the files of sentence-transformers."""
    kinds = ["Transformer", "Pooling", *modules]
    entries = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 16, **pooling}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": limit, "do_lower_case": False}))
