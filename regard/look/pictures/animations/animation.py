"""Write frames as an animated GIF, or as an MP4 video with the program ffmpeg."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from regard.errors import UsageError

ANIMATED = (".gif", ".mp4")
DPI = 110
COLOURS = 256  # of a GIF
VIDEO_FPS = 20  # a frame that lasts longer is repeated


class Frame(NamedTuple):
    """A figure and how long it is shown."""

    figure: Figure
    seconds: float


def save_animation(frames: Iterable[Frame], path: Path) -> Path:
    """Write the frames, which all have the same size, as a GIF that repeats or as an MP4 video, by the suffix."""
    images, seconds = [], []
    for frame in frames:
        images.append(pixels(frame.figure))
        seconds.append(frame.seconds)
    data = mp4(images, seconds, path) if path.suffix.lower() == ".mp4" else gif(images, seconds)
    try:
        path.write_bytes(data)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise UsageError(f"cannot write {path}: {error.strerror or error}; choose another file") from error
    return path


def pixels(figure: Figure) -> Image.Image:
    """Render a figure."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def gif(images: list[Image.Image], seconds: list[float]) -> bytes:
    """Return an animated GIF; all frames share one palette, so that nothing flickers."""
    palette = shared_palette(images)
    first, *others = (with_palette(image, palette) for image in images)
    milliseconds = [round(1000 * duration) for duration in seconds]
    buffer = BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=milliseconds, loop=0, disposal=1)
    return buffer.getvalue()


def shared_palette(images: list[Image.Image]) -> list[int]:
    """Return the red, green and blue of the colours that suit all frames, and white as the last one."""
    width, height = images[0].size
    small = (width // 3, height // 3)
    sheet = Image.new("RGB", (small[0], small[1] * len(images)))
    for i, image in enumerate(images):
        sheet.paste(image.resize(small, Image.Resampling.NEAREST), (0, i * small[1]))
    colours = sheet.quantize(COLOURS - 1, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).getpalette() or []
    return [*colours[: 3 * (COLOURS - 1)], 255, 255, 255]


def with_palette(image: Image.Image, colours: list[int]) -> Image.Image:
    """Return an image in these colours; white paper stays exactly white."""
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours)
    indices = np.array(image.quantize(palette=palette, dither=Image.Dither.NONE))
    indices[(np.asarray(image) == 255).all(-1)] = len(colours) // 3 - 1
    result = Image.fromarray(indices, mode="P")
    result.putpalette(colours)
    return result


def mp4(images: list[Image.Image], seconds: list[float], path: Path) -> bytes:
    """Return an MP4 video made by ffmpeg; UsageError if ffmpeg is not installed or fails."""
    program = shutil.which("ffmpeg")
    if program is None:
        raise UsageError(f"{path}: videos need the program ffmpeg, which is not installed; write a .gif instead")
    width, height = images[0].size
    raw = b"".join(
        image.tobytes() * max(1, round(VIDEO_FPS * duration)) for image, duration in zip(images, seconds, strict=True)
    )
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(VIDEO_FPS), "-i", "-"]
    # Most players need even sizes and colours in this format.
    format_for_players = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white", "-pix_fmt", "yuv420p"]
    with TemporaryDirectory() as folder:
        video = Path(folder) / "video.mp4"
        command = [program, "-v", "error", "-y", *source, *format_for_players, "-movflags", "+faststart", str(video)]
        done = subprocess.run(command, input=raw, capture_output=True)
        if done.returncode != 0 or not video.exists():
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            reason = said[-1] if said else f"exit code {done.returncode}"
            raise UsageError(f"ffmpeg could not make {path}: {reason}; write a .gif instead")
        return video.read_bytes()
