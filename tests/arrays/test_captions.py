"""Images and videos with captions from files: what is read, in which order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.arrays.caption_batches import CaptionData
from regard.arrays.captions import evenly, make_captioned, read_captioned, read_frames
from regard.errors import DataError
from regard.text.tokenizers.special_tokens import END, PAD, START


def grey(level: int) -> Image.Image:
    return Image.new("L", (6, 4), level)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A PNG image, a GIF of four frames, and a folder of frames 2, 10 and 11."""
    grey(10).save(tmp_path / "a.png")
    grey(20).save(tmp_path / "b.gif", save_all=True, append_images=[grey(level) for level in (40, 60, 80)])
    (tmp_path / "c").mkdir()
    for number, level in ((2, 5), (10, 50), (11, 55)):
        grey(level).save(tmp_path / "c" / f"frame{number}.png")
    (tmp_path / "captions.tsv").write_text("a.png\ta  dark square\n\nb.gif\tit brightens\nc\tit jumps\n")
    return tmp_path


def test_images_gifs_and_folders_of_frames(folder: Path) -> None:
    videos = read_captioned([folder], frames=3)
    assert videos.captions == ["a dark square", "it brightens", "it jumps"]
    assert videos.pixels.shape == (3, 3, 1, 4, 6)
    assert videos.pixels[:, :, 0, 0, 0].tolist() == [[10, 10, 10], [20, 60, 80], [5, 50, 55]]  # in order of the numbers
    assert videos.select([2]).captions == ["it jumps"] and videos.select([2]).names == [str(folder / "c")]
    images = read_captioned([folder / "captions.tsv"], frames=1, size=(3, 8, 8), skip=True)  # a folder is no image
    assert images.pixels.shape == (2, 1, 3, 8, 8) and "resized" in images.report.changes[0]


def test_frames_are_spread_evenly() -> None:
    assert evenly(range(7), 4) == [0, 2, 4, 6]
    assert evenly(range(2), 4) == [0, 1, 1, 1]
    assert evenly(range(9), 1) == [0]


def test_an_animation_has_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file can have many large frames, and each is decoded."""
    monkeypatch.setattr("regard.arrays.captions.MAX_VIDEO_PIXELS", 10)
    with pytest.raises(DataError, match=r"b\.gif: 4 frames of .* are more than 10 in all"):
        read_frames(folder / "b.gif", 3)
    assert len(read_frames(folder / "b.gif", 1)) == 1


def test_what_is_wrong_is_named(folder: Path) -> None:
    captions = folder / "captions.tsv"
    for line, message in (
        ("a.png a square", r"captions\.tsv:1: a tab between path and caption is missing"),
        ("a.png\t ", r"captions\.tsv:1: the caption is missing"),
        ("\ta square", r"captions\.tsv:1: the path is missing"),
        ("d.png\ta square", r"d\.png: no such file"),
        ("../d.png\ta square", "outside the folder"),
        ("c\ta video", "reads single images"),
        ("", "there are no captions"),
    ):
        captions.write_text(line + "\n")
        with pytest.raises(DataError, match=message):
            read_captioned([folder], frames=1)
    (folder / "e.png").write_bytes((folder / "a.png").read_bytes()[:40])
    captions.write_text("e.png\tbroken\na.png\ta square\n")
    with pytest.raises(DataError, match=r"e\.png.*skip"):
        read_captioned([folder], frames=1)
    assert "1 images cannot be read" in read_captioned([folder], frames=1, skip=True).report.changes[0]
    captions.unlink()
    with pytest.raises(DataError, match="captions are missing"):
        read_captioned([folder], frames=1)
    grey(1).save(folder / "c" / "first.png")
    captions.write_text("c\ta video\n")
    with pytest.raises(DataError, match="have numbers"):
        read_captioned([folder], frames=2)


def test_batches_of_captions() -> None:
    pixels = np.arange(3, dtype=np.uint8).reshape(3, 1, 1, 1, 1).repeat(2, 3).repeat(2, 4)
    data = CaptionData(
        make_captioned(pixels, ["x", "y z", ""], name="test"),
        [[7], [8, 9], []],
        batch_tokens=8,
        row_tokens=4,
        shuffle=False,
    )
    first, second = data.batches(0)
    assert first.source is not None and first.source[:, 0, 0, 0, 0].tolist() == [0, 1]
    assert first.inputs.tolist() == [[START, 7, PAD], [START, 8, 9]]
    assert first.labels.tolist() == [[7, END, PAD], [8, 9, END]]
    assert (first.tokens, second.tokens) == (5, 1) and first.inputs.shape[1] == second.inputs.shape[1]
    parts = [next(data.batches(0, rank=rank, world=2)) for rank in range(2)]
    assert [part.ids for part in parts] == [[0], [1]] and {part.global_tokens for part in parts} == {5}
