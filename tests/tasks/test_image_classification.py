"""Image classification from folders of images to labels: training, the folder, the face and the command."""

from __future__ import annotations

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
from regard.arrays.batches import ImageData
from regard.arrays.images import make_images
from regard.cli import app
from regard.errors import DataError, ModelError, UsageError
from regard.tasks.arrays.image_classification import chosen_patch, image_size, split_images
from regard.tasks.losses import image_label_loss, image_loss
from regard.training.recipe.from_files import recipe_for_files

SMALL = {
    "model.layers": 1,
    "model.dim": 16,
    "model.heads": 2,
    "model.hidden": 16,
    "model.dropout": 0.0,
    "training.steps": 60,
    "training.lr": 0.01,
    "training.warmup": 1,
    "training.batch_tokens": 17 * 16,
    "data.validation": 16,
}


def bright(side: str, seed: int) -> Image.Image:
    """An image of 8 x 8 pixels that is bright on one side."""
    pixels = np.random.default_rng(seed).integers(0, 60, (8, 8), dtype=np.uint8)
    pixels[:, : 4 if side == "left" else 8][:, -4:] += 150
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sides")
    for side in ("left", "right"):
        (folder / side).mkdir()
        for i in range(40):
            bright(side, i + 100 * (side == "left")).save(folder / side / f"{i}.png")
    return folder


@pytest.fixture(scope="module", params=["class", "mean"])
def run(request: pytest.FixtureRequest, folder: Path) -> Any:
    recipe = recipe_for_files([folder], model="image-classifier")
    settings = SMALL | {"model.patch": 2, "model.pooling": request.param}
    out = folder.with_name(f"{folder.name}-{request.param}")
    return regard.train(recipe, out=out, overrides=settings, quiet=True)


def test_a_folder_of_images_gives_a_classifier(run: Any) -> None:
    assert run.scores["accuracy"] == 1.0
    classifier = run.load(device="cpu")
    assert isinstance(classifier, regard.ImageClassifier) and classifier.labels == ["left", "right"]
    result = classifier.classify(bright("left", 999))
    assert (
        result.label == "left" and result.probability > 0.5 and sum(result.probabilities.values()) == pytest.approx(1)
    )
    assert classifier.size == (1, 8, 8) and classifier.grid == (4, 4)
    assert "regard classify -m THIS_FOLDER picture.png" in (run.folder / "README.md").read_text()


def test_the_same_alone_and_together_and_in_every_form(run: Any, folder: Path) -> None:
    classifier = run.load(device="cpu")
    path = folder / "right/3.png"
    pixels = np.asarray(Image.open(path))
    forms = [path, str(path), Image.open(path), pixels, pixels[None], pixels[..., None], pixels / 255.0]
    forms += [Image.open(path).convert("RGB"), np.stack([pixels] * 3)]
    together = classifier.classify(forms)
    for result, image in zip(together, forms, strict=True):
        assert result.probability == pytest.approx(together[0].probability, abs=1e-6)
        assert classifier.classify(image).probability == pytest.approx(result.probability, abs=1e-6)
    assert classifier.classify([]) == []
    for wrong in (np.zeros((2, 2, 2, 2)), np.zeros((5, 5, 7)), np.full((8, 8), 3.0), np.zeros((0, 4))):
        with pytest.raises(ValueError, match="an image must"):
            classifier.classify(wrong)


def test_a_folder_gives_the_same_classifier(run: Any, folder: Path, tmp_path: Path) -> None:
    classifier = run.load(device="cpu")
    again = regard.load(classifier.save(tmp_path / "saved"), device="cpu")
    image = folder / "left/0.png"
    assert again.classify(image).probabilities == classifier.classify(image).probabilities
    assert json.loads((tmp_path / "saved/labels.json").read_text()) == {"labels": ["left", "right"]}
    (tmp_path / "saved/labels.json").unlink()
    with pytest.raises(ModelError, match=r"labels\.json"):
        regard.load(tmp_path / "saved")


def test_attention_is_a_distribution_over_the_patches(run: Any, folder: Path) -> None:
    classifier = run.load(device="cpu")
    weights = classifier.attention(folder / "left/0.png")
    assert weights.shape == (1, 2, 4, 4) and (weights >= 0).all()
    total = weights.sum((-1, -2))
    expected = torch.ones(1, 2)
    if classifier.model.class_token is None:
        torch.testing.assert_close(total, expected)
    else:
        assert (total < 1).all()  # the class token also attends to itself
        with regard.record(classifier.model) as maps:
            classifier.classify(folder / "left/0.png")
        torch.testing.assert_close(weights[0], maps["encoder.0.self"][0, :, 0, 1:].view(2, 4, 4))  # token 0, row by row


