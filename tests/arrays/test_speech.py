"""Reading recordings, log-mel frames and batches of them: values of librosa, and clear errors for broken files."""

from __future__ import annotations

import math
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.arrays.speech.augment import Augmentation
from regard.arrays.speech.batches import SpeechData
from regard.arrays.speech.mel import PADDING, LogMel, mel_filters, to_hertz, to_mel
from regard.arrays.speech.recordings import Recordings, make_recordings, read_recordings
from regard.arrays.speech.resample import resample
from regard.arrays.speech.wave_file import read_wave, write_wave
from regard.errors import DataError
from regard.text.tokenizers.special_tokens import END, START
from regard.text.tokenizers.words import train_words

# librosa 0.11.0: np.log(librosa.feature.melspectrogram(y=y, sr=8000, n_fft=256, hop_length=80, win_length=200,
# n_mels=20, pad_mode="constant")) of the sound below, at frames 0 and 25, the last one.
LIBROSA = {
    0: """
        -1.8410 -1.3121 0.4311 1.5252 0.5224 -1.7698 -3.0511 -3.9003 -4.5113 -5.0660
        -5.5890 -6.0662 -6.5151 -6.9520 -7.3526 -7.7214 -8.0591 -8.3479 -8.5802 -8.7367
    """,
    25: """
        -2.1569 -1.6549 0.1727 1.2011 -0.6417 -4.4426 -1.9247 -0.1946 -1.3955 -3.4816
        -4.4444 -5.1357 -5.7146 -6.2363 -6.6946 -7.1044 -7.4713 -7.7810 -8.0276 -8.1928
    """,
}


def tone(hertz: float, seconds: float = 0.25, rate: int = 8000) -> Any:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def write_pcm(path: Path, integers: Any, *, width: int, channels: int = 1, rate: int = 8000) -> Path:
    content = b"".join(int(value).to_bytes(4, "little", signed=True)[:width] for value in integers)
    if width == 1:
        content = bytes(int(value) + 128 for value in integers)
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(content)
    return path


def test_log_mel_frames_are_those_of_librosa() -> None:
    t = np.arange(2000) / 8000
    sound = 0.5 * np.sin(2 * np.pi * 440 * t) + 0.25 * np.sin(2 * np.pi * (500 + 800 * t) * t)
    frames = LogMel(rate=8000, bands=20)(torch.from_numpy(sound.astype(np.float32))[None])[0]
    assert frames.shape == (26, 20)
    for number, values in LIBROSA.items():
        torch.testing.assert_close(
            frames[number], torch.tensor([float(value) for value in values.split()]), atol=1e-3, rtol=0
        )
    loudest = frames.max()
    assert frames.min() == pytest.approx(float(loudest) - 8 * math.log(10), abs=1e-4)  # 80 dB


def test_mel_scale_and_filters() -> None:
    # Slaney's scale, from librosa.hz_to_mel: linear up to 1 kHz.
    assert to_mel(np.array([60, 1000, 4000, 8000])) == pytest.approx([0.9, 15, 35.16376031, 45.24564047])
    assert to_hertz(to_mel(np.array([60.0, 3000.0]))) == pytest.approx([60, 3000])
    filters = mel_filters(16000, 512, 40)
    assert filters.shape == (40, 257) and (filters >= 0).all() and (filters.sum(1) > 0).all()
    peaks = filters.argmax(1)
    assert (np.diff(peaks) > 0).all() and (filters[5, : peaks[4]] == 0).all()  # a band begins where another peaks


