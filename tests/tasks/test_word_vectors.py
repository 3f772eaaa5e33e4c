"""Word vectors: the C code takes the same steps as autograd, and training finds words with similar contexts; A2."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import regard
from regard.errors import DataError, UsageError
from regard.kernels.native import word_vectors as native
from regard.models.config import WordVectorConfig
from regard.models.word_vectors import WordVectorModel
from regard.tasks.word_vectors.update import PlainUpdate, draw_examples, word_vector_loss
from regard.text.batches.batch import Batch
from regard.text.batches.cooccurrences import count_cooccurrences
from regard.text.tokenizers.special_tokens import END, UNKNOWN
from regard.text.tokenizers.words import train_words

NOISE = 9  # the only word of the noise distribution in small cases, so that every draw is known
NEGATIVES = 2
SENTENCES = [[4, 5, 6, 7], [8, NOISE, 4]]
FRUIT, TOOLS = ("apple", "pear", "plum", "cherry"), ("saw", "axe", "hammer", "drill")


def small_model(method: str, **settings: Any) -> WordVectorModel:
    torch.manual_seed(0)
    if method != "glove":
        settings = {"window": 1, "negatives": NEGATIVES, "subsample": 1.0, **settings}
    model = WordVectorModel(WordVectorConfig(vocabulary=11, dim=37, method=method, **settings))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.counts[NOISE] = 1.0
    return model


def text_batch() -> Batch:
    rows = [[*sentence, END] for sentence in SENTENCES]
    tokens = torch.tensor([rows[0] + rows[1]])
    return Batch([0], None, tokens, tokens, tokens.numel())


def tables(model: WordVectorModel) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def neighbours() -> Iterator[tuple[int, list[int]]]:
    """Each word and the words beside it."""
    for sentence in SENTENCES:
        for i, word in enumerate(sentence):
            yield word, [sentence[j] for j in (i - 1, i + 1) if 0 <= j < len(sentence)]


def one_loss(model: WordVectorModel, hidden: torch.Tensor, true: int) -> torch.Tensor:
    """The formula of negative sampling, written with autograd for one example."""
    assert model.contexts is not None
    outputs = model.contexts.weight
    noise = 0 if true == NOISE else NEGATIVES
    return -F.logsigmoid(outputs[true] @ hidden) - noise * F.logsigmoid(-outputs[NOISE] @ hidden)


def optimizer_for(model: WordVectorModel, rate: float) -> torch.optim.Optimizer:
    if model.config.method == "glove":
        return torch.optim.Adagrad(model.parameters(), lr=rate, eps=1e-9, initial_accumulator_value=1.0)
    return torch.optim.SGD(model.parameters(), lr=rate)


needs_compiler = pytest.mark.skipif(native.compiled() is None, reason="no C compiler")


@needs_compiler
def test_a_model_with_an_invented_trait_is_trained_by_the_plain_update(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("skip-gram")
    assert native.why_not(model) is None
    known = model.traits
    monkeypatch.setattr(WordVectorModel, "traits", property(lambda model: known | {"invented"}))
    assert "invented" in (native.why_not(model) or "")


@needs_compiler
@pytest.mark.parametrize("update", [native.NativeUpdate, PlainUpdate])
def test_skip_gram_follows_the_gradient(update: Any) -> None:
    """With a small rate the order of the steps does not matter: all together are one step along the gradient."""
    model, rate = small_model("skip-gram"), 1e-3
    total = sum(one_loss(model, model.words.weight[word], near) for word, nears in neighbours() for near in nears)
    gradients = torch.autograd.grad(total, list(model.parameters()))
    before = tables(model)
    mean = update(model, seed=1)(text_batch(), optimizer_for(model, rate), 0)
    for old, new, gradient in zip(before, tables(model), gradients, strict=True):
        torch.testing.assert_close((old - new) / rate, gradient, atol=5e-3, rtol=5e-3)
    pairs = sum(len(nears) for _, nears in neighbours())
    torch.testing.assert_close(float(mean), float(total.detach()) / pairs, atol=1e-2, rtol=1e-2)


@needs_compiler
def test_cbow_takes_the_steps_of_sgd_one_by_one() -> None:
    model, reference, rate = small_model("cbow"), small_model("cbow"), 0.3
    for word, nears in neighbours():
        reference_step(reference, word, nears, rate)
    native.NativeUpdate(model, seed=1)(text_batch(), optimizer_for(model, rate), 0)
    for ours, theirs in zip(tables(model), tables(reference), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-5)


def reference_step(model: WordVectorModel, word: int, nears: list[int], rate: float) -> None:
    """The step of word2vec, by autograd: outputs change one after the other, the inputs at the end."""
    assert model.contexts is not None
    words, outputs = model.words.weight.detach(), model.contexts.weight.detach()
    hidden, error = words[nears].mean(0), torch.zeros(words.shape[1])
    for output, label in [(word, 1.0)] + [(NOISE, 0.0)] * (NEGATIVES if word != NOISE else 0):
        row = outputs[output].clone().requires_grad_()
        state = hidden.clone().requires_grad_()
        F.binary_cross_entropy_with_logits(row @ state, torch.tensor(label)).backward()
        error += rate * state.grad
        outputs[output] -= rate * row.grad
    for near in nears:
        words[near] -= error / len(nears)


@needs_compiler
def test_glove_takes_the_step_of_adagrad() -> None:
    """Entries without a common row are independent, so one step of torch's AdaGrad takes them together."""
    model, reference = small_model("glove", max_count=10.0), small_model("glove", max_count=10.0)
    entries, counts = torch.tensor([[4, 5], [6, 7], [8, 8]]), torch.tensor([[3.0], [0.5], [20.0]])
    batch = Batch([0, 1, 2], None, entries, counts, 3)
    optimizer = optimizer_for(reference, 0.1)
    i, j = entries.T
    assert reference.contexts is not None
    assert reference.word_biases is not None
    assert reference.context_biases is not None
    estimate = (reference.words.weight[i] * reference.contexts.weight[j]).sum(1)
    estimate = estimate + reference.word_biases.weight[i, 0] + reference.context_biases.weight[j, 0]
    weights = torch.tensor([(3 / 10) ** 0.75, (0.5 / 10) ** 0.75, 1.0])
    total = (weights * (estimate - counts[:, 0].log()) ** 2).sum()
    torch.testing.assert_close(word_vector_loss(reference, batch).total, total)
    total.backward()
    optimizer.step()
    mean = native.NativeUpdate(model, seed=1)(batch, optimizer_for(model, 0.1), 0)
    torch.testing.assert_close(float(mean), float(total.detach()) / 3)
    for ours, theirs in zip(tables(model), tables(reference), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize("method", ["skip-gram", "glove"])
def test_any_number_of_threads_gives_the_same_bits(method: str) -> None:
    results = []
    for threads in (1, 3):
        torch.manual_seed(0)
        settings: dict[str, Any] = {} if method == "glove" else {"subsample": 0.05}
        model = WordVectorModel(WordVectorConfig(vocabulary=60, dim=20, method=method, **settings))
        model.counts[4:] = torch.arange(56, 0, -1.0)
        tokens = torch.randint(4, 60, (8, 100))
        batch = Batch([0], None, tokens, tokens, tokens.numel())
        if method == "glove":
            batch = Batch([0], None, torch.randint(4, 60, (2000, 2)), torch.rand(2000, 1) + 0.1, 2000)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            native.NativeUpdate(model, seed=1)(batch, optimizer_for(model, 0.1), 0)
        finally:
            torch.set_num_threads(before)
        results.append(tables(model))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_the_alias_table_has_the_noise_distribution() -> None:
    distribution = np.array([0.0, 0.5, 0.3, 0.15, 0.05, 0.0])
    chance, alias = native.alias_table(distribution)
    drawn = chance.astype(float).copy()
    for i, other in enumerate(alias):
        drawn[other] += 1 - chance[i]
    np.testing.assert_allclose(drawn / len(drawn), distribution, atol=1e-6)


def test_noise_and_subsampling_follow_the_formulas() -> None:
    model = WordVectorModel(WordVectorConfig(vocabulary=7, subsample=1e-3))
    model.counts[4:] = torch.tensor([810.0, 160.0, 30.0])
    powers = torch.tensor([810.0, 160.0, 30.0]).double() ** 0.75
    torch.testing.assert_close(model.noise[4:], powers / powers.sum())
    frequency = torch.tensor([0.81, 0.16, 0.03]).double()
    expected = (frequency / 1e-3).sqrt() * 1e-3 / frequency + 1e-3 / frequency  # as in word2vec.c
    torch.testing.assert_close(model.keep_probability[4:], expected, atol=1e-6, rtol=1e-6)


def test_examples_stay_inside_sentences_and_windows() -> None:
    model = WordVectorModel(WordVectorConfig(vocabulary=30, window=3, negatives=1, subsample=1.0))
    model.counts[4:] = 1.0
    tokens = torch.tensor([[4, 5, UNKNOWN, 6, 7, 8, END, 20], [22, END, 10, 11, 12, 13, 14, 15]])
    seen: Counter[tuple[int, int]] = Counter()
    for seed in range(60):
        examples = draw_examples(model, tokens, torch.Generator().manual_seed(seed))
        seen.update(zip(examples.inputs[:, 0].tolist(), examples.outputs[:, 0].tolist(), strict=True))
    sentences = [[4, 5, 6, 7, 8], [20], [22], [10, 11, 12, 13, 14, 15]]
    allowed = {(a, b): abs(i - j) for s in sentences for i, a in enumerate(s) for j, b in enumerate(s) if i != j}
    assert set(seen) == {pair for pair, distance in allowed.items() if distance <= 3}
    near = sum(seen[pair] for pair, distance in allowed.items() if distance == 1) / 60
    far = sum(seen[pair] for pair, distance in allowed.items() if distance == 3) / 60
    assert near == 18  # every neighbour, each time: 4 + 5 pairs, both ways round
    assert 2.2 < far < 4.5  # a window reaches three words in a third of the cases: (4 + 6) / 3


def test_cooccurrences_count_inverse_distances() -> None:
    text = [4, 5, UNKNOWN, 4, END, 6, 4, 5, END]
    entries, values = count_cooccurrences(np.array(text, np.int32), window=3, size=10)
    expected: Counter[tuple[int, int]] = Counter()
    for sentence in ([4, 5, UNKNOWN, 4], [6, 4, 5]):
        for i, a in enumerate(sentence):
            for j, b in enumerate(sentence):
                if i != j and abs(i - j) <= 3 and UNKNOWN not in (a, b):
                    expected[a, b] += 1 / abs(i - j)
    assert {
        tuple(entry): pytest.approx(value) for entry, value in zip(entries.tolist(), values, strict=True)
    } == expected


def two_topics(path: Path, lines: int = 1500) -> Path:
    """Sentences about fruit or about tools; some words occur in both."""
    draw = random.Random(1)
    rows = []
    for _ in range(lines):
        topic, verb = draw.choice([(FRUIT, "eat"), (TOOLS, "use")])
        rows.append(f"We {verb} the {draw.choice(topic)}, and a {draw.choice(topic)}!\n")
    path.write_text("".join(rows))
    return path


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_topics(tmp_path_factory.mktemp("text") / "topics.txt")


def train(text: Path, out: Path, **settings: Any) -> regard.WordVectors:
    recipe = out.with_suffix(".toml")
    recipe.write_text(f'[data]\ntext = "{text.as_posix()}"\n[model]\nkind = "word-vectors"\ndim = 16\n')
    overrides = {"training.steps": 60, "training.batch_tokens": 2048, "training.validate_every": 60, **settings}
    return regard.train(recipe, out=out, overrides=overrides, quiet=True).load()


@pytest.mark.parametrize(
    ("method", "kernels"),
    [("skip-gram", "auto"), ("cbow", "auto"), ("glove", "auto"), ("cbow", "off"), ("glove", "off")],
)
def test_words_with_the_same_contexts_get_similar_vectors(
    topics: Path, tmp_path: Path, method: str, kernels: str
) -> None:
    settings = {"model.method": method, "training.kernels": kernels}
    vectors = train(topics, tmp_path / "run", **settings | ({"training.steps": 25} if kernels == "off" else {}))
    for word in (*FRUIT, *TOOLS):
        topic = FRUIT if word in FRUIT else TOOLS
        ranked = [near.word for near in vectors.nearest(word, len(vectors)) if near.word in FRUIT + TOOLS]
        assert set(ranked[:3]) == set(topic) - {word}
    assert vectors.similarity("apple", "Pear") > vectors.similarity("apple", "saw")


def test_the_vectors_of_the_last_step_are_kept(topics: Path, tmp_path: Path) -> None:
    """Whatever the loss on held-out text: here it is about nothing, and rises."""
    (tmp_path / "other.txt").write_text("the and a we saw pear eat\n" * 40)
    for method in ("skip-gram", "glove"):
        settings = {"data.validation_text": str(tmp_path / "other.txt"), "training.validate_every": 10}
        train(topics, tmp_path / method, **settings, **{"model.method": method})
        records = [json.loads(line) for line in (tmp_path / method / "metrics.jsonl").read_text().splitlines()]
        losses = {record["step"]: record["loss"] for record in records if record["kind"] == "validation"}
        assert list(losses) == [10, 20, 30, 40, 50, 60] and min(losses, key=losses.__getitem__) < 60
        assert json.loads((tmp_path / method / "config.json").read_text())["scores"]["loss"] == losses[60]


def test_a_resumed_training_gives_the_same_bits(topics: Path, tmp_path: Path) -> None:
    for method in ("skip-gram", "glove"):
        settings = {"model.method": method, "training.schedule": "constant", "training.validate_every": 10}
        whole = train(topics, tmp_path / f"whole-{method}", **settings)
        train(topics, tmp_path / f"parts-{method}", **settings, **{"training.steps": 20})
        resumed = train(topics, tmp_path / f"parts-{method}", **settings)
        assert torch.equal(whole.vectors, resumed.vectors)


def test_the_progress_has_a_loss_and_no_perplexity(
    topics: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loss compares words with noise, so its exponential is no perplexity."""
    recipe = tmp_path / "run.toml"
    recipe.write_text(f'[data]\ntext = "{topics.as_posix()}"\n[model]\nkind = "word-vectors"\ndim = 16\n')
    overrides = {"training.steps": 10, "training.batch_tokens": 2048, "training.log_every": 5}
    run = regard.train(recipe, out=tmp_path / "run", overrides=overrides)
    records = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    trained = [record for record in records if record["kind"] == "train"]
    assert trained and all("loss" in record and "perplexity" not in record for record in trained)
    printed = capsys.readouterr()
    assert "loss " in printed.err + printed.out and "perplexity" not in printed.err + printed.out
    assert (run.folder / "README.md").read_text().splitlines()[2].startswith("A word-vectors model")


def test_export_and_import_keep_the_vectors(topics: Path, tmp_path: Path) -> None:
    vectors = train(topics, tmp_path / "run")
    for form in ("word2vec", "glove"):
        path = vectors.export(tmp_path / f"{form}.txt", format=form)  # type: ignore[arg-type]
        assert path.read_text().splitlines()[0].split(" ")[0] == (str(len(vectors)) if form == "word2vec" else "a")
        back = regard.load(regard.WordVectors.from_file(path).save(tmp_path / f"{form}-model"), device="cpu")
        assert isinstance(back, regard.WordVectors)
        assert back.words == vectors.words
        assert torch.equal(back.vectors, vectors.vectors)
        assert back.nearest("apple") == vectors.nearest("apple")


def test_wrong_words_and_texts_are_named(topics: Path, tmp_path: Path) -> None:
    vectors = train(topics, tmp_path / "run")
    assert "apple" in vectors
    assert "aple" not in vectors
    assert vectors["apple"].shape == (16,)
    with pytest.raises(UsageError, match=r"'aple' is not among the 14 words of the vectors; similar words: apple"):
        vectors.nearest("aple")
    with pytest.raises(UsageError, match="at least three different words, got apple, saw"):
        vectors.plot("apple", "saw")
    with pytest.raises(UsageError, match="count must be at least 1"):
        vectors.nearest("apple", 0)
    two = tmp_path / "two.txt"
    two.write_text("hello world")
    with pytest.raises(DataError, match="the text is too short"):
        train(two, tmp_path / "two")
    with pytest.raises(DataError, match="0 different ones occur at least 9999 times: word vectors need two or more"):
        train(topics, tmp_path / "rare", **{"tokenizer.min_count": 9999})
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    with pytest.raises(DataError, match="empty"):
        train(empty, tmp_path / "empty")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.method": "imported"}, "comes from a file and is not trained"),
        ({"model.method": "glove", "model.negatives": 3}, "negatives is a setting of skip-gram and cbow"),
        ({"training.patience": 2}, "keeps the vectors of the last step"),
        ({"training.optimizer": "adamw"}, "is trained with sgd"),
        ({"training.clip": 2.0}, "takes a step for every example"),
        ({"tokenizer.kind": "bpe"}, "has tokens of another kind: words"),
        ({"model.kind": "transformer-lm", "model.dim": 8, "tokenizer.kind": "words"}, "unigram, bpe, characters"),
    ],
)
def test_settings_without_effect_are_refused(topics: Path, tmp_path: Path, settings: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train(topics, tmp_path / "run", **settings)


def test_words_of_a_text() -> None:
    tokenizer = train_words(["It's re-done: IT'S\nà la carte, à la mode"], min_count=2)
    assert tokenizer.vocabulary == ["it's", "la", "à"]
    assert tokenizer.counts == [2, 2, 2]
    assert tokenizer.encode("It's\nmode") == [4, END, UNKNOWN]
    assert tokenizer.decode([4, UNKNOWN, 6], unknown=["x"]) == "it's x à"
    assert type(tokenizer)(tokenizer.save()[1]).vocabulary == tokenizer.vocabulary
    assert train_words(["A.b , A.b ,"], min_count=1, tokenised=True).vocabulary == [",", "A.b"]