def test_commands(run: Any, folder: Path, tmp_path: Path) -> None:
    call = ["classify", "-m", str(run.folder)]
    one = CliRunner().invoke(app, [*call, str(folder / "left/0.png")])
    assert one.stdout.startswith("left\t0.") or one.stdout.startswith("left\t1."), one.output
    (tmp_path / "broken.png").write_bytes(b"no image")
    several = CliRunner().invoke(app, [*call, *(str(folder / side / "1.png") for side in ("left", "right"))])
    assert [line.split("\t")[0] for line in several.stdout.splitlines()] == ["left", "right"]
    broken = CliRunner().invoke(app, [*call, str(tmp_path / "broken.png"), str(folder / "right/0.png"), "--json"])
    assert broken.exit_code == 3 and "not an image" in broken.output
    assert json.loads(broken.stdout.splitlines()[-1])["label"] == "right"
    for wrong in ([], ["--weights", str(folder / "left/0.png")], ["-"]):
        assert CliRunner().invoke(app, [*call, *wrong]).exit_code == 2
    assert "labels" in CliRunner().invoke(app, ["info", str(run.folder)]).stdout


def test_plot(run: Any, folder: Path, tmp_path: Path) -> None:
    call = ["plot", "image", "-m", str(run.folder), str(folder / "left/0.png"), "-o", str(tmp_path / "image.svg")]
    for options in ([], ["--layer", "0"]):
        done = CliRunner().invoke(app, [*call, *options])
        assert done.exit_code == 0 and (tmp_path / "image.svg").is_file(), done.output
    assert CliRunner().invoke(app, [*call, "--layer", "1"]).exit_code == 2
    assert CliRunner().invoke(app, ["plot", "image", "-m", "fr-en", str(folder / "left/0.png")]).exit_code == 2


def test_sizes_and_patches_are_chosen() -> None:
    assert [chosen_patch((1, side, side)) for side in (4, 14, 28, 32, 224)] == [1, 2, 4, 4, 16]
    assert image_size({}, (3, 28, 28)) == (3, 28, 28)
    assert image_size({}, (3, 37, 52)) == (3, 35, 50)  # patches of 5 divide it
    assert image_size({}, (3, 3000, 4000)) == (3, 224, 224)
    assert image_size({"patch": 8}, (1, 28, 28)) == (1, 24, 24)
    assert image_size({"height": 14, "channels": 3}, (1, 28, 28)) == (3, 14, 28)


def test_images_of_several_sizes_learn_too(tmp_path: Path) -> None:
    for side, size in (("left", 9), ("right", 13)):
        (tmp_path / "data" / side).mkdir(parents=True)
        for i in range(6):
            bright(side, i).resize((size, size + 1)).save(tmp_path / "data" / side / f"{i}.jpg")
    recipe = recipe_for_files([tmp_path / "data"], model="image-classifier")
    run = regard.train(
        recipe, out=tmp_path / "run", overrides=SMALL | {"data.validation": 2, "training.steps": 2}, quiet=True
    )
    assert run.load(device="cpu").classify(bright("left", 1)).label in ("left", "right")


def test_augmentation_depends_on_the_image_and_the_epoch_only() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (10, 3, 6, 5), dtype=np.uint8)
    images = make_images(pixels, ["a", "b"] * 5, name="test")
    options: dict[str, Any] = {"batch_tokens": 40, "row_tokens": 10, "seed": 3}
    data = ImageData(images, [0, 1] * 5, shift=1, flip=True, **options)
    first, again = data.collate([2, 7], 0), data.collate([7, 1, 2], 0)
    assert torch.equal(first.source[0], again.source[2]) and torch.equal(first.source[1], again.source[0])
    assert not torch.equal(data.collate(range(10), 0).source, data.collate(range(10), 1).source)
    flips = {False: 0, True: 0}
    for i in range(10):  # each is the image, moved by up to one pixel with the edge repeated, perhaps mirrored
        seen = data.collate([i], 0).source[0].numpy()
        padded = np.pad(pixels[i], ((0, 0), (1, 1), (1, 1)), mode="edge")
        candidates = {
            (down, right, flip): np.flip(cut, -1) if flip else cut
            for down in range(3)
            for right in range(3)
            for flip in (False, True)
            for cut in [padded[:, down : down + 6, right : right + 5]]
        }
        matches = [key for key, cut in candidates.items() if np.array_equal(cut, seen)]
        assert matches, i
        flips[matches[0][2]] += 1
    assert min(flips.values()) > 0
    plain = ImageData(images, [0, 1] * 5, **options).collate([2, 7], 0)
    np.testing.assert_array_equal(plain.source.numpy(), pixels[[2, 7]])
    assert plain.labels.tolist() == [[0], [1]] and plain.fixed


