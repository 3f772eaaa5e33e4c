"""Read and write WAV files with PCM samples: 8, 16, 24 or 32 bits, any rate, any number of channels.

S samples   C channels
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.text.files.compressed import missing_file

Samples = NDArray[np.float32]  # (S,), from -1 to 1

MAX_BYTES = 2**30  # of one file; a longer recording is a mistake or an attack
MAX_CHANNELS = 64
RATES = range(1_000, 400_000)  # samples in a second
UNKNOWN_SIZES = (0, 2**31 - 1, 2**32 - 1)  # of the sound, in the header of a WAV that a program wrote to a pipe
NOT_WAV = "not a WAV file, which begins with RIFF and WAVE"
CONVERT = "convert it, for example with: ffmpeg -i INPUT -c:a pcm_s16le OUTPUT.wav"


def read_wave(path: str | Path) -> tuple[Samples, int]:
    """Return the samples of a WAV file and its rate; channels are averaged. DataError if it cannot be read."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path}: longer than {MAX_BYTES // 2**20:,} MB: split the recording")
        if not path.stat().st_size:
            raise DataError(f"{path}: the file is empty")
        with wave.open(str(path), "rb") as file:
            channels, width, rate, declared = file.getparams()[:4]
            _check_header(path, channels, width, rate)
            content = file.readframes(MAX_BYTES // (channels * width))
    except FileNotFoundError:
        raise DataError(missing_file(path)) from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder: give a WAV file") from None
    except (EOFError, RuntimeError):  # RuntimeError: a chunk of the file says that it ends before it begins
        if path.read_bytes()[:4] != b"RIFF":
            raise DataError(f"{path}: {NOT_WAV}: {CONVERT}") from None
        raise DataError(f"{path}: the WAV file is truncated: it ends inside its header") from None
    except wave.Error as error:
        raise DataError(f"{path}: {_explain(str(error))}") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    frame = channels * width
    count = len(content) // frame
    if count < declared and declared * frame not in range(min(UNKNOWN_SIZES[1:]) - frame, UNKNOWN_SIZES[2] + 1):
        raise DataError(f"{path}: the WAV file is truncated: {count:,} of {declared:,} samples are there")
    if not count:
        raise DataError(f"{path}: the recording has no samples")
    numbers = _numbers(content[: count * frame], width).reshape(count, channels)
    return numbers.mean(axis=1, dtype=np.float64).astype(np.float32), rate


def write_wave(path: str | Path, samples: NDArray, rate: int) -> Path:
    """Write samples (S,) from -1 to 1 as a mono WAV file of 16 bits; larger ones are clipped."""
    path = Path(path)
    integers = np.clip(np.round(np.asarray(samples) * 2**15), -(2**15), 2**15 - 1).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(integers.tobytes())
    return path


def _check_header(path: Path, channels: int, width: int, rate: int) -> None:
    if not 1 <= channels <= MAX_CHANNELS:
        raise DataError(f"{path}: {channels} channels are not between 1 and {MAX_CHANNELS}: the header is damaged")
    if not 1 <= width <= 4:
        raise DataError(f"{path}: samples of {8 * width} bits are not of 8, 16, 24 or 32: the header is damaged")
    if rate not in RATES:
        raise DataError(f"{path}: a rate of {rate} Hz is not between {RATES.start:,} and {RATES.stop:,}")


def _explain(problem: str) -> str:
    """Say in words what the module `wave` found wrong."""
    if problem.startswith("unknown format"):
        return f"its samples are compressed or floating-point numbers ({problem}), and only PCM can be read: {CONVERT}"
    if "RIFF" in problem or "WAVE" in problem:
        return f"{NOT_WAV}: {CONVERT}"
    return f"the WAV file is damaged ({problem}): record or download it again"


def _numbers(content: bytes, width: int) -> NDArray[np.float32]:
    """Return the samples of `width` bytes as numbers from -1 to 1; 8 bits are unsigned, the others signed."""
    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float32) - 128) / np.float32(128)
    if width == 3:  # into the upper three bytes of 32 bits
        padded = np.zeros((len(content) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
        return (padded.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
    integers = np.frombuffer(content, f"<i{width}")
    return (integers / 2.0 ** (8 * width - 1)).astype(np.float32)
