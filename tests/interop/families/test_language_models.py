"""Imported language models compute and write what transformers does with the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from small_models import ENDS, FAMILIES, TEXTS, in_float64, make_original

import regard
from regard.decoding.cpu.c_matrix import compiled
from regard.decoding.engine import generate_tokens
from regard.interop import import_model, read

PROMPT = [7, 30, 41, 8]


class Both(NamedTuple):
    theirs: Any  # in float64
    ours: Any
    source: Path
    folder: Path


@pytest.fixture(scope="module", params=FAMILIES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A model of each family and its import, both in float64."""
    root = tmp_path_factory.mktemp(request.param)
    original = make_original(request.param, root / "original")
    folder = import_model(original.folder, root / "imported")
    return Both(in_float64(original.model), regard.load_model(folder, dtype=torch.float64), original.folder, folder)


def test_logits(both: Both) -> None:
    tokens = torch.randint(0, both.ours.config.vocabulary, (3, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = both.theirs(tokens).logits
        torch.testing.assert_close(both.ours(tokens), expected, atol=1e-10, rtol=0)
        in_float32 = regard.load_model(both.folder)(tokens)
    torch.testing.assert_close(in_float32.double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("width", "penalty"), [(1, 1.0), (4, 0.0), (4, 0.6), (6, 1.0)])
def test_searches(both: Both, width: int, penalty: float) -> None:
    """Greedy and beam search, with the end tokens of the folder; texts that the limit cuts off rank differently."""
    prompts = [PROMPT, PROMPT[::-1], [100], [12, 60]]
    search = regard.Greedy() if width == 1 else regard.Beam(width, length_penalty=penalty, patience=None)
    options = {"search": search, "prefixes": prompts, "max_tokens": 30}
    # Theirs may choose the rows of the table that have no token, ours not: bar them there, too.
    size = both.ours.config.tokenizer_size
    unused = [[token] for token in range(size, both.ours.config.vocabulary)]
    finished = 0
    for prompt, (best, *_) in zip(prompts, generate_tokens(both.ours, None, **options), strict=True):
        theirs = both.theirs.generate(
            torch.tensor([prompt]),
            num_beams=width,
            length_penalty=penalty,
            early_stopping="never" if width > 1 else False,
            max_new_tokens=30,
            do_sample=False,
            pad_token_id=0,
            bad_words_ids=unused,
        )
        written = theirs[0, len(prompt) :].tolist()
        if written[-1] in ENDS or width == 1:
            assert best.tokens == written
            finished += best.finished
    assert finished, "not one text ended"


def test_cached_is_uncached(both: Both) -> None:
    """Sampling reads the same probabilities from the cache as from the whole text, past the window."""
    search = regard.Sample(seed=3)
    cached, recomputed = (
        generate_tokens(both.ours, None, prefixes=[PROMPT, [9]], search=search, max_tokens=20, cached=cached)
        for cached in (True, False)
    )
    for (one,), (other,) in zip(cached, recomputed, strict=True):
        assert one.tokens == other.tokens
        assert one.logps == pytest.approx(other.logps, abs=1e-10)


def test_the_table_of_weights_leads_back(both: Both) -> None:
    imported = read(both.source)
    ours = dict(imported.weights())
    stored = load_file(both.source / "model.safetensors")
    restored = {f"{plan_prefix(both)}{name}": weight for name, weight in imported.table.write(ours.__getitem__)}
    restored = {("lm_head.weight" if name.endswith("lm_head.weight") else name): w for name, w in restored.items()}
    assert restored.keys() == stored.keys()
    assert all(torch.equal(restored[name], stored[name]) for name in stored)


def plan_prefix(both: Both) -> str:
    return "transformer." if "gpt2" in str(both.source) else "model."


def test_tokens_and_texts(both: Both) -> None:
    """The tokens of transformers' own tokenizer, and a text that is generated from a prompt."""
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(both.source, local_files_only=True)
    writer = regard.load(both.folder, device="cpu")
    for text in TEXTS:
        assert writer.tokenizer.encode(text) == theirs(text)["input_ids"]
    prompt = theirs("The cat", return_tensors="pt")["input_ids"]
    model = transformers.AutoModelForCausalLM.from_pretrained(both.source)
    expected = model.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=0)[0, prompt.shape[1] :].tolist()
    expected = expected[:-1] if expected[-1] in ENDS else expected
    text = "".join(writer.stream("The cat", search=regard.Greedy(), max_tokens=12))
    assert text == theirs.decode(expected, skip_special_tokens=True)


def test_steps_in_c(both: Both) -> None:
    """The C decoder takes what it implements; its probabilities are those of the modules."""
    writer = regard.load(both.folder, device="cpu")
    packed = writer.decoding_model
    implemented = not both.ours.config.qk_norm and both.ours.config.window is None
    assert (getattr(packed, "c_decoder", None) is not None) == implemented or compiled() is None
    options = {"prefixes": [PROMPT, [9]], "max_tokens": 20}
    for (step,), (plain,) in zip(
        generate_tokens(packed, None, **options), generate_tokens(both.ours, None, **options), strict=True
    ):
        assert step.tokens == plain.tokens
        assert step.logps == pytest.approx(plain.logps, abs=1e-4)


def test_scores(both: Both) -> None:
    """The log-probability of each token but the first, which nothing precedes."""
    writer = regard.load(both.folder, device="cpu", dtype="float64")
    scored = writer.score(TEXTS[0])
    ids = torch.tensor([writer.tokenizer.encode(TEXTS[0])])
    with torch.no_grad():
        logps = both.theirs(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    assert scored.logps == pytest.approx(logps.tolist(), abs=1e-9)