def test_erasing_covers_one_rectangle_of_a_share_of_the_images() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (400, 1, 8, 12), dtype=np.uint8)
    images = make_images(pixels, ["a", "b"] * 200, name="test")
    data = ImageData(images, [0, 1] * 200, erase=0.25, batch_tokens=40, row_tokens=10, seed=3)
    seen = data.collate(range(400), 0).source.numpy()
    changed = [i for i in range(400) if not np.array_equal(seen[i], pixels[i])]
    assert 70 < len(changed) < 130  # a quarter of 400, give or take three standard deviations
    heights, widths = set(), set()
    for i in changed:
        rows, columns = np.nonzero(seen[i, 0] != pixels[i, 0])
        part = seen[i, 0, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert len(np.unique(part)) == 1
        heights.add(part.shape[0])
        widths.add(part.shape[1])
    assert heights == {1, 2, 3, 4} and widths == {1, 2, 3, 4, 5, 6}
    assert torch.equal(data.collate([changed[0]], 0).source[0], torch.from_numpy(seen[changed[0]]))
    assert not np.array_equal(data.collate(range(400), 1).source.numpy(), seen)


@pytest.mark.parametrize("mix", ["mixup", "cutmix"])
def test_a_mixture_has_the_classes_of_both_images_by_their_shares(mix: str) -> None:
    """Images of one grey each: the mean of the greys by the weight says what each pixel shows."""
    greys = np.linspace(0, 250, 100).astype(np.uint8)
    pixels = np.tile(greys[:, None, None, None], (1, 1, 8, 10))
    images = make_images(pixels, ["a"] * 100, name="test")
    data = ImageData(images, list(range(100)), mix=mix, batch_tokens=1000, row_tokens=10, seed=3)
    batch = data.collate(range(100), 0)
    own, other, weight = batch.labels.T
    share = weight / 2**16
    assert own.tolist() == list(range(100)) and len(other.unique()) > 40
    assert float(share.min()) < 0.3 and float(share.max()) > 0.9 and 0.4 < float(share.mean()) < 0.75
    first, second = (torch.from_numpy(pixels)[label].float() for label in (own, other))
    if mix == "mixup":
        share = share[:, None, None, None]
        torch.testing.assert_close(batch.source.float(), share * first + (1 - share) * second, atol=0.51, rtol=0)
    else:
        assert ((batch.source == first) | (batch.source == second)).all()
        differs = own != other
        torch.testing.assert_close((batch.source == first).float().mean((1, 2, 3))[differs], share[differs])
    assert torch.equal(data.collate([7], 0).source[0], batch.source[7])  # whatever the batch
    logits = torch.randn(100, 100)
    target = torch.zeros(100, 100)  # shares of the classes
    target.scatter_add_(1, torch.stack([own, other], dim=1), torch.stack([weight, 2**16 - weight], dim=1) / 2**16)
    for smoothing in (0.0, 0.1):
        expected = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
        torch.testing.assert_close(image_label_loss(logits, batch.labels, smoothing=smoothing).total, expected)


def test_loss_is_the_cross_entropy_and_unknown_labels_count_as_wrong() -> None:
    torch.manual_seed(0)
    config = regard.ImageClassifierConfig(
        vocabulary=7, height=4, width=4, channels=1, patch=2, layers=1, dim=8, heads=2, hidden=8
    )
    model = regard.VisionTransformer(config).eval()
    images = make_images(np.random.default_rng(0).integers(0, 255, (3, 1, 4, 4), dtype=np.uint8), ["a"] * 3, name="x")
    batch = ImageData(images, [0, 2, -3], batch_tokens=40, row_tokens=5).collate([0, 1, 2], 0)
    loss = image_loss(model, batch)
    logits = model(batch.source)[:2]
    torch.testing.assert_close(loss.total, F.cross_entropy(logits, torch.tensor([0, 2]), reduction="sum"))
    assert loss.correct is not None and int(loss.correct) == int((logits.argmax(1) == torch.tensor([0, 2])).sum())
    empty = image_loss(model, ImageData(images, [0, 1, 2], batch_tokens=40, row_tokens=5).collate([], 0))
    assert float(empty.nll) == 0 and empty.tokens == 0


def test_copies_of_an_image_stay_in_one_part() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (20, 1, 2, 2), dtype=np.uint8)
    images = make_images(np.concatenate([pixels, pixels]), ["a", "b"] * 20, name="twice")
    corpora = split_images(images, 10, seed=1)
    assert len(corpora.validation) == 10 and len(corpora.train) + len(corpora.validation) == 40
    held_out = {image.tobytes() for image in corpora.validation.pixels}
    assert not held_out & {image.tobytes() for image in corpora.train.pixels}
    with pytest.raises(DataError, match="leaves none to train on"):
        split_images(images, 40, seed=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.patch": 3, "model.height": 8}, "patch=3 does not divide"),
        ({"data.copy": 0.1}, "reads no text"),
        ({"data.rows": 5}, "data.rows"),
        ({"model.position_axes": 1}, "is a setting of position = 'sinusoidal'"),
        ({"training.r_drop": 1.0}, "predicts no tokens"),
    ],
)
def test_wrong_settings(folder: Path, tmp_path: Path, settings: Any, message: str) -> None:
    recipe = recipe_for_files([folder], model="image-classifier")
    with pytest.raises(UsageError, match=message):
        regard.train(recipe, out=tmp_path / "run", overrides=SMALL | settings, quiet=True)


def test_a_folder_needs_the_kind(folder: Path) -> None:
    with pytest.raises(UsageError, match="give --model image-classifier"):
        recipe_for_files([folder])
