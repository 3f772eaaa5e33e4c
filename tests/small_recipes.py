"""Small data that a model can learn in seconds: the target is the source backwards, in capitals."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

WORDS = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze"]


def write_pairs(folder: Path, count: int, *, seed: int = 0) -> tuple[Path, Path]:
    """Parallel files a.fr and a.en."""
    draw = random.Random(seed)
    sentences = [draw.choices(WORDS, k=draw.randint(2, 7)) for _ in range(count)]
    source, target = folder / "a.fr", folder / "a.en"
    source.write_text("".join(" ".join(words) + "\n" for words in sentences), encoding="utf-8")
    target.write_text("".join(" ".join(words[::-1]).upper() + "\n" for words in sentences), encoding="utf-8")
    return source, target


RECIPE = """
name = "small"
[data]
{data}
validation = {validation}
[tokenizer]
{tokenizer}
[model]
{model}
[training]
steps = 12
batch_tokens = 200
lr = 1e-3
warmup = 2
schedule = "cosine"
validate_every = 6
save_every = 3
log_every = 3
samples = 0
device = "cpu"
precision = "fp32"
[decoding]
sentences = 8
"""
TRANSFORMER = 'kind = "transformer"\nlayers = 1\ndim = 16\nheads = 2\nhidden = 32\ndropout = 0.1'
MODELS = {
    "transformer": TRANSFORMER,
    "rnn-seq2seq": 'kind = "rnn-seq2seq"\nembedding = 16\nhidden = 16',
    "rnn-attention": 'kind = "rnn-attention"\nembedding = 16\nhidden = 16\ndropout = 0.1',
    "encoder": 'kind = "encoder"\nlayers = 1\ndim = 16\nheads = 2\nhidden = 32',
    "transformer-lm": 'kind = "transformer-lm"\nlayers = 1\ndim = 16\nheads = 2\nhidden = 32',
    "rnn-lm": 'kind = "rnn-lm"\nembedding = 16\nhidden = 16',
}


@pytest.fixture
def make_recipe(tmp_path: Path) -> Callable[..., Path]:
    """`make_recipe(kind)` writes a recipe for a model of a few thousand parameters, with dropout and sampling on.

    Its validations draw no pictures: those would take longer than the training.
    """
    return lambda kind="transformer", **options: write_recipe(tmp_path, kind, **options)


def write_recipe(folder: Path, kind: str, *, more: str = "") -> Path:
    """A recipe for a small model of that kind, and its data, in folder."""
    write_pairs(folder, 120)
    text = kind.endswith("-lm")
    recipe = RECIPE.format(
        data='text = ["a.fr"]\ncontext = 20' if text else 'source = ["a.fr"]\ntarget = ["a.en"]',
        validation=400 if text else 12,
        tokenizer='kind = "characters"' if text else 'kind = "unigram"\nsize = 310\nshared = true\nsampling = 0.3',
        model=MODELS[kind],
    )
    path = folder / "small.toml"
    path.write_text(recipe + more, encoding="utf-8")
    return path
