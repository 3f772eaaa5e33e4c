"""The sentence encoder in C against the modules; each text for itself; and what C leaves to the modules."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import pytest
import torch

from regard.api.embedder import BATCH_TOKENS, embed_batch
from regard.decoding.cpu import c_encoder
from regard.decoding.cpu.quantize import pack_weights
from regard.models.config import EncoderConfig
from regard.models.encoders.sentence_encoder import SentenceEncoder

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")

BASE: dict[str, Any] = {"layers": 2, "dim": 48, "heads": 4, "hidden": 70, "vocabulary": 50}
KINDS: dict[str, dict[str, Any]] = {
    "bert": {
        "order": "post",
        "position": "learned",
        "activation": "gelu",
        "input_norm": True,
        "norm_eps": 1e-12,
        "scale_embedding": False,
    },
    "paper": {"pooling": "max"},
    "modern": {
        "order": "pre",
        "position": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "kv_heads": 2,
        "bias": False,
        "pooling": "learned",
    },
    "first": {"position": "none", "pooling": "first", "normalize": False},
}


def make(**settings: Any) -> SentenceEncoder:
    torch.manual_seed(2)
    model = SentenceEncoder(EncoderConfig(**{**BASE, **settings})).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight.data, mean=float(name.endswith("norm.weight")), std=0.2)
    return model


def make_texts(count: int = 60) -> list[list[int]]:
    draw = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 40, (count,), generator=draw).tolist()
    return [torch.randint(4, 50, (length,), generator=draw).tolist() for length in [*lengths, 300]]


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_the_modules(kind: str) -> None:
    """In float32 to about the last digit, in int8 nearly; alone, in a batch, and with any number of threads."""
    plain, texts = make(**KINDS[kind]), make_texts()
    with torch.inference_mode():
        want = torch.cat([plain(torch.tensor([text])) for text in texts])
        for form in ("packed", "int8"):
            model: Any = pack_weights(copy.deepcopy(plain), form)  # type: ignore[arg-type]
            assert c_encoder.why_not(model) is None and model.c_encoder.why_not_now(300) is None
            got = embed_batch(model, texts, 0)
            error = float((got - want).norm() / want.norm())
            assert error < 2e-6 if form == "packed" else 1e-4 < error < 0.05
            assert torch.equal(got, torch.cat([embed_batch(model, [text], 0) for text in texts]))
            before = torch.get_num_threads()
            try:
                for threads in (1, 3):
                    torch.set_num_threads(threads)
                    assert torch.equal(embed_batch(model, texts, 0), got)
            finally:
                torch.set_num_threads(before)


def test_the_modules_read_what_c_does_not() -> None:
    """Padding inside of a text, empty texts, hooks, replaced modules, and options that C does not implement."""
    plain, texts = make(**KINDS["bert"]), make_texts(5)
    model: Any = pack_weights(copy.deepcopy(plain), "packed")
    model.c_encoder.encode = None  # it would fail
    with torch.inference_mode():
        for odd in ([5, 0, 7], []):
            want = plain(torch.tensor([texts[0], [*odd, *[0] * (len(texts[0]) - len(odd))]]))
            torch.testing.assert_close(embed_batch(model, [texts[0], odd], 0), want, rtol=1e-5, atol=1e-5)
        assert c_encoder.MAX_TEXT_TOKENS >= BATCH_TOKENS
        assert "more than 65536 tokens" in model.c_encoder.why_not_now(100_000)
        handle = model.encoder.blocks[1].register_forward_hook(lambda *_: None)
        assert "forward hooks" in model.c_encoder.why_not_now(5)
        handle.remove()
        assert model.c_encoder.why_not_now(5) is None
        model.encoder.blocks[1] = model.encoder.blocks[0]
        assert "its modules were replaced" in model.c_encoder.why_not_now(5)
    assert "position T5Buckets" in str(c_encoder.why_not(pack_weights(make(position="t5"), "packed")))
    assert "not packed" in str(c_encoder.why_not(plain))
    assert "not all float32" in str(c_encoder.why_not(make().double()))
    assert "no sentence encoder" in str(c_encoder.why_not(torch.nn.Linear(2, 2)))


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_encoder, "compiled", lambda: None)
    model: Any = pack_weights(make(), "packed")
    assert model.c_encoder is None and "no C compiler" in str(c_encoder.why_not(model))
    assert embed_batch(model, make_texts(3), 0).shape == (4, 48)
