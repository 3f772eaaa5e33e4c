"""A transcriber: it writes down what is said in a recording, and when it listened to which moment.

G6; Chan et al. 2016, Dong et al. 2018, Graves et al. 2006.

    S samples   T frames   M bands   n vectors of the encoder   m tokens
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.api.html import describe_model, model_html, model_repr
from regard.api.saving import learned_from_demo, save_face
from regard.arrays.speech.recordings import Recordings
from regard.arrays.speech.resample import resample
from regard.arrays.speech.wave_file import read_wave
from regard.decoding.ctc import bar_special_tokens, decode_ctc, prefix_beam, score_labels
from regard.decoding.engine import generate_tokens
from regard.decoding.forced import forced_attention, score_tokens
from regard.decoding.model_step import evaluating, log_probabilities
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Hypothesis
from regard.demo.speech import RATE, WORDS, speak
from regard.errors import DataError, ModelError, UsageError
from regard.evaluation.word_errors import word_errors
from regard.look.trace.inputs.input_trace import InputTrace
from regard.look.trace.inputs.speech import trace_recording
from regard.models.arrays.speech_input import make_log_mel
from regard.models.arrays.speech_recognizers import SpeechCTC
from regard.models.config import SoundConfig
from regard.models.folder.weights_file import Storage
from regard.models.layer_names import is_cross_attention
from regard.models.protocols import config_of
from regard.text.tokenizers.special_tokens import END
from regard.text.tokenizers.tokenizer import Tokenizer

EXAMPLE_SEED = 1_000_000  # of recordings that are in no training
BATCH_FRAMES = 2**15  # that are decoded together
SILENCE = Hypothesis([END], [0.0], 0.0, 0.0, True)  # what is written down of it
BEAM = 5  # width of the search
MARGIN = 8  # tokens that a short recording may have beyond its vectors


@dataclass(frozen=True)
class Transcript:
    """What is said in a recording."""

    name: str  # the file, or "recording"
    text: str
    score: float  # log-probability
    seconds: float  # of the recording
    tokens: list[str]  # without END
    times: list[float] | None = None  # for each token, the second that it was heard at
    weights: list[list[float]] | None = None  # for each token, the attention to each moment; rows sum to 1
    step: float = 0.0  # seconds between two moments


class Transcriber:
    """Transcribes recordings; `regard.load` makes one from a folder.

    A recording is the path of a WAV file, or a pair of samples (S,) from -1 to 1 and their rate.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, *, info: Mapping[str, Any] | None = None) -> None:
        self.model: Any = model
        self.tokenizer = tokenizer
        self.info = dict(info or {})
        config = config_of(model)
        if not isinstance(config, SoundConfig):
            raise TypeError(f"model must be a speech recognizer, got one of kind {config.kind!r}")
        if tokenizer.size != config.vocabularies[0]:
            raise ModelError(f"the tokenizer has {tokenizer.size} tokens, but the model {config.vocabularies[0]}")
        self.rate, self.subsampling = config.rate, config.subsampling
        self.log_mel = make_log_mel(config)

    @property
    def step(self) -> float:
        """The seconds between two moments that the decoder can attend to."""
        return self.subsampling * self.log_mel.hop / self.rate

    @property
    def attends(self) -> bool:
        """Whether a decoder attends to the sound; CTC has none."""
        return not isinstance(self.model, SpeechCTC)

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        return save_face(self.model, folder, tokenizer=self.tokenizer, info=self.info, storage=storage)

    def __repr__(self) -> str:
        return model_repr("Transcriber", describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return model_html("Transcriber", describe_model(self.model, self.info), 'transcriber.transcribe("a.wav").text')

    def transcribe(self, recordings: Any, *, beam: int = BEAM, attention: bool = False) -> Any:
        """Return the transcript of a recording; for a list of recordings, a list of transcripts.

        `beam` is the width of the search, 1 is greedy. A wider search of a model that learned with CTC beside its
        decoder asks both. With `attention`, a transcript also has the moment that each token was heard at, and the
        weights of the decoder's attention (the mean of its heads); CTC has no weights.
        """
        if not isinstance(recordings, list):
            return self.transcribe([recordings], beam=beam, attention=attention)[0]
        names = [str(item) if isinstance(item, str | Path) else "recording" for item in recordings]
        frames = [self.frames(item) for item in recordings]
        for name, rows in zip(names, frames, strict=True):
            self._warn_about_length(name, len(rows))
        results = self.decode(frames, beam=beam)
        return [
            self._transcript(name, rows, *result, attention=attention)
            for name, rows, result in zip(names, frames, results, strict=True)
        ]

    def evaluate(self, recordings: Recordings, *, beam: int = BEAM) -> dict[str, float]:
        """Return the word error rate of recordings with their texts, and the share of texts without an error."""
        pairs = [(samples, recordings.rate) for samples in recordings.audio]
        texts = [transcript.text for transcript in self.transcribe(pairs, beam=beam)]
        return {**word_errors(texts, recordings.texts), "recordings": len(recordings)}

    def attention(self, recording: Any, text: str | None = None) -> Tensor:
        """Return the weights of the decoder on the moments of a recording, (layers, heads, m, n).

        The tokens are those of a text, by default of the transcript; the last one is END.
        """
        if not self.attends:
            raise UsageError("CTC has no decoder that attends to the sound: regard.record shows its self-attention")
        frames = self.frames(recording)
        written = self.decode([frames])[0][0].tokens if text is None else self.tokenizer.encode(text)
        return self._attention(frames, [*(token for token in written if token != END), END])

    def trace(self, recording: Any, *, source: str | None = None, name: str | None = None) -> InputTrace:
        """Return everything that the model does with a recording, for the explorer page.

        `source` is the name of the recording, by default the file's; `name` is that of the model.
        """
        if source is None:
            source = Path(recording).name if isinstance(recording, str | Path) else "recording"
        return trace_recording(self, recording, source=source, name=name)

    def examples(self) -> dict[str, Any]:
        """Return recordings to try by name: demo speech, if the model was trained on it."""
        if not learned_from_demo(self.info):
            return {}
        digits = list(WORDS)
        texts = [" ".join(digits[i : i + 3]) for i in range(len(digits) - 2)]
        return {f"“{text}”": (speak(text, voice=i, seed=EXAMPLE_SEED), RATE) for i, text in enumerate(texts)}

    def frames(self, recording: Any) -> Tensor:
        """Return a recording as the model hears it: log-mel frames (T, M)."""
        samples, rate = read_wave(recording) if isinstance(recording, str | Path) else _pair(recording)
        sound = torch.from_numpy(resample(samples, rate, self.rate))
        return self.log_mel(sound[None])[0]

    def decode(self, frames: Sequence[Tensor], *, beam: int = BEAM) -> list[tuple[Hypothesis, list[int] | None]]:
        """Return the best text for each recording, and with CTC the vector of each token; frames (T, M) of each."""
        if beam < 1:
            raise UsageError(f"beam must be at least 1, got {beam}")
        heard = [i for i, rows in enumerate(frames) if rows.max() > rows.min()]
        if len(heard) < len(frames):  # perfect silence, which no model has learned from
            results = dict(zip(heard, self.decode([frames[i] for i in heard], beam=beam), strict=True))
            return [results.get(i, (SILENCE, None)) for i in range(len(frames))]
        if not self.attends:
            return [decode_ctc(logps, beam=beam) for logps in self._label(frames)]
        hypotheses = self._search(frames, beam)
        if beam > 1 and getattr(self.model, "labels", None) is not None:
            return [(best, None) for best in self._choose_jointly(frames, hypotheses, beam)]
        return [(best, None) for best, *_ in hypotheses]

    def _search(self, frames: Sequence[Tensor], beam: int) -> list[list[Hypothesis]]:
        """Return what the decoder would write, the best text of each recording first."""
        limit = config_of(self.model).max_positions or 2**31
        return generate_tokens(
            self.model,
            frames,  # type: ignore[arg-type]  # rows of frames in place of tokens
            search=Greedy() if beam == 1 else Beam(beam),
            max_tokens=[min(limit, len(rows) // self.subsampling + MARGIN) for rows in frames],
            alternatives=beam,
            allow_unknown=False,
            batch_tokens=BATCH_FRAMES,
        )

    def _choose_jointly(
        self, frames: Sequence[Tensor], hypotheses: list[list[Hypothesis]], beam: int
    ) -> Iterator[Hypothesis]:
        """Yield the text of each recording that the decoder and CTC together find best (Watanabe et al. 2017).

        The candidates are the texts of both searches. A decoder may repeat or skip a part of a long recording, which
        CTC rarely does; the decoder knows which words follow each other. The share of CTC is that of training.
        """
        share = self.model.config.ctc
        labels = [bar_special_tokens(logps) for logps in self._label(frames)]
        ours = [{tuple(h.tokens): h for h in found if h.finished} for found in hypotheses]
        others = [
            (i, (*text, END))
            for i, logps in enumerate(labels)
            for text, _ in prefix_beam(logps, beam)
            if (*text, END) not in ours[i]
        ]
        scored = score_tokens(
            self.model,
            [frames[i] for i, _ in others],  # type: ignore[misc]  # frames in place of tokens
            [tokens for _, tokens in others],
            batch_tokens=BATCH_FRAMES,
        )
        for (i, tokens), result in zip(others, scored, strict=True):
            ours[i][tokens] = Hypothesis(list(tokens), result.logps, result.score, result.score, True)
        for logps, candidates in zip(labels, ours, strict=True):
            by_labels = score_labels(logps, [tokens[:-1] for tokens in candidates])
            scores = [
                (1 - share) * candidate.score + share * score
                for candidate, score in zip(candidates.values(), by_labels, strict=True)
            ]
            best = max(range(len(scores)), key=scores.__getitem__)
            chosen = list(candidates.values())[best]
            yield dataclasses.replace(chosen, score=scores[best], ranking=scores[best])

    def _label(self, frames: Sequence[Tensor]) -> list[NDArray[np.float64]]:
        """Return the log-probabilities (n, V) of CTC's labels for each recording."""
        weight = next(self.model.parameters())
        results: dict[int, NDArray[np.float64]] = {}
        order = sorted(range(len(frames)), key=lambda i: len(frames[i]))
        with torch.inference_mode(), evaluating(self.model):
            while order:
                rows = max(1, BATCH_FRAMES // len(frames[order[-1]]))
                chosen, order = order[-rows:], order[:-rows]
                batch = self.model.pad_sources([frames[i] for i in chosen]).to(weight.device)
                logps = log_probabilities(self.model.label(self.model.encode(batch))).double().cpu().numpy()
                for i, row in zip(chosen, logps, strict=True):
                    results[i] = row[: -(-len(frames[i]) // self.subsampling)]
        return [results[i] for i in range(len(frames))]

    def _warn_about_length(self, name: str, frames: int) -> None:
        """Warn if a recording is longer than those of training."""
        longest = self.info.get("longest_frames")
        if longest and frames > longest:
            second = self.log_mel.hop / self.rate
            warnings.warn(
                f"{name} is {frames * second:.1f} seconds long, but the longest of training was "
                f"{longest * second:.1f}: split it at pauses, or expect errors",
                stacklevel=3,
            )

    def _transcript(
        self, name: str, frames: Tensor, best: Hypothesis, places: list[int] | None, *, attention: bool
    ) -> Transcript:
        written = [token for token in best.tokens if token != END]
        weights = None
        if attention and self.attends:
            mean = self._attention(frames, [*written, END]).mean((0, 1))[:-1]  # (m, n)
            places, weights = mean.argmax(-1).tolist(), mean.tolist()
        return Transcript(
            name,
            self.tokenizer.decode(best.tokens),
            best.score,
            len(frames) * self.log_mel.hop / self.rate,
            self.tokenizer.pieces(written),
            [place * self.step for place in places] if attention and places is not None else None,
            weights,
            self.step,
        )

    def _attention(self, frames: Tensor, tokens: list[int]) -> Tensor:
        """Return the weights of all layers that attend to the sound, (layers, heads, m, n)."""
        maps = forced_attention(self.model, frames, tokens)  # type: ignore[arg-type]  # frames in place of tokens
        layers = [weights.float().cpu() for name, weights in maps.items() if is_cross_attention(name)]
        return torch.stack(layers)


def _pair(recording: Any) -> tuple[Any, int]:
    """Return samples and their rate; ValueError if a recording has another form."""
    if not (isinstance(recording, tuple) and len(recording) == 2):
        raise ValueError("a recording is the path of a WAV file, or a pair (samples, rate)")
    samples, rate = np.asarray(recording[0], np.float32), int(recording[1])
    if samples.ndim != 1 or not len(samples) or not np.isfinite(samples).all():
        raise DataError(f"a recording must have finite samples (S,), got {samples.shape}")
    if rate < 1:
        raise DataError(f"the rate must be at least 1 Hz, got {rate}")
    return samples, rate
