"""Speech recognition from WAV files to text: training, the folder, the face, the commands, and messages."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.arrays.speech.recordings import make_recordings, read_recordings
from regard.arrays.speech.wave_file import read_wave, write_wave
from regard.cli import app
from regard.demo.speech import WORDS, demo_speech, speak
from regard.errors import DataError, ModelError, UsageError
from regard.tasks.arrays.speech_recognition import split_recordings
from regard.text.tokenizers.special_tokens import START
from regard.training.recipe.from_files import recipe_for_files

TONES = {"low": 400, "high": 2000}
SMALL = {
    "model.mels": 12,
    "model.dropout": 0.0,
    "model.subsampling": 2,
    "training.warmup": 10,
    "training.lr": 0.01,
    "training.batch_tokens": 200,
    "training.steps": 120,
    "training.label_smoothing": 0.0,
    "data.validation": 8,
    "data.joined": 2,
}
SIZES = {"model.layers": 1, "model.dim": 32, "model.heads": 2, "model.hidden": 64}
KINDS: dict[str, dict[str, Any]] = {
    "speech-recognizer": {**SIZES, "model.ctc": 0.3},
    "listen-attend-spell": {"model.hidden": 16, "model.embedding": 8},
    "speech-ctc": {**SIZES, "training.steps": 160},
}


def tone(word: str, seed: int) -> Any:
    """A noisy tone of about 0.1 s."""
    dice = np.random.default_rng(seed)
    moments = np.arange(int(dice.uniform(0.08, 0.12) * 8000)) / 8000
    return (0.3 * np.sin(2 * np.pi * TONES[word] * moments) + 0.01 * dice.normal(size=len(moments))).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    for i in range(48):
        word = list(TONES)[i % 2]
        write_wave(folder / f"{i}.wav", tone(word, i), 8000)
        (folder / f"{i}.txt").write_text(word + "\n")
    return folder


@pytest.fixture(scope="module", params=list(KINDS))
def run(request: pytest.FixtureRequest, folder: Path) -> Any:
    recipe = recipe_for_files([folder], model=request.param)
    out = folder.with_name(f"{folder.name}-{request.param}")
    return regard.train(recipe, out=out, overrides=SMALL | KINDS[request.param], quiet=True)


@pytest.fixture
def string(tmp_path: Path) -> Path:
    """Low, a gap, high."""
    sound = np.concatenate([tone("low", 100), np.zeros(1200, np.float32), tone("high", 101)])
    return write_wave(tmp_path / "string.wav", sound, 8000)


def test_a_folder_of_recordings_gives_a_transcriber(run: Any, folder: Path, string: Path) -> None:
    assert run.scores["wer"] == 0.0 and run.scores["exact"] == 1.0
    transcriber = run.load(device="cpu")
    assert isinstance(transcriber, regard.Transcriber) and transcriber.rate == 8000
    for beam in (1, 3):
        transcript = transcriber.transcribe(string, beam=beam, attention=True)
        assert transcript.text == "low high" and transcript.tokens == ["low", "high"] and transcript.score <= 0
        if isinstance(transcriber.model, regard.ListenAttendSpell):
            continue  # every state of its encoder has heard the whole recording
        low, high = transcript.times
        assert low < 0.17 < high < transcript.seconds  # the gap is from about 0.1 to 0.25 s
    if transcriber.attends:
        assert all(math.isclose(sum(row), 1, abs_tol=1e-4) for row in transcript.weights)
    if getattr(transcriber.model, "labels", None) is not None:
        check_joint_score(transcriber, string)
    scores = transcriber.evaluate(read_recordings([folder]))
    assert scores["wer"] == 0.0 and scores["recordings"] == 48
    assert "regard transcribe -m THIS_FOLDER recording.wav" in (run.folder / "README.md").read_text()


def check_joint_score(transcriber: Any, recording: Path) -> None:
    """A beam's score is a mean of the log-probabilities of decoder and CTC, weighted as in training."""
    frames = transcriber.frames(recording)
    ((best, _),) = transcriber.decode([frames], beam=3)
    with torch.no_grad():
        encoded = transcriber.model.encode(frames[None])
        logps = transcriber.model.labels(encoded.states).log_softmax(-1)[0]  # (n, V)
        read = torch.tensor([[START, *best.tokens[:-1]]])
        written = transcriber.model.project(transcriber.model.decode(read, encoded)).log_softmax(-1)[0]
    decoder = written[range(len(best.tokens)), best.tokens].sum()
    labels = torch.tensor([best.tokens[:-1]])
    sizes = [torch.tensor([len(logps)]), torch.tensor([labels.shape[1]])]
    ctc = -torch.nn.functional.ctc_loss(logps[:, None], labels, *sizes, reduction="sum")
    assert best.score == pytest.approx(0.7 * float(decoder) + 0.3 * float(ctc), abs=1e-3)


