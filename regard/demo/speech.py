"""Demo speech: digits spoken by a small synthesiser with several voices. Free of rights.

A word is a sequence of phones. A voiced phone is a sum of harmonics of the voice's pitch, each as loud as the
resonances of the mouth (formants) make its frequency; a noisy one is noise of a band of frequencies. Formants glide
from phone to phone. This is crude, but the words differ in the way that spoken ones do.

    S samples   P phones of a word   K harmonics
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.arrays.speech.recordings import Recordings, make_recordings
from regard.arrays.speech.wave_file import Samples

RATE = 8_000  # Hz
GLIDE = 0.03  # seconds in which formants and loudness change from one phone to the next
GAP = 0.12  # seconds between two words
FORMANT_WIDTHS = (90.0, 120.0, 180.0)  # Hz
VOICES = 6
VARIATION = 0.08  # of pitch, formants and durations, from one word to the next


class Phone(NamedTuple):
    """A sound of speech."""

    seconds: float
    voice: float  # loudness of the harmonics
    formants: tuple[float, float, float]  # Hz
    noise: float = 0.0  # loudness
    band: tuple[float, float] = (0.0, 4000.0)  # of the noise, Hz


CLOSED = (300.0, 1000.0, 2400.0)
PHONES = {
    "ah": Phone(0.12, 1.0, (640, 1190, 2390)),
    "ao": Phone(0.16, 1.0, (570, 840, 2410)),
    "eh": Phone(0.10, 1.0, (530, 1840, 2480)),
    "ih": Phone(0.08, 0.9, (390, 1990, 2550)),
    "iy": Phone(0.16, 0.9, (270, 2290, 3010)),
    "ow": Phone(0.14, 1.0, (450, 880, 2400)),
    "uw": Phone(0.18, 0.9, (300, 870, 2240)),
    "aa": Phone(0.12, 1.0, (730, 1090, 2440)),
    "ey": Phone(0.10, 1.0, (480, 2000, 2600)),
    "r": Phone(0.08, 0.7, (330, 1060, 1380)),
    "w": Phone(0.08, 0.6, (290, 610, 2150)),
    "n": Phone(0.10, 0.4, (250, 1350, 2200)),
    "v": Phone(0.07, 0.3, (280, 1100, 2300), 0.06, (500, 3500)),
    "z": Phone(0.09, 0.25, (280, 1600, 2500), 0.25, (2500, 4000)),
    "s": Phone(0.13, 0.0, (300, 1600, 2500), 0.35, (2700, 4000)),
    "f": Phone(0.11, 0.0, (300, 1100, 2300), 0.10, (800, 3900)),
    "th": Phone(0.10, 0.0, (300, 1400, 2500), 0.09, (1300, 3600)),
    "t": Phone(0.03, 0.0, (300, 1800, 2600), 0.5, (1800, 4000)),
    "k": Phone(0.03, 0.0, (300, 1900, 2400), 0.5, (1000, 2400)),
    "-": Phone(0.05, 0.0, CLOSED),  # the mouth is closed before t and k
}
WORDS = {
    "zero": "z ih r ow",
    "one": "w ah n",
    "two": "- t uw",
    "three": "th r iy",
    "four": "f ao r",
    "five": "f aa ih v",
    "six": "s ih - k s",
    "seven": "s eh v eh n",
    "eight": "ey ih - t",
    "nine": "n aa ih n",
}


def demo_speech(count: int, *, seed: int = 1, name: str = "demo speech") -> Recordings:
    """Return `count` recordings of one digit each, with its name as text; digits and voices take turns."""
    generator = np.random.Generator(np.random.PCG64(seed))
    words = list(WORDS)
    texts = [words[i % len(words)] for i in range(count)]
    audio = [speak_word(text, i // len(words) % VOICES, generator) for i, text in enumerate(texts)]
    return make_recordings(audio, texts, RATE, name=name)


def speak(text: str, *, voice: int = 0, seed: int = 0) -> Samples:
    """Return the sound (S,) of digits such as "three one four", at 8,000 Hz."""
    generator = np.random.Generator(np.random.PCG64(seed))
    parts: list[Samples] = []
    for word in text.split():
        if word not in WORDS:
            raise ValueError(f"the demo can say {', '.join(WORDS)}, not {word!r}")
        silence = np.zeros(int(RATE * GAP * generator.uniform(0, 1)) if parts else 0, np.float32)
        parts += [silence, speak_word(word, voice, generator)]
    return np.concatenate(parts)


def speak_word(word: str, voice: int, generator: np.random.Generator) -> Samples:
    """Return the sound (S,) of a word by one of the voices, a little different each time."""
    pitch, size = voice_of(voice)
    phones = [PHONES[phone] for phone in WORDS[word].split()]
    vary = 1 + VARIATION * generator.uniform(-1, 1, size=3)
    seconds = np.array([phone.seconds for phone in phones]) * vary[0]
    seconds *= 1 + 2 * VARIATION * generator.uniform(-1, 1, size=len(phones))
    ends = np.cumsum(seconds)
    moments = np.arange(int(ends[-1] * RATE)) / RATE  # (S,)
    formants = _glide(moments, ends, [phone.formants for phone in phones]) * size * vary[1]  # (S, 3)
    loudness = _glide(moments, ends, [(phone.voice,) for phone in phones])[:, 0]
    falling = 1.08 - 0.16 * moments / ends[-1]  # the pitch falls towards the end
    sound = _harmonics(pitch * vary[2] * falling, formants) * loudness
    for i, phone in enumerate(phones):
        if phone.noise:
            alone = [(float(i == j) * phone.noise,) for j in range(len(phones))]
            sound += _noise(len(moments), phone.band, generator) * _glide(moments, ends, alone)[:, 0]
    sound += 0.003 * generator.standard_normal(len(sound))
    return (0.3 * generator.uniform(0.5, 1) * sound / np.abs(sound).max()).astype(np.float32)


def voice_of(number: int) -> tuple[float, float]:
    """Return the pitch of a voice in Hz, and the factor of its formants: a shorter mouth has higher ones."""
    share = number % VOICES / (VOICES - 1)
    return 95.0 + 130.0 * share, 0.92 + 0.22 * share


def _glide(moments: NDArray, ends: NDArray, values: Sequence[Sequence[float]]) -> NDArray:
    """Return values (P, ·) of phones that end at these times as a function of time, (S, ·)."""
    starts = np.concatenate([[0.0], ends[:-1]])
    width = np.minimum(GLIDE, (ends - starts) / 2)
    times = np.stack([starts + width / 2, ends - width / 2], axis=1).flatten()  # a phone is steady between these
    columns = np.repeat(np.asarray(values, float), 2, axis=0).T
    return np.stack([np.interp(moments, times, column) for column in columns], axis=1)


def _harmonics(pitch: NDArray, formants: NDArray) -> NDArray:
    """Return the sum of all harmonics of a pitch (S,) below half the rate, through formants (S, 3)."""
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    sound = np.zeros(len(pitch))
    for k in range(1, int(RATE / 2 / pitch.max()) + 1):
        frequency = k * pitch  # (S,)
        gain = sum(
            1 / (2**i * (1 + ((frequency - formants[:, i]) / width) ** 2)) for i, width in enumerate(FORMANT_WIDTHS)
        )
        sound += gain * np.sin(k * phase)
    return sound


def _noise(count: int, band: tuple[float, float], generator: np.random.Generator) -> NDArray:
    """Return noise (S,) of a band of frequencies, with a deviation of 1."""
    spectrum = np.fft.rfft(generator.standard_normal(count))
    frequencies = np.fft.rfftfreq(count, 1 / RATE)
    noise = np.fft.irfft(np.where((frequencies >= band[0]) & (frequencies <= band[1]), spectrum, 0), count)
    return noise / max(noise.std(), 1e-9)