def test_frames_and_filters_are_those_of_transformers() -> None:
    from transformers import audio_utils as audio

    for rate, points, bands in ((8000, 256, 40), (16000, 512, 80)):
        filters = audio.mel_filter_bank(points // 2 + 1, bands, 0, rate / 2, rate, norm="slaney", mel_scale="slaney")
        np.testing.assert_allclose(mel_filters(rate, points, bands), filters.T, atol=1e-9)
    sound = np.random.default_rng(1).normal(size=4000)
    expected = audio.spectrogram(
        sound,
        audio.window_function(400, "hann", frame_length=512),
        frame_length=512,
        hop_length=160,
        fft_length=512,
        power=2.0,
        pad_mode="constant",
        mel_filters=filters,
        mel_floor=1e-10,
        log_mel="log",
    )  # (bands, frames)
    frames = LogMel(rate=16000, bands=80)(torch.from_numpy(sound.astype(np.float32))[None])[0]
    np.testing.assert_allclose(frames.numpy(), expected.T, atol=1e-4)


def test_frames_do_not_depend_on_what_follows() -> None:
    log_mel = LogMel(rate=8000, bands=8)
    short = torch.from_numpy(tone(700, 0.1))
    padded = torch.zeros(2, 2400)
    padded[0, : len(short)], padded[1] = short, torch.randn(2400)
    together = log_mel(padded, torch.tensor([len(short), 2400]))
    alone = log_mel(short[None])[0]
    torch.testing.assert_close(together[0, : len(alone)], alone)
    assert (together[0, len(alone) :] == PADDING).all() and together[1].isfinite().all()
    assert log_mel.frames(len(short)) == len(alone) == 11


@pytest.mark.parametrize(("width", "scale"), [(1, 2**7), (2, 2**15), (3, 2**23), (4, 2**31)])
def test_pcm_of_every_width(tmp_path: Path, width: int, scale: int) -> None:
    values = [0, scale // 2, -scale // 2, scale - 1, -scale]
    samples, rate = read_wave(write_pcm(tmp_path / "a.wav", values, width=width, rate=11025))
    assert rate == 11025 and samples.dtype == np.float32
    assert samples == pytest.approx(np.array(values) / scale, abs=1e-6)
    stereo, _ = read_wave(
        write_pcm(tmp_path / "b.wav", [scale // 2, 0, -scale // 2, scale // 4], width=width, channels=2)
    )
    assert stereo == pytest.approx([0.25, -0.125], abs=1e-6)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    samples, rate = read_wave(write_wave(tmp_path / "a.wav", tone(300), 8000))
    assert rate == 8000 and samples == pytest.approx(tone(300), abs=2**-15)


def broken(content: bytes, change: str) -> bytes:
    if change == "truncated":
        return content[:-100]
    if change == "header":
        return content[:30]
    if change == "not PCM":
        return content[:20] + struct.pack("<H", 3) + content[22:]  # IEEE float
    if change == "no samples":
        return content[:40] + struct.pack("<I", 0)
    return {
        "empty": b"",
        "text": b"hello",
        "no WAV": b"MZ" + content,
        "rate": content[:24] + struct.pack("<I", 7) + content[28:],
    }[change]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("truncated", "truncated: 1,950 of 2,000 samples"),
        ("header", "truncated: it ends inside its header|damaged"),
        ("not PCM", r"only PCM can be read: convert it.*ffmpeg"),
        ("no samples", "no samples"),
        ("empty", "the file is empty"),
        ("no WAV", "not a WAV file"),
        ("text", "not a WAV file"),
        ("rate", "rate of 7 Hz"),
    ],
)
def test_broken_recordings_are_named(tmp_path: Path, change: str, message: str) -> None:
    path = write_wave(tmp_path / "7_a_0.wav", tone(300), 8000)
    path.write_bytes(broken(path.read_bytes(), change))
    with pytest.raises(DataError, match=f"7_a_0.wav.*({message})"):
        read_wave(path)
    write_wave(tmp_path / "8_a_0.wav", tone(300), 8000)
    with pytest.raises(DataError, match=r'data\.faults = "skip"'):
        read_recordings([tmp_path])
    kept = read_recordings([tmp_path], skip=True)
    assert kept.texts == ["8"] and "1 recordings are left out" in str(kept.report)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "no.wav", "no.wav"), (tmp_path, "is a folder")):
        with pytest.raises(DataError, match=message):
            read_wave(path)
    with pytest.raises(DataError, match="no WAV files"):
        read_recordings([tmp_path])
    with pytest.raises(DataError, match="neither a folder of WAV files nor a table"):
        read_recordings([write_wave(tmp_path / "a.wav", tone(300), 8000)])


def test_rates_are_changed_without_aliases() -> None:
    for rate, new in ((8000, 16000), (44100, 16000), (16000, 8000), (11025, 8000)):
        sound = resample(tone(1234, 0.1, rate), rate, new)
        assert len(sound) == math.ceil(int(0.1 * rate) * new / rate)
        assert sound[100:-100] == pytest.approx(tone(1234, 0.2, new)[100 : len(sound) - 100], abs=1e-4)
    assert np.abs(resample(tone(5000, 0.1, 16000), 16000, 8000))[100:-100].max() < 1e-4  # above half the new rate


def test_folders_and_tables(tmp_path: Path) -> None:
    write_wave(tmp_path / "3_jackson_0.wav", tone(300), 8000)
    write_wave(tmp_path / "hello.wav", tone(300, rate=16000), 16000)
    with pytest.raises(DataError, match=r"hello.wav: there is no transcript: write it to hello.txt"):
        read_recordings([tmp_path])
    (tmp_path / "hello.txt").write_text("hello\nworld\n")
    folder = read_recordings([tmp_path])
    assert folder.texts == ["3", "hello world"] and folder.rate in (8000, 16000)
    assert "1 recordings were resampled" in str(folder.report) and len({len(sound) for sound in folder.audio}) == 1
    (tmp_path / "a.tsv").write_text("path\ttext\nhello.wav\tguten Tag, Welt\n\n")
    (tmp_path / "a.csv").write_text('hello.wav,"good day, world"\n')
    both = read_recordings([tmp_path / "a.tsv", tmp_path / "a.csv"], 8000)
    assert both.texts == ["guten Tag, Welt", "good day, world"] and both.rate == 8000
    assert both.fingerprint == read_recordings([tmp_path / "a.tsv", tmp_path / "a.csv"], 8000).fingerprint
    for content, message in (
        ("hello.wav\n", "line 1: expected a path and a text"),
        ("no.wav\thi\n", r"no\.wav.*a\.tsv, line 1 names it"),
        ("hello.wav\t \n", r"hello.wav: there is no transcript.*line 1"),
        ("\n", "no recordings"),
    ):
        (tmp_path / "a.tsv").write_text(content)
        with pytest.raises(DataError, match=message):
            read_recordings([tmp_path / "a.tsv"], 8000)


