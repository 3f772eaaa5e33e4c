"""The cases of the fuzz: a small model folder of each kind, and what is done to it, by number."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mutations as spoil
import protobuf_mutations

Files = dict[str, bytes]
WEIGHTS = "model.safetensors"

FRENCH = ["le chat noir dort dans la maison", "la petite fille mange une pomme rouge", "il ne mange pas la pomme"]
ENGLISH = ["the black cat sleeps in the house", "the little girl eats a red apple", "he does not eat the apple"]


def make_folders(out: Path) -> None:
    """A small model of each kind with a trained tokenizer, and in config.json all that training writes there."""
    import torch

    from regard.models import config as c
    from regard.models.folder import save_model
    from regard.models.presets import make_model
    from regard.text.tokenizers.characters import train_characters
    from regard.text.tokenizers.subwords import train_subwords
    from regard.text.tokenizers.tokenizer import tokenizer_files

    texts = [*FRENCH, *ENGLISH]
    unigram = train_subwords(texts, size=None, kind="unigram", lossless=False)
    bpe = train_subwords(FRENCH, size=None, kind="bpe", lossless=False)
    lossless = train_subwords(texts, size=None, kind="unigram", lossless=True)
    letters = train_characters([*texts, "\n"])
    stack: dict[str, Any] = {"layers": 1, "dim": 8, "heads": 2, "hidden": 8}
    cell: dict[str, Any] = {"embedding": 6, "hidden": 8}
    sides = {"source_vocabulary": bpe.size, "target_vocabulary": unigram.size}
    one = {"source_vocabulary": unigram.size, "target_vocabulary": unigram.size}
    kinds = {
        "transformer": (c.TransformerConfig(**stack, **one), unigram, unigram),
        "rnn-attention": (c.RecurrentTranslatorConfig(**cell, **sides), bpe, unigram),
        "transformer-lm": (c.TransformerLMConfig(**stack, vocabulary=letters.size), letters, letters),
        "rnn-lm": (c.RecurrentLMConfig(**cell, vocabulary=lossless.size), lossless, lossless),
        "encoder": (
            c.EncoderConfig(**stack, vocabulary=unigram.size, position="learned", max_length=40), unigram, unigram,
        ),
    }  # fmt: skip
    torch.manual_seed(0)
    for kind, (config, source, target) in kinds.items():
        layer = "decoder.cross" if kind.startswith("rnn") else "decoder.0.cross"
        info = {
            "recipe": {"name": "small", "data": {"source": ["a.fr"], "max_length": 100, "demo": None}},
            "languages": {"source": "fr", "target": "en"},
            "scores": {"loss": 1.25, "bleu": {"name": "BLEU", "value": 30.1, "signature": "nrefs:1"}},
            "context": 20,
            "unseen_pieces": list(range(4, 60)),
            "known_names": ["Afrique"],
            "alignment": {"layer": layer, "head": 0},
        }
        storage: Any = {"rnn-lm": "int8", "encoder": "bfloat16"}.get(kind, "float32")
        files = tokenizer_files(source, target)
        save_model(make_model(config), out / kind, storage=storage, files=files, info=info)


CONFIG_CHOICES: dict[str, list[Any]] = {
    "position": ["none", "sinusoidal", "learned", "rotary", "relative", "t5", "alibi", "fraction", "index"],
    "order": ["pre", "post"], "norm": ["layer", "rms"], "form": ["projected", "slice", "raw"],
    "activation": ["relu", "gelu", "swiglu"], "pooling": ["mean", "max", "first", "learned"],
    "cell": ["rnn", "gru", "lstm"], "style": ["bahdanau", "luong"],
    "attention": ["none", "dot", "additive", "bilinear", "concat", "scaled_dot", "cosine"],
    "heads": [1, 2, 4, 8, 1024], "kv_heads": [None, 1, 2], "layers": [1, 2, 1024], "decoder_layers": [None, 1, 1024],
    "max_length": [1, 2, 3, 40, 2**24], "pad_id": [0, 1, 3, 50, 2**24], "dim": [8, 2**24], "hidden": [8, 2**24],
    "qk_norm": [True, False], "bias": [True, False], "tie_output": [True, False], "share_embeddings": [True, False],
    "scale_embedding": [True, False], "input_feeding": [True, False], "bidirectional": [True, False],
    "normalize": [True, False], "dropout": [0, 0.5, 0.999], "encoder_hidden": [None, 4, 8], "attention_hidden": [8, 1],
    "vocabulary": [1, 4, 340, 2**24], "source_vocabulary": [1, 4, 340, 2**24], "target_vocabulary": [1, 4, 340, 2**24],
}  # fmt: skip
INFO: dict[str, list[Any]] = {
    "alignment": [{"layer": "decoder.0.cross", "head": 2}, {"layer": "decoder.7.cross"}, {"layer": 1}, {"head": -1},
                  {"layer": "decoder.0.cross", "head": True}, {"layer": "decoder.cross", "head": 1.5}, []],
    "known_names": [[3], [None], [["a"]], {"a": 1}, "abc", 5, ["x" * 10_000]],
    "unseen_pieces": [[2**70], [-5], [[]], ["a"], [1.5], [None], {"4": 1}, list(range(10_000)), [True], "abc", 5],
    "context": [0, 1, 2, 3, -5, 2**70, 1.5, True, "20", [], None],
    "recipe": [[], "x", {"data": []}, {"data": {"max_length": -1}}, {"data": {"max_length": "x"}}, {"data": "x"}],
    "languages": [[], "fr", {"source": {}}, {"source": "\x1b[2J", "target": None}, {"source": "\ud800"}, None, 3],
    "scores": [[], "x", {"bleu": {"value": "x"}}, {"bleu": {"value": float("nan")}}, {"loss": []}, 3, None],
    "versions": [[], None, "x", {"regard": {}}, 3],
    "storage": ["int8", "bfloat16", "float16", None, 3, []],
    "special_tokens": [{"<pad>": 1}, [], None, {"<pad>": 0, "<unk>": 1, "<s>": 3, "</s>": 2}],
    "kind": ["transformer", "rnn-attention", "rnn-seq2seq", "encoder", "transformer-lm", "rnn-lm"],
}  # fmt: skip


def settings(files: Files, dice: random.Random) -> None:
    """Settings that are valid words, but of another model."""
    config = json.loads(files["config.json"])
    known = [name for name in config["model"] if name in CONFIG_CHOICES]
    for name in dice.sample(known, dice.choice([1, 1, 2, 4])):
        config["model"][name] = dice.choice(CONFIG_CHOICES[name])
    files["config.json"] = json.dumps(config).encode()


def info(files: Files, dice: random.Random) -> None:
    """What config.json says beside the model's settings."""
    config = json.loads(files["config.json"])
    name = dice.choice(list(INFO))
    config[name] = dice.choice(INFO[name])
    files["config.json"] = json.dumps(config).encode()