def test_forms_of_recordings(run: Any, string: Path, tmp_path: Path) -> None:
    transcriber = run.load(device="cpu")
    samples, rate = read_wave(string)
    twice = np.interp(np.arange(2 * len(samples)) / 2, np.arange(len(samples)), samples).astype(np.float32)
    forms = [string, str(string), (samples, rate), (samples.tolist(), rate), (0.1 * samples, rate), (twice, 2 * rate)]
    together = transcriber.transcribe(forms)
    assert [transcript.text for transcript in together] == ["low high"] * len(forms)
    assert transcriber.transcribe(string).score == pytest.approx(together[0].score, abs=1e-4)
    assert transcriber.transcribe([]) == []
    silence, loud, _ = transcriber.transcribe([(np.zeros(2000), rate), (samples, rate), (np.zeros(1), rate)])
    assert (silence.text, loud.text) == ("", "low high")
    with pytest.warns(UserWarning, match=r"recording is 5.0 seconds long, but the longest of training was 0\.[3-6]: s"):
        transcriber.transcribe((np.zeros(5 * rate), rate))
    again = regard.load(transcriber.save(tmp_path / "saved"), device="cpu")
    assert again.transcribe(string).score == pytest.approx(transcriber.transcribe(string).score, abs=1e-6)
    for wrong in ((samples[:, None], rate), (samples[:0], rate), (samples * np.nan, rate)):
        with pytest.raises(DataError, match="a recording must"):
            transcriber.transcribe(wrong)
    with pytest.raises(ValueError, match="a recording is the path"):
        transcriber.transcribe(samples)
    with pytest.raises(UsageError, match="beam"):
        transcriber.transcribe(string, beam=0)
    with pytest.raises(ModelError, match="tokens"):
        regard.Transcriber(transcriber.model, regard.load("demo-encoder").tokenizer)


def test_attention_can_be_recorded_and_looked_at(run: Any, string: Path, tmp_path: Path) -> None:
    transcriber = run.load(device="cpu")
    with regard.record(transcriber.model) as maps:
        transcriber.transcribe(string, beam=1)
    assert all(weights.isfinite().all() for weights in maps.values()) and maps
    picture = ["plot", "speech", "-m", str(run.folder), str(string), "-o", str(tmp_path / "speech.svg")]
    if not transcriber.attends:
        with pytest.raises(UsageError, match="CTC has no decoder"):
            transcriber.attention(string)
        assert CliRunner().invoke(app, picture).exit_code == 2
        return
    weights = transcriber.attention(string)  # (layers, heads, m, n)
    assert weights.shape[2] == 3 and weights.shape[3] == math.ceil(len(transcriber.frames(string)) / 2)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
    torch.testing.assert_close(transcriber.attention(string, "low high"), weights)
    assert transcriber.attention(string, "low").shape[2] == 2
    done = CliRunner().invoke(app, picture)
    assert done.exit_code == 0 and "low high" in (tmp_path / "speech.svg").read_text(), done.output
    assert CliRunner().invoke(app, [*picture, "--layer", "0", "--head", "0"]).exit_code == 0
    for wrong in (["--layer", "9"], ["--head", "9"]):
        assert CliRunner().invoke(app, [*picture, *wrong]).exit_code == 2