WORDS = ("ah", "oh", "uh", "ee")


@pytest.fixture(scope="module")
def recordings() -> Recordings:
    """Tones of 0.1 to 0.25 s."""
    audio = [tone(400 * (1 + i), 0.1 + 0.05 * i) for i in range(4)]
    return make_recordings(audio * 3, list(WORDS) * 3, 8000, name="tones")


def data_of(recordings: Recordings, how: Augmentation, **options: Any) -> SpeechData:
    settings = {"batch_tokens": 300, "seed": 3} | options
    return SpeechData(
        recordings, train_words(WORDS, min_count=1), LogMel(rate=8000, bands=12), augmentation=how, **settings
    )


def test_batches_have_the_frames_of_the_recordings(recordings: Recordings) -> None:
    data = data_of(recordings, Augmentation(), shuffle=False)
    plan = data.plan(0)
    assert sorted(i for ids in plan for i in ids) == list(range(12)) and not data.too_long
    for ids, batch in zip(plan, data.batches(0), strict=True):
        assert batch.ids == ids and batch.source is not None and len(ids) * batch.source.shape[1] <= 300
        for i, rows, inputs, labels in zip(
            ids, batch.source, batch.inputs.tolist(), batch.labels.tolist(), strict=True
        ):
            expected = data.log_mel(torch.from_numpy(recordings.audio[i])[None])[0]
            torch.testing.assert_close(rows[: len(expected)], expected)
            assert (rows[len(expected) :] == PADDING).all()
            word = data.tokenizer.encode(recordings.texts[i])
            assert inputs == [START, *word] and labels == [*word, END]
    later = list(data.batches(0, len(plan[0])))
    assert [batch.ids for batch in later] == plan[1:]
    shares = [next(iter(data.batches(0, rank=rank, world=16))) for rank in range(16)]  # most are empty
    assert sorted(i for share in shares for i in share.ids) == sorted(plan[0])
    with pytest.raises(DataError, match="more than 8 frames"):
        data_of(recordings, Augmentation(), max_length=8)
    assert data_of(recordings, Augmentation(), max_length=20).too_long == 6


def test_joined_recordings_play_one_after_the_other(recordings: Recordings) -> None:
    data = data_of(recordings, Augmentation(joined=3), batch_tokens=2000)
    strings = data._epochs.get(1).strings
    i = int(strings.counts.argmax())
    assert strings.counts[i] == 3 and set(strings.counts.tolist()) <= {1, 2, 3}
    expected = np.zeros(strings.total[i], np.float32)
    for part, start in zip(strings.parts[i], strings.starts[i], strict=True):
        expected[start : start + len(recordings.audio[part])] = recordings.audio[part]
    batch = data.collate([i], 1)
    torch.testing.assert_close(batch.source, data.log_mel(torch.from_numpy(expected)[None]))
    text = " ".join(recordings.texts[part] for part in strings.parts[i])
    assert data.tokenizer.decode(batch.labels[0].tolist()) == text
    grown = data_of(recordings, Augmentation(joined=3, growth=2))
    assert [int(grown._epochs.get(epoch).strings.counts.max()) for epoch in (0, 1, 2, 4, 9)] == [1, 1, 2, 3, 3]
    tight = data_of(recordings, Augmentation(joined=3), max_length=30)  # joined only as far as that allows
    assert max(batch.source.shape[1] for epoch in range(4) for batch in tight.batches(epoch)) <= 30  # type: ignore[union-attr]


def test_changes_depend_on_seed_epoch_and_sample_only(recordings: Recordings) -> None:
    how = Augmentation(joined=2, speed=0.2, gain=6, noise=1.0, masks=2)
    data, other = data_of(recordings, how), data_of(recordings, how, batch_tokens=120)
    alone, together = data.collate([5], 2), other.collate([1, 5], 2)
    length = alone.source.shape[1]  # type: ignore[union-attr]
    torch.testing.assert_close(together.source[1, :length], alone.source[0])  # type: ignore[index]
    assert not torch.equal(data.collate([5], 3).source, alone.source)
    clean, speedy = data_of(recordings, Augmentation()), data_of(recordings, Augmentation(speed=0.2))
    lengths = [batch.source.shape[1] for batch in (clean.collate([3], 2), speedy.collate([3], 2))]
    assert lengths[0] != lengths[1] and 0.8 < lengths[1] / lengths[0] < 1.25
    noisy = data_of(recordings, Augmentation(noise=1.0)).collate([3], 2).source
    assert (noisy - clean.collate([3], 2).source).abs().max() > 1  # in silent bands
    masked = data_of(recordings, Augmentation(masks=4)).collate([3], 2).source
    changed = masked != clean.collate([3], 2).source
    assert changed.any() and masked[changed].unique().numel() == 1  # all cells of the masks have the mean
