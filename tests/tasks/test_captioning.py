"""Captioning from a folder with captions to words: training, the folder, the face, the commands and the scores."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from typer.testing import CliRunner

import regard
from regard.arrays.captions import PixelBox, make_captioned
from regard.cli import app
from regard.errors import DataError, UsageError
from regard.evaluation.captions import exact_share, pointing_share
from regard.settings import SettingError
from regard.tasks import task_for
from regard.tasks.arrays.captioning import chosen_patch, frame_size
from regard.tasks.losses import caption_loss
from regard.tasks.validation import Measure
from regard.training.recipe.from_files import recipe_for_files
from regard.training.recipe.schema import recipe_from

SMALL: dict[str, dict[str, Any]] = {
    "captioner": {"model.layers": 1, "model.dim": 16, "model.heads": 2, "model.hidden": 32, "model.patch": 4},
    "rnn-captioner": {"model.embedding": 16, "model.hidden": 32, "model.convolution": 8, "model.patch": 4}
    | {"training.steps": 250, "training.lr": 0.003},
}
TRAINING = {"training.steps": 120, "training.lr": 0.01, "training.warmup": 10, "training.batch_tokens": 64}
TRAINING |= {"data.validation": 16, "model.dropout": 0.0}


def picture(row: int, column: int, seed: int) -> Image.Image:
    """An image of 8 x 8 pixels whose quarter in that row and column is bright."""
    pixels = np.random.default_rng(seed).integers(0, 60, (8, 8), dtype=np.uint8)
    pixels[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 150
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quarters")
    lines = []
    for i in range(96):
        row, column = i // 2 % 2, i % 2
        picture(row, column, i).save(folder / f"{i}.png")
        lines.append(f"{i}.png\tlight in the {('upper', 'lower')[row]} {('left', 'right')[column]} part\n")
    (folder / "captions.tsv").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module", params=SMALL)
def run(request: pytest.FixtureRequest, folder: Path) -> Any:
    recipe = recipe_for_files([folder], model=request.param)
    out = folder.with_name(f"{folder.name}-{request.param}")
    return regard.train(recipe, out=out, overrides=TRAINING | SMALL[request.param], quiet=True)


def test_a_folder_with_captions_gives_a_captioner(run: Any, tmp_path: Path) -> None:
    assert run.scores["exact"] == 1.0 and "pointing" not in run.scores
    captioner = run.load(device="cpu")
    assert isinstance(captioner, regard.Captioner) and captioner.grid == (1, 2, 2)
    image = picture(1, 0, 999)
    result = captioner.caption(image, attention=True)
    assert result.text == "light in the lower left part" and result.score < 0
    assert [word for word, *_ in result.words] == result.text.split()
    assert result.attention.shape == (6, 1, 2, 2) == result.word_attention().shape
    torch.testing.assert_close(result.attention.sum((1, 2, 3)), torch.ones(6))
    again = regard.load(captioner.save(tmp_path / "saved"), device="cpu")
    assert again.caption(image).score == pytest.approx(result.score)
    assert "regard caption -m THIS_FOLDER picture.png" in (run.folder / "README.md").read_text()


def test_the_same_alone_and_together_and_in_every_form(run: Any, folder: Path) -> None:
    captioner = run.load(device="cpu")
    path = folder / "3.png"
    pixels = np.asarray(Image.open(path))
    together = captioner.caption([path, str(path), Image.open(path), pixels, pixels / 255.0, folder / "4.png"])
    for result in together[:-1]:
        assert result.text == "light in the lower right part"
        assert result.score == pytest.approx(captioner.caption(path).score, abs=1e-5)
    assert together[-1].text == "light in the upper left part" and captioner.caption([]) == []
    with pytest.raises(ValueError, match="attention=True"):
        together[0].word_attention()


def test_the_score_is_that_of_the_forced_caption(run: Any, folder: Path) -> None:
    """Cached steps give the probabilities of one pass over the whole caption, and the recorded weights."""
    captioner = run.load(device="cpu")
    frames = torch.from_numpy(captioner.pixels(folder / "5.png"))[None]
    (tokens,), (score,) = captioner.write(frames)
    caption = torch.tensor([[2, *tokens, 3]])
    with torch.no_grad(), regard.record(captioner.model) as maps:
        logps = captioner.model(frames, caption[:, :-1]).log_softmax(-1)
    assert score == pytest.approx(float(logps[0].gather(-1, caption[0, 1:, None]).sum()), abs=1e-4)
    layer = maps["decoder.0.cross" if "decoder.0.cross" in maps else "decoder.cross"].mean(1)[0, :-1]  # (m, n)
    weights = captioner.caption(folder / "5.png", attention=True).attention
    torch.testing.assert_close(weights.flatten(1), layer)


def test_commands(run: Any, folder: Path, tmp_path: Path) -> None:
    call = ["caption", "-m", str(run.folder)]
    (tmp_path / "broken.png").write_bytes(b"\x89PNG no")
    two = CliRunner().invoke(app, [*call, str(folder / "0.png"), str(tmp_path / "broken.png"), str(folder / "1.png")])
    assert two.exit_code == DataError.exit_code and "broken.png" in two.stderr
    assert two.stdout.splitlines()[1] == ""  # one line for each image
    assert two.stdout.splitlines()[2] == f"light in the upper right part\t{folder / '1.png'}"
    content = json.loads(CliRunner().invoke(app, [*call, str(folder / "0.png"), "--json"]).stdout)
    assert content["caption"] == "light in the upper left part" and len(content["words"]) == 6
    assert set(content["words"][0]["peak"]) == {"x", "y", "weight"} and content["words"][0]["peak"]["x"] in (2, 6)
    score = CliRunner().invoke(app, [*call, "--evaluate", str(folder)])
    assert score.stdout == "100.0% of 96 captions are exactly right\n"
    for wrong in ([*call], [*call, "a.png", "--evaluate", str(folder)]):
        assert CliRunner().invoke(app, wrong).exit_code == UsageError.exit_code
    out = tmp_path / "caption.png"
    drawn = CliRunner().invoke(app, ["plot", "caption", "-m", str(run.folder), str(folder / "0.png"), "-o", str(out)])
    assert drawn.exit_code == 0 and Image.open(out).width > 300


def test_the_equations_of_xu() -> None:
    """One step of the decoder, from the formulas of the paper with the LSTM of PyTorch."""
    torch.manual_seed(0)
    sizes: dict[str, int] = {"height": 4, "width": 4, "channels": 1, "patch": 2, "target_vocabulary": 9}
    config = regard.RecurrentCaptionerConfig(**sizes, hidden=6, embedding=5, convolution=8, dropout=0.0)
    model: Any = regard.make_model(config).eval()
    decoder, frames = model.decoder, torch.rand(1, 1, 1, 4, 4)
    a = model.encode(frames).states[0]  # (n, D)
    h, c = (torch.tanh(layer(a.mean(0))) for layer in (decoder.first_h, decoder.first_c))
    score = decoder.cross_attention.score
    e = torch.stack([score(h[None], a_i[None])[0, 0] for a_i in a])
    alpha = torch.exp(e) / torch.exp(e).sum()
    z = torch.sigmoid(decoder.gate(h)) * (alpha[:, None] * a).sum(0)
    y = decoder.embedding.weight[7]
    lstm = torch.nn.LSTMCell(5 + len(z), 6)
    lstm.load_state_dict({name.removesuffix("_l0"): weight for name, weight in decoder.rnn.state_dict().items()})
    h, _ = lstm(torch.cat([y, z])[None], (h[None], c[None]))
    readout = torch.tanh(y + decoder.from_hidden(h[0]) + decoder.from_context(z))
    torch.testing.assert_close(model(frames, torch.tensor([[7]]))[0, 0], model.output(readout))


def test_the_loss_ignores_padding_and_an_empty_share() -> None:
    images = make_captioned(np.zeros((2, 1, 1, 8, 8), np.uint8), ["x", "y z"], name="test")
    sizes = {"height": 8, "width": 8, "channels": 1, "patch": 4, "layers": 1, "dim": 8, "heads": 2, "hidden": 8}
    tables = {"data": {"demo": 9}, "tokenizer": {"kind": "words"}, "training": {"batch_tokens": 8}}
    recipe = recipe_from({"name": "x", "model": {"kind": "captioner", **sizes}, **tables})
    task = task_for("captioner")
    tokenizers = task.make_tokenizers(recipe, images)
    data: Any = task.make_data(recipe, images, tokenizers, training=False, cache=None)
    model: Any = regard.make_model(recipe.config(source_vocabulary=7, target_vocabulary=7)).eval()
    (batch,) = data.batches(0)
    loss = caption_loss(model, batch, kernels=False)
    rows = F.cross_entropy(model(batch.source, batch.inputs).flatten(0, 1), batch.labels.flatten(), reduction="none")
    expected = rows[(batch.labels != 0).flatten()].sum()
    torch.testing.assert_close(loss.total, expected)
    assert loss.tokens == 5
    assert caption_loss(model, next(data.batches(0, rank=2, world=3)), kernels=False).total.item() == 0


def test_scores() -> None:
    images = make_captioned(
        np.zeros((3, 2, 1, 4, 4), np.uint8),
        ["a b", "a b", "a b"],
        name="x",
        places=[{1: (PixelBox(1, 0, 2, 2, 4),)}] * 3,
    )
    maps = np.zeros((3, 2, 2, 2, 2))  # samples, words, frames, rows, columns
    maps[0, 1, 1, 0, 1] = 1  # on the item
    maps[1, 1, 0, 0, 1] = 1  # in another frame
    maps[2, 1, 0, 0, 0] = 1  # of a wrong caption, which does not count
    assert exact_share(["a b", "a b", "a c"], images.captions) == pytest.approx(2 / 3)
    assert pointing_share(list(maps), ["a b", "a b", "a c"], images, cell=2) == 0.5
    assert np.isnan(pointing_share(list(maps), ["c"] * 3, images, cell=2))


def test_sizes_and_settings(folder: Path) -> None:
    assert chosen_patch("captioner", (1, 48, 48)) == 8 and chosen_patch("rnn-captioner", (1, 60, 60)) == 8
    assert chosen_patch("captioner", (1, 64, 64)) == 8 and chosen_patch("captioner", (1, 47, 47)) == 7
    assert frame_size("captioner", {"patch": 5}, (3, 23, 31)) == (3, 20, 30)
    for side, kind in itertools.product(range(10, 90), SMALL):  # the size that is chosen has the same patch again
        size = frame_size(kind, {}, (1, side, side))
        assert size[1] % chosen_patch(kind, size) == 0 and size[1] > 0.8 * side
    for settings, message in (
        ({"data": {"demo": 5, "items": ["bag=8"]}}, "needs data.scenes"),
        ({"data": {"demo": 5, "max_length": 5}}, "reads no text"),
        ({"data": {"demo": 5}, "model": {"kind": "rnn-captioner", "patch": 6}}, "power of 2"),
        ({"data": {"demo": 5}, "model": {"kind": "captioner", "patch": 5, "height": 8}}, "does not divide"),
    ):
        tables = {"name": "x", "model": {"kind": "captioner"}, **settings}
        with pytest.raises(SettingError, match=message):
            recipe_from(tables)
    with pytest.raises(UsageError, match="captioner"):
        recipe_for_files([folder])


def test_scenes_of_labelled_images(tmp_path: Path) -> None:
    for label in ("cup", "hat", "old"):
        (tmp_path / label).mkdir()
        for i in range(6):
            Image.fromarray(np.random.default_rng(i).integers(50, 255, (10, 10), dtype=np.uint8)).save(
                tmp_path / label / f"{i}.png"
            )
    data = {"images": [str(tmp_path)], "scenes": 12, "validation": 4, "items": ["mug=cup", "hat=hat"]}
    tables = {"name": "x", "data": data, "model": {"kind": "captioner", "frames": 4}}
    corpora = task_for("captioner").read(recipe_from(tables))
    assert corpora.train.pixels.shape == (12, 4, 1, 24, 24) and len(corpora.validation) == 4
    assert {caption.split()[1] for caption in corpora.train.captions} == {"mug", "hat"}
    with pytest.raises(DataError, match="label '9'"):
        task_for("captioner").read(recipe_from({**tables, "data": data | {"items": ["hat=hat", "bag=9"]}}))


def test_of_equal_shares_the_lower_loss_is_better() -> None:
    exact = Measure("exact", "captions exactly right", share=True)
    scores = [{"exact": 0.0, "loss": 2.0}, {"exact": 0.0, "loss": 1.0}, {"exact": 0.0, "loss": float("inf")}]
    assert max(scores, key=exact.rank) is scores[1]
    assert exact.rank({"exact": 1e-5, "loss": 9.0}) > exact.rank(scores[1]) > exact.rank(scores[2])
    errors = Measure("wer", "word error rate", lower_is_better=True, share=True)
    assert errors.rank({"wer": 0.1, "loss": 9.0}) > errors.rank({"wer": 0.2, "loss": 1.0})
    assert errors.rank({"wer": 0.1, "loss": 1.0}) > errors.rank({"wer": 0.1, "loss": 2.0})
