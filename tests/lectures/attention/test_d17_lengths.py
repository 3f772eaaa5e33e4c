"""D17: with and without attention, BLEU by sentence length; the task is made here and the trainer is ours.

The "language" has twelve words, its translation has twelve others, in the same order. Nothing but memory is needed,
which is what one vector for a whole sentence lacks (Bahdanau et al. 2015, figure 2). At the end, two shipped models.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest
import torch

from regard import RecurrentTranslator, RecurrentTranslatorConfig, load
from regard.decoding.engine import generate_tokens
from regard.demo.corpus import demo_pairs
from regard.evaluation.by_length import Bucket, scores_by_length
from regard.tasks.objective import objective
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END, START
from regard.training.loop.train_step import TrainStep
from regard.training.recipe.schema import TrainingRecipe
from regard.training.state.train_state import TrainState

WORDS, LONGEST, ROWS, STEPS = 12, 15, 32, 300
SOURCE = [f"mot{i}" for i in range(WORDS)]
TARGET = [f"word{i}" for i in range(WORDS)]
FIRST = 4  # the tokens before it are special


def sentences() -> Iterator[Batch]:
    """Batches of random sentences of one length each, without end."""
    random = Random(0)
    while True:
        length = random.randint(3, LONGEST)
        rows = torch.tensor([[random.randrange(WORDS) for _ in range(length)] for _ in range(ROWS)]) + FIRST
        begin, end = torch.full((ROWS, 1), START), torch.full((ROWS, 1), END)
        yield Batch(
            ids=list(range(ROWS)),
            source=torch.cat([rows, end], 1),
            inputs=torch.cat([begin, rows], 1),
            labels=torch.cat([rows, end], 1),
            tokens=ROWS * (length + 1),
        )


def trained(attention: str, hidden: int) -> RecurrentTranslator:
    torch.manual_seed(0)
    model = RecurrentTranslator(
        RecurrentTranslatorConfig(
            source_vocabulary=FIRST + WORDS,
            target_vocabulary=FIRST + WORDS,
            embedding=32,
            hidden=hidden,
            attention=attention,
            dropout=0.0,
        )
    )
    recipe = TrainingRecipe(steps=STEPS, lr=0.01, warmup=20, schedule="cosine", precision="fp32")
    step = TrainStep(TrainState(model, recipe, device=torch.device("cpu")), objective(model), recipe)
    for batch in islice(sentences(), STEPS):
        step([batch])
    return model.eval()


def by_length(model: RecurrentTranslator) -> list[Bucket]:
    """The scores of up to 5, 6 to 10, and 11 to 15 words, on sentences that were never seen."""
    random = Random("test")
    test = [[random.randrange(WORDS) for _ in range(random.randint(3, LONGEST))] for _ in range(400)]
    found = generate_tokens(model, [[*(FIRST + i for i in row), END] for row in test], max_tokens=2 * LONGEST)
    said = [" ".join(TARGET[i - FIRST] for i in best[0].tokens if i >= FIRST) for best in found]
    references = [" ".join(TARGET[i] for i in row) for row in test]
    sources = [" ".join(SOURCE[i] for i in row) for row in test]
    return scores_by_length(said, references, sources, edges=(5, 10), minimum=50, samples=200)


@pytest.fixture(scope="module")
def curves() -> tuple[list[Bucket], list[Bucket]]:
    """Without and with attention: the same steps, the same sentences, and more parameters for the one without."""
    without, with_attention = trained("none", 72), trained("additive", 48)
    sizes = [sum(p.numel() for p in model.parameters()) for model in (without, with_attention)]
    assert sizes[0] > sizes[1]
    return by_length(without), by_length(with_attention)


def test_D17_attention_has_the_better_bleu(curves: tuple[list[Bucket], list[Bucket]]) -> None:
    for without, with_attention in zip(*curves, strict=True):
        assert with_attention.bleu.interval[0] > without.bleu.interval[1]


def test_D17_without_it_quality_falls_with_the_length(curves: tuple[list[Bucket], list[Bucket]]) -> None:
    short, middle, long = (bucket.bleu for bucket in curves[0])
    assert short.interval[0] > middle.interval[1] and middle.interval[0] > long.interval[1]
    assert short.value - long.value > 30


def test_D17_with_it_quality_holds(curves: tuple[list[Bucket], list[Bucket]]) -> None:
    short, _, long = (bucket.bleu for bucket in curves[1])
    assert long.value > 95 and short.value - long.value < 5


def test_D17_the_gap_grows_with_the_length(curves: tuple[list[Bucket], list[Bucket]]) -> None:
    gaps = [with_attention.bleu.value - without.bleu.value for without, with_attention in zip(*curves, strict=True)]
    assert gaps == sorted(gaps) and gaps[-1] > gaps[0] + 30


@pytest.mark.parametrize(("name", "long"), [("demo-rnn-seq2seq", (40, 80)), ("lecture", (85, 100))])
def test_D17_the_shipped_models_are_alike_on_short_sentences_only(name: str, long: tuple[int, int]) -> None:
    """docs/results.md has the table of 600 sentences; these are the first 150 of them."""
    pairs = demo_pairs("test", 150)
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translations = load(name, device="cpu").translate(sources, beam=1)
    outputs = [translation.text for translation in translations]
    short_ones, _, long_ones = scores_by_length(outputs, references, sources, edges=(10, 20), minimum=1, samples=20)
    assert short_ones.bleu.value > 93
    assert long[0] < long_ones.bleu.value < long[1]
