"""G2, G4, G5: language modelling, captioning and recognition of pictures, each as small as can be.

B batch   p model width   patches of 4 x 4 pixels
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard import CaptionerConfig, RecurrentCaptionerConfig, RecurrentLMConfig, TransformerLMConfig, make_model
from regard.models.config import ImageClassifierConfig
from regard.text.tokenizers.special_tokens import END, SPECIAL_TOKENS, START

TEXT = "to be or not to be"
LETTERS = sorted(set(TEXT))
MODELS = {
    "transformer": TransformerLMConfig(
        vocabulary=len(LETTERS), layers=1, dim=32, heads=4, hidden=64, order="pre", dropout=0.0
    ),
    "recurrent": RecurrentLMConfig(vocabulary=len(LETTERS), embedding=16, hidden=32, dropout=0.0),
}


def train(loss_of: Callable[[], Tensor], parameters: Iterable[nn.Parameter], *, steps: int, lr: float = 0.01) -> None:
    optimizer = torch.optim.Adam(parameters, lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()


@pytest.mark.parametrize("name", MODELS)
def test_G2_language_modelling_and_text_generation(name: str) -> None:
    """Perplexity from that of guessing, or worse, to almost one; and then the text itself, letter by letter."""
    model = make_model(MODELS[name])
    text = torch.tensor([[LETTERS.index(letter) for letter in TEXT]])

    def loss() -> Tensor:
        return F.cross_entropy(model(text[:, :-1])[0], text[0, 1:])

    assert math.exp(loss().item()) > len(LETTERS) / 2
    train(loss, model.parameters(), steps=200)
    assert math.exp(loss().item()) < 1.1

    model.eval()
    state, token, written = model.start(1, 32), text[:, :1], TEXT[0]
    for _ in range(len(TEXT) - 1):
        token = model.project(model.decode(token, state=state)).argmax(-1)
        written += LETTERS[int(token)]
    assert written == TEXT


def bright_squares(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy pictures (count, 8, 8) with a bright square in one quarter, and which quarter it is."""
    dice = torch.Generator().manual_seed(seed)
    quarters = torch.randint(4, (count,), generator=dice)
    pictures = 0.1 * torch.randn(count, 8, 8, generator=dice)
    for picture, quarter in zip(pictures, quarters.tolist(), strict=True):
        row, column = quarter // 2 * 4, quarter % 2 * 4
        picture[row : row + 4, column : column + 4] += 1
    return pictures, quarters


def test_G5_a_vision_transformer_tells_pictures_apart() -> None:
    shape: dict[str, int] = {"height": 8, "width": 8, "channels": 1, "patch": 4, "vocabulary": len(SPECIAL_TOKENS) + 4}
    config = ImageClassifierConfig(**shape, layers=1, dim=16, heads=2, hidden=32, dropout=0.0)
    model = regard.VisionTransformer(config)
    pictures, quarters = bright_squares(64, seed=0)
    cut = nn.Unfold(4, stride=4)(pictures[:, None]).transpose(1, 2)  # torch's own way to cut patches
    torch.testing.assert_close(model.cut(pictures[:, None]), 2 * cut - 1)
    train(lambda: F.cross_entropy(model(pictures[:, None]), quarters), model.parameters(), steps=200)
    new, answers = bright_squares(64, seed=1)
    with torch.no_grad(), regard.record(model) as maps:
        assert (model(new[:, None]).argmax(-1) == answers).float().mean() > 0.9
    assert maps["encoder.0.self"].shape == (64, 2, 5, 5)


ROWS, COLUMNS = torch.tensor([4, 5]), torch.tensor([6, 7])  # "upper", "lower", "left", "right"
SIZES: dict[str, int] = {"height": 8, "width": 8, "channels": 1, "patch": 4, "target_vocabulary": 8}
CAPTIONERS: dict[str, Callable[[int], CaptionerConfig | RecurrentCaptionerConfig]] = {
    "transformer": lambda frames: CaptionerConfig(
        **SIZES, frames=frames, layers=1, dim=16, heads=2, hidden=32, dropout=0.0
    ),
    "recurrent": lambda frames: RecurrentCaptionerConfig(
        **SIZES, frames=frames, hidden=32, embedding=16, convolution=8, dropout=0.0
    ),
}


def captions_of(quarters: Tensor) -> Tensor:
    words = [torch.full_like(quarters, START), ROWS[quarters // 2], COLUMNS[quarters % 2]]
    return torch.stack([*words, torch.full_like(quarters, END)], dim=1)  # (B, 4)


def learn_captions(model: Any, frames: Tensor, captions: Tensor) -> None:
    def loss() -> Tensor:
        return F.cross_entropy(model(frames, captions[:, :-1]).flatten(0, 1), captions[:, 1:].flatten())

    train(loss, model.parameters(), steps=120, lr=0.004)


def write(model: Any, frames: Tensor) -> Tensor:
    state, token, words = model.start(model.encode(frames), 4), torch.full((len(frames), 1), START), []
    for _ in range(3):
        token = model.project(model.decode(token, state=state)).argmax(-1)
        words.append(token)
    return torch.cat(words, dim=1)


@pytest.mark.parametrize("name", CAPTIONERS)
def test_G4_a_caption_by_attention_to_the_picture(name: str) -> None:
    """The decoder looks at patches in place of source words, and the weights say where it looked."""
    model = make_model(CAPTIONERS[name](1))
    pictures, quarters = bright_squares(64, seed=0)
    learn_captions(model, pictures[:, None], captions_of(quarters))
    new, answers = bright_squares(64, seed=1)
    with torch.no_grad(), regard.record(model) as maps:
        right = (write(model, new[:, None]) == captions_of(answers)[:, 1:]).all(1)
    assert right.float().mean() > 0.9
    layer = "decoder.0.cross" if name == "transformer" else "decoder.cross"
    weights = maps[layer]  # for each word, a distribution over the four patches
    assert weights.shape[2:] == (3, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@pytest.mark.parametrize("name", CAPTIONERS)
def test_G4_a_caption_of_a_video_names_the_order_of_events(name: str) -> None:
    """Both videos have the same two frames, in another order: the caption is where the square ends."""
    model = make_model(CAPTIONERS[name](2))
    first, quarters = bright_squares(64, seed=2)
    second, ends = bright_squares(64, seed=3)
    frames, captions = torch.stack([first, second], dim=1)[:, :, None], captions_of(ends)
    backwards = frames.flip(1)
    learn_captions(model, torch.cat([frames, backwards]), torch.cat([captions, captions_of(quarters)]))
    with torch.no_grad():
        right = [
            (write(model, video) == answer[:, 1:]).all(1)
            for video, answer in ((frames, captions), (backwards, captions_of(quarters)))
        ]
    assert torch.cat(right).float().mean() > 0.9
