"""The pointer-generator: one pass or step by step, alone or in a batch, saved or not, it computes the same."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor

import regard
from regard.decoding import decoder_layout
from regard.decoding.cpu import c_decoder, module_search
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.engine import generate_tokens
from regard.decoding.gpu import support
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.models.config import AnswererConfig, PointerGeneratorConfig, SummarizerConfig
from regard.models.pointer_generator import PointerGenerator
from regard.settings import SettingError
from regard.tasks.losses import copying_loss
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END, START

SOURCES = [[5, 6, 7, 8, END], [9, 10, END], [11, 5, 12, 13, 6, 14, END]]


@pytest.fixture(params=["rotary", "sinusoidal"])
def model(request: pytest.FixtureRequest) -> PointerGenerator:
    torch.manual_seed(0)
    config = SummarizerConfig(
        source_vocabulary=16, target_vocabulary=16, layers=2, decoder_layers=1, dim=16, heads=2, hidden=32,
        order="pre", position=request.param,
    )  # fmt: skip
    return PointerGenerator(config).eval()


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


def test_each_row_is_a_distribution(model: PointerGenerator) -> None:
    logps = model(padded(SOURCES), torch.tensor([[START, 5], [START, 9], [START, 6]]))
    torch.testing.assert_close(logps.exp().sum(-1), torch.ones(3, 2))
    torch.testing.assert_close(logps.log_softmax(-1), logps)  # as a search and a loss treat them


def test_padding_changes_nothing(model: PointerGenerator) -> None:
    target = torch.tensor([[START, 9, 10]])
    together = model(padded(SOURCES), target.expand(3, -1))
    for row, source in enumerate(SOURCES):
        torch.testing.assert_close(together[row], model(torch.tensor([source]), target)[0])


@pytest.mark.parametrize("search", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_cached_decoding_is_uncached_decoding(model: PointerGenerator, search: Greedy | Beam) -> None:
    cached, uncached = (
        generate_tokens(model, SOURCES, search=search, max_tokens=[9, 4, 12], cached=cached) for cached in (True, False)
    )
    assert [[text.tokens for text in texts] for texts in cached] == [[x.tokens for x in texts] for texts in uncached]
    for one, other in zip(cached, uncached, strict=True):
        assert one[0].score == pytest.approx(other[0].score, abs=1e-4)


@pytest.mark.parametrize("search", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_a_batch_decodes_as_its_sources_alone(model: PointerGenerator, search: Greedy | Beam) -> None:
    together = generate_tokens(model, SOURCES, search=search, max_tokens=8)
    small = generate_tokens(model, SOURCES, search=search, max_tokens=8, batch_tokens=20)  # they enter one by one
    for i, source in enumerate(SOURCES):
        (alone,) = generate_tokens(model, [source], search=search, max_tokens=8)
        assert together[i][0].tokens == small[i][0].tokens == alone[0].tokens
        assert together[i][0].score == pytest.approx(alone[0].score, abs=1e-4)


def test_saved_is_loaded(model: PointerGenerator, tmp_path: Path) -> None:
    regard.save_model(model, tmp_path / "saved")
    again = regard.load_model(tmp_path / "saved")
    assert isinstance(again, PointerGenerator) and again.config == model.config
    target = torch.tensor([[START, 5, 6]])
    source = torch.tensor([SOURCES[0]])
    torch.testing.assert_close(again.eval()(source, target), model(source, target))  # rounding depends on the memory


def why_not_on_gpu(model: PointerGenerator) -> str | None:
    return decoder_layout.why_not(model, support.KNOWN_TRAITS, runs_input=False)


def test_accelerated_backends_refuse_it(model: PointerGenerator) -> None:
    """A backend that knows the Transformer would leave the copying out."""
    for why_not in (module_search.why_not, c_decoder.why_not, why_not_on_gpu):
        assert "PointerGenerator" in str(why_not(pack_weights(deepcopy(model), "packed"))), why_not.__module__


def test_the_pointer_is_recorded(model: PointerGenerator) -> None:
    target = torch.tensor([[START, 5, 6]])
    with regard.record(model) as maps:
        recorded = model(torch.tensor([SOURCES[0]]), target)
    assert maps["pointer"].shape == (1, 1, 3, 5)
    torch.testing.assert_close(maps["pointer"].sum(-1), torch.ones(1, 1, 3))
    torch.testing.assert_close(recorded, model(torch.tensor([SOURCES[0]]), target))


def test_the_loss_is_the_likelihood(model: PointerGenerator) -> None:
    source, inputs = padded(SOURCES), torch.tensor([[START, 5], [START, 9], [START, 6]])
    labels = torch.tensor([[5, END], [9, END], [END, 0]])
    loss = copying_loss(model, Batch([0, 1, 2], source, inputs, labels, 5))
    logps = model(source, inputs).log_softmax(-1)
    picked = [(0, 0, 5), (0, 1, END), (1, 0, 9), (1, 1, END), (2, 0, END)]
    expected = -torch.stack([logps[place] for place in picked]).sum()
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.nll, expected)
    smooth = copying_loss(model, Batch([0, 1, 2], source, inputs, labels, 5), smoothing=0.1)
    uniform = -torch.stack([logps[row, column].mean() for row, column, _ in picked]).sum()
    torch.testing.assert_close(smooth.total, 0.9 * expected + 0.1 * uniform)
    empty = copying_loss(model, Batch([], source[:0], inputs[:0], labels[:0], 0))
    assert empty.total.item() == 0.0


def test_it_learns_to_copy_tokens_that_it_never_saw() -> None:
    """The task: repeat the second source token. Tokens 20 to 29 never occur in training; a Transformer fails there."""
    config = {
        "source_vocabulary": 30, "target_vocabulary": 30, "layers": 1, "dim": 32, "heads": 2, "hidden": 32,
        "order": "pre", "position": "sinusoidal", "dropout": 0.0, "share_embeddings": True,
    }  # fmt: skip
    right = {}
    for model in (PointerGenerator(AnswererConfig(**config)), regard.Transformer(regard.TransformerConfig(**config))):
        torch.manual_seed(0)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(150):
            source = torch.randint(4, 20, (32, 5))
            optimizer.zero_grad()
            start = torch.full((32, 1), START)
            torch.nn.functional.cross_entropy(model(source, start)[:, 0], source[:, 1]).backward()
            optimizer.step()
        source = torch.randint(20, 30, (100, 5))
        answers = model.eval()(source, torch.full((100, 1), START))[:, 0].argmax(-1)
        right[type(model).__name__] = int((answers == source[:, 1]).sum())
    assert right["PointerGenerator"] > 30 and right["Transformer"] < 5, right


def test_two_vocabularies_are_refused() -> None:
    with pytest.raises(SettingError, match="one vocabulary"):
        AnswererConfig(source_vocabulary=9, target_vocabulary=8, share_embeddings=False)
    with pytest.raises(NotImplementedError):
        _ = PointerGeneratorConfig(source_vocabulary=9, target_vocabulary=9).kind


def test_a_source_without_tokens_is_refused(model: PointerGenerator) -> None:
    encoded = model.encode(torch.tensor([SOURCES[0]]))
    with pytest.raises(ValueError, match="needs the tokens of the source"):
        model.decode(torch.tensor([[START]]), encoded._replace(tokens=None))