def test_commands(run: Any, folder: Path, string: Path, tmp_path: Path) -> None:
    call = ["transcribe", "-m", str(run.folder)]
    assert CliRunner().invoke(app, [*call, str(string)]).stdout == "low high\n"
    several = CliRunner().invoke(app, [*call, str(folder / "0.wav"), str(folder / "1.wav")]).stdout.splitlines()
    assert [line.split("\t")[0] for line in several] == ["low", "high"] and several[0].endswith("0.wav")
    times = CliRunner().invoke(app, [*call, str(string), "--times"]).stdout.splitlines()[1].split()
    assert times[::2] == ["low", "high"] and 0 <= float(times[1]) < 0.5 and 0 <= float(times[3]) < 0.5
    (tmp_path / "broken.wav").write_bytes(b"no sound")
    broken = CliRunner().invoke(app, [*call, str(tmp_path / "broken.wav"), str(string), "--json", "--beam", "2"])
    assert broken.exit_code == 3 and "broken.wav: not a WAV file" in broken.output
    result = json.loads(broken.stdout.splitlines()[-1])
    assert result["text"] == "low high" and len(result["times"]) == 2 and result["step"] == pytest.approx(0.02)
    scores = CliRunner().invoke(app, [*call, "--evaluate", str(folder)]).stdout
    assert scores == "word error rate 0.00%, without error 100.00% of 48 recordings\n"
    scores = json.loads(CliRunner().invoke(app, [*call, "--evaluate", str(folder), "--json"]).stdout)
    assert scores == {"wer": 0, "exact": 1, "recordings": 48}
    for wrong in ([str(string), "--json", "--times"], [], [str(string), "--evaluate", str(folder)]):
        assert CliRunner().invoke(app, [*call, *wrong]).exit_code == 2
    assert CliRunner().invoke(app, ["transcribe", "-m", "fr-en", str(string)]).exit_code == 2
    assert "wer 0" in CliRunner().invoke(app, ["info", str(run.folder)]).stdout


def test_settings_without_effect_are_refused(folder: Path) -> None:
    for key, value, message in (
        ("data.copy", 0.1, "data.copy"),
        ("data.shift", 1, "data.shift"),
        ("tokenizer.sampling", 0.3, "tokenizer.sampling"),
        ("training.r_drop", 1.0, "r_drop"),
        ("model.subsampling", 3, "power of 2"),
    ):
        recipe = recipe_for_files([folder], model="speech-recognizer")
        with pytest.raises(UsageError, match=message):
            regard.train(recipe, out=folder.with_name("refused"), overrides={key: value}, quiet=True)
    recipe = recipe_for_files([folder], model="speech-ctc")
    with pytest.raises(UsageError, match="label_smoothing"):
        regard.train(recipe, out=folder.with_name("refused"), overrides={"training.label_smoothing": 0.1}, quiet=True)
    with pytest.raises(UsageError, match="speech-recognizer"):
        recipe_for_files([folder])


def test_held_out_recordings() -> None:
    recordings = make_recordings([np.full(10, i % 9, np.float32) for i in range(12)], ["a"] * 12, 8000, name="x")
    parts = split_recordings(recordings, 3, seed=1)
    assert len(parts.validation) == 3 and len(parts.train) + len(parts.validation) <= 12
    sounds = [{sound[0] for sound in part.audio} for part in (parts.train, parts.validation)]
    assert not sounds[0] & sounds[1]  # copies stay together
    with pytest.raises(DataError, match="leaves none to train on"):
        split_recordings(recordings, 12, seed=1)


def test_demo_speech_is_the_same_every_time_and_differs_by_word_and_voice() -> None:
    first, again, other = demo_speech(70, seed=1), demo_speech(70, seed=1), demo_speech(70, seed=2)
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.texts[:10] == list(WORDS) and all(0.05 < np.abs(sound).max() <= 0.31 for sound in first.audio)
    assert 2 * len(speak("one")) < len(speak("one two three")) + 1 and not np.array_equal(
        speak("one"), speak("one", voice=5)
    )
    with pytest.raises(ValueError, match="the demo can say zero"):
        speak("ten")