def config(files: Files, dice: random.Random) -> None:
    at = dice.choice([(), ("model",), ("model",), ("alignment",), ("recipe", "data"), ("scores",), ("languages",)])
    files["config.json"] = spoil.change_json(files["config.json"], dice, at=at)


def config_bytes(files: Files, dice: random.Random) -> None:
    files["config.json"] = spoil.change_bytes(files["config.json"], dice)


def header(files: Files, dice: random.Random) -> None:
    files[WEIGHTS] = spoil.change_header(files[WEIGHTS], dice)


def weights_bytes(files: Files, dice: random.Random) -> None:
    files[WEIGHTS] = spoil.change_bytes(files[WEIGHTS], dice)


def tokenizer(files: Files, dice: random.Random) -> None:
    name = dice.choice([name for name in files if "tokenizer" in name or "characters" in name])
    change: spoil.Mutator = protobuf_mutations.change_model
    if dice.random() < 0.3:
        change = spoil.change_bytes
    elif name.endswith("json"):
        change = dice.choice([spoil.change_json, change_letters])
    files[name] = change(files[name], dice)


def change_letters(content: bytes, dice: random.Random) -> bytes:
    letters = json.loads(content)["characters"]
    odd = ["", letters[::-1], letters[1:], letters + "é", letters + letters[-1], letters + "\ud800", letters + "".join(
        chr(i) for i in range(0x400, 0x400 + dice.choice([1, 2000])))]  # fmt: skip
    return json.dumps({"characters": dice.choice(odd)}).encode()


