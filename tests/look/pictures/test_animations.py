"""Animations: what each frame shows, the files that they become, and messages when they cannot."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from typer.testing import CliRunner

from regard.cli import app
from regard.errors import UsageError
from regard.look.inside.random_features import compare_features, jane_head, relative_error
from regard.look.lecture_examples import jane_flow
from regard.look.pictures.animations.animation import VIDEO_FPS, Frame, save_animation
from regard.look.pictures.animations.attention_rows import PHASES, attention_rows_figure, attention_rows_frames
from regard.look.pictures.animations.beam_search import beam_search_frames
from regard.look.pictures.animations.converging_features import COUNTS, converging_features_frames
from regard.look.pictures.animations.unrolling import unrolled_sentence, unrolling_figure, unrolling_frames
from regard.look.pictures.drawing.figures import new_figure
from regard.look.pictures.search_steps import tree_depth, tree_plot
from regard.look.trace.trace import Trace

SCENES = Path(__file__).parents[3] / "regard/look/page/static/scenes"


def texts(figure: Figure) -> list[str]:
    axes = [text.get_text() for axes in figure.axes for text in (*axes.texts, axes.title)]
    return [*axes, *(text.get_text() for text in figure.texts)]


def count_numbers(shown: list[str]) -> int:
    return len([text for text in shown if text[1:2] == "." and len(text) == 4])


def small_frames() -> list[Frame]:
    """Two frames, 60 x 40 dots: white, then half orange."""
    frames = []
    for share in (0.0, 0.5):
        figure = new_figure(60 / 110, 40 / 110, layout=None)
        figure.add_axes((0, 0, max(share, 0.001), 1)).set(facecolor="#d9730d", xticks=[], yticks=[])
        frames.append(Frame(figure, 0.5 + share))
    return frames


def test_attention_appears_row_by_row() -> None:
    flow = jane_flow()
    for row, phase, numbers in ((0, "scores", 45 + 5), (0, "weights", 45 + 10), (2, "output", 45 + 3 * 13)):
        assert count_numbers(texts(attention_rows_figure(flow, row, phase))) == numbers
    last = texts(attention_rows_figure(flow, 5, ""))
    assert count_numbers(last) == 4 * 15 + 2 * 25  # Q, K, V and the output; scores and weights
    assert all(f"{float(weight):.2f}" in last for weight in flow.weights.flatten())
    assert len(list(attention_rows_frames())) == len(PHASES) * 5 + 1


def test_unrolled_states_and_influence_are_computed() -> None:
    net = unrolled_sentence()
    assert net.states.shape == (6, 6) and not net.states[0].any()
    assert net.influence == sorted(net.influence)  # early words fade
    last = texts(unrolling_figure(net, 5, left=True))
    assert all(f"{value:.3f}" in last for value in net.influence)
    assert texts(unrolling_figure(net, 2)).count("RNN") == 2
    assert len(list(unrolling_frames())) == 7


def test_unrolling_changes_no_random_numbers() -> None:
    state = torch.random.get_rng_state()
    unrolled_sentence()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_beam_search_proposes_then_decides() -> None:
    trace = Trace.load(SCENES / "slides.json")
    assert trace.tree is not None
    depth = tree_depth(trace.tree)
    frames = list(beam_search_frames(trace))
    assert len(frames) == 2 * depth + 1
    shown = [len(frame.figure.axes[0].texts) for frame in frames]
    assert shown == sorted(shown) and shown[-1] == len(trace.tree.nodes)
    assert shown[0] == len([node for node in trace.tree.nodes if node.parent is None])
    assert texts(frames[-1].figure) == texts(tree_plot(trace))
    assert len({tuple(frame.figure.get_size_inches()) for frame in frames}) == 1


def test_features_converge() -> None:
    frames = list(converging_features_frames())
    assert len(frames) == len(COUNTS) == 19
    errors = [float(frame.figure.axes[2].get_title().removeprefix("error ")) for frame in frames]
    estimates = compare_features(jane_head(), features=COUNTS[-1])
    assert errors[-1] == pytest.approx(relative_error(estimates.corrected, estimates.exact), abs=5e-4)
    assert errors[-1] < errors[0] / 20


def test_a_gif_has_all_frames_and_white_paper(tmp_path: Path) -> None:
    path = save_animation(small_frames(), tmp_path / "a.gif")
    with Image.open(path) as image:
        assert (image.n_frames, image.size, image.info["loop"]) == (2, (60, 40), 0)
        assert image.info["duration"] == 500
        image.seek(1)
        assert image.info["duration"] == 1000
        pixels = np.asarray(image.convert("RGB")).astype(int)
    assert (pixels[:, 45:] == 255).all()
    assert np.abs(pixels[5:35, 5:25] - (0xD9, 0x73, 0x0D)).max() < 8
    assert path.read_bytes() == save_animation(small_frames(), tmp_path / "b.gif").read_bytes()


def fake_ffmpeg(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Put a program called ffmpeg on the path; it runs the code with `raw` and `video`."""
    program = folder / "ffmpeg"
    prefix = "import sys\nraw, video = sys.stdin.buffer.read(), sys.argv[-1]\n"
    program.write_text(f"#!{sys.executable}\n{prefix}{code}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_video_gets_each_frame_for_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ffmpeg(tmp_path, monkeypatch, "open(video, 'w').write(f'{len(raw)} {sys.argv[sys.argv.index(\"-s\") + 1]}')")
    path = save_animation(small_frames(), tmp_path / "a.mp4")
    assert path.read_text() == f"{60 * 40 * 3 * VIDEO_FPS * 3 // 2} 60x40"  # 0.5 and 1 second


def test_a_video_without_ffmpeg_or_with_a_failing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ffmpeg(tmp_path, monkeypatch, "sys.exit('no such encoder')")
    with pytest.raises(UsageError, match=r"ffmpeg could not make .*a\.mp4: no such encoder; write a \.gif"):
        save_animation(small_frames(), tmp_path / "a.mp4")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"videos need the program ffmpeg, which is not installed; write a \.gif"):
        save_animation(small_frames(), tmp_path / "a.mp4")
    with pytest.raises(UsageError, match="cannot write"):
        save_animation(small_frames(), tmp_path / "nowhere/a.gif")


def test_a_picture_that_does_not_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["plot", "growth", "-o", "growth.gif"])
    assert result.exit_code == 2
    assert "the picture growth does not move; use .png, .svg or .pdf" in result.stderr
    result = CliRunner().invoke(app, ["plot", "unrolling", "-o", "unrolling.gif"])
    assert (result.exit_code, result.stdout) == (0, "unrolling.gif\n")
    assert Path("unrolling.gif").read_bytes().startswith(b"GIF89a")