def card(files: Files, dice: random.Random) -> None:
    files["README.md"] = dice.choice([b"", b"\xff\xfe", b"\x1b[2J", dice.randbytes(1000), b"x" * 10**6])


def other_files(files: Files, dice: random.Random) -> None:
    """Files gone, empty, doubled under other names, or of another kind."""
    name = dice.choice([name for name in files if name != "manifest.json"])
    other = dice.choice(
        ["tokenizer.model", "source.tokenizer.model", "target.tokenizer.model", "characters.json", "tokenizer.json",
         "source.characters.json", "setup.py", "pytorch_model.bin", "config.json", WEIGHTS, "é.json", "a b"]
    )  # fmt: skip
    match dice.randrange(4):
        case 0:
            del files[name]
        case 1:
            files[name] = b""
        case 2:
            files[other] = files[name]
        case 3:
            files[other] = files.pop(name)


def bomb(files: Files, dice: random.Random) -> None:
    """Small on the disk, large in memory."""
    match dice.randrange(4):
        case 0:
            content = spoil.json_bomb(dice)
            if dice.random() < 0.5:  # the model's settings are there
                content = files["config.json"].rstrip().removesuffix(b"}") + b"," + content[1:]
            files["config.json"] = content
        case 1:
            files.pop("tokenizer.model", None)
            files["characters.json"] = spoil.json_bomb(dice)
        case 2:
            files[WEIGHTS] = spoil.header_bomb(dice)
        case 3:
            files["tokenizer.model"] = protobuf_mutations.model_bomb(dice)


MUTATORS: dict[Callable[[Files, random.Random], None], int] = {
    settings: 14, info: 14, config: 14, config_bytes: 8, header: 16, weights_bytes: 4, tokenizer: 26, card: 1,
    other_files: 6, bomb: 1,
}  # fmt: skip


def signed(files: Files) -> bytes:
    """A manifest that fits the files, as somebody who means harm would write it."""
    listed = {name: {"size": len(one), "sha256": hashlib.sha256(one).hexdigest()} for name, one in files.items()}
    return json.dumps({"format": 1, "files": listed}).encode()


def change_manifest(content: bytes, dice: random.Random) -> bytes:
    match dice.randrange(3):
        case 0:
            return spoil.change_bytes(content, dice)
        case 1:
            return spoil.change_json(content, dice)
    manifest = json.loads(content)
    name = dice.choice(["../../etc/passwd", "/etc/passwd", "setup.py", "config.json\n", "", ".", "training", "\ud800"])
    manifest["files"][name] = dice.choice([*manifest["files"].values(), None, [], 3])
    if dice.random() < 0.5:
        manifest["files"].pop(dice.choice(list(manifest["files"])))
    manifest["format"] = dice.choice([1, 1, 1, 0, 2, -1, True, 1.0, "1", None, 10**30])
    return json.dumps(manifest).encode()


def make_case(folders: Path, number: int, seed: int) -> tuple[str, Files, random.Random]:
    """The files of a spoilt folder, and in words what was done to it."""
    dice = random.Random(f"{seed} {number}")
    kind = dice.choice(sorted(path.name for path in folders.iterdir()))
    files = {path.name: path.read_bytes() for path in sorted((folders / kind).iterdir())}
    del files["manifest.json"]
    told = [kind]
    if dice.random() < 0.06:
        told.append("manifest")
        files["manifest.json"] = change_manifest(signed(files), dice)
    else:
        for change in dice.choices(list(MUTATORS), list(MUTATORS.values()), k=dice.choice([1, 1, 1, 2])):
            told.append(change.__name__)
            try:
                change(files, dice)
            except Exception:
                if len(told) == 2:  # what the first change left need not be readable for the second
                    raise
        files["manifest.json"] = signed(files)
    return " ".join(told), files, dice
