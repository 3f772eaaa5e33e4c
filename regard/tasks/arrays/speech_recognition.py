"""Speech recognition: from recordings with transcripts to a `Transcriber`.

G6; Chan et al. 2016, Dong et al. 2018, Graves et al. 2006. Validation transcribes some recordings and counts the words
that are wrong.

    B recordings   T frames   M bands
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from regard.api.arrays.transcriber import Transcriber
from regard.arrays.speech.augment import Augmentation
from regard.arrays.speech.batches import SpeechData, longest_sample
from regard.arrays.speech.recordings import Recordings, read_recordings
from regard.errors import DataError
from regard.evaluation.word_errors import word_errors
from regard.models.arrays.speech_input import make_log_mel
from regard.models.config import Config, SoundConfig
from regard.models.presets import MODELS
from regard.positions import SCHEMES
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.required import required
from regard.recipes.tables import SHARES, RecipeTables, TrainingRecipe
from regard.tasks.arrays.array_task import network_config
from regard.tasks.corpora import Corpora, numbered_tokens, train_tokenizer
from regard.tasks.losses import Objective, Together, speech_loss
from regard.tasks.task import Data, Misfit, Task, Tokenizers
from regard.tasks.validation import Measure, Validator
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.words import train_words

DEMO_VALIDATION = 200
HIGHEST_RATE = 16_000  # Hz, to which recordings are resampled; speech has little above half of it
FEW_WORDS = 100  # different words, up to which each is a token
MAX_FRAMES = 3_000  # default of data.max_length: 30 seconds
CHANGES = ("joined", "growth", "speed", "gain", "noise", "masks")  # keys of [data] that change recordings in training
OTHER_KEYS = (*SHARES, "columns", "source_language", "target_language", "context", "names", "placeholders")
REHEARSED = 32  # recordings that represent a validation in a trial run


class SpeechRecognition(Task):
    """Write down what is said."""

    name = "speech recognition"
    models: ClassVar = {kind: MODELS[kind] for kind in ("speech-recognizer", "listen-attend-spell", "speech-ctc")}
    forms = ("speech", "demo")
    needs = "speech (a folder of WAV files, or a table of paths and texts)"
    usage = "regard transcribe -m FOLDER recording.wav\nregard plot speech -m FOLDER recording.wav"
    face = "transcriber"
    reads = "sound"
    array_keys = CHANGES
    tokenizer_kinds = ("characters", "words", "unigram", "bpe")
    decodes_validation = True
    label_smoothing = (0.1, "as in Dong et al. 2018")
    default_model = "attends to the sound with a Transformer (Dong et al. 2018)"

    def read_corpora(self, recipe: RecipeTables) -> Corpora[Recordings]:
        data, seed = recipe.data, recipe.training.seed
        if data.demo:
            from regard.demo.speech import demo_speech

            held_out = demo_speech(data.validation or DEMO_VALIDATION, seed=seed + 1, name="demo speech, validation")
            return Corpora(demo_speech(data.demo, seed=seed), held_out)
        skip, rate = data.faults == "skip", recipe.model.get("rate")
        train = read_recordings(data.speech, rate, skip=skip)
        if rate is None and train.rate > HIGHEST_RATE:
            train = read_recordings(data.speech, HIGHEST_RATE, skip=skip)
        if data.validation_speech:
            return Corpora(train, read_recordings(data.validation_speech, train.rate, skip=skip))
        return split_recordings(train, data.validation, seed)

    def facts(self, recipe: RecipeTables, corpora: Corpora[Recordings]) -> DataFacts:
        train, validation = corpora.train, corpora.validation
        words = [word for text in train.texts for word in text.split()]
        hop = 100  # frames in a second
        return DataFacts(
            samples=len(train),
            words=len(words),
            characters=int(train.seconds * hop),
            distinct_words=len(set(words)),
            validation_samples=len(validation),
            validation_characters=int(validation.seconds * hop),
            tokens=int(train.seconds * hop * (1 + recipe.data.joined) / 2),
            shape=(train.rate,),
        )

    def check(self, recipe: RecipeTables, corpora: Corpora[Recordings]) -> list[str]:
        """Return nothing: what the reader of recordings notices is in its report."""
        return []

    def make_tokenizers(self, recipe: RecipeTables, corpus: Recordings) -> Tokenizers:
        if recipe.tokenizer.kind == "words":
            tokenizer: Tokenizer = train_words(corpus.texts, min_count=recipe.tokenizer.min_count or 1)
        else:
            tokenizer = train_tokenizer(recipe, [*corpus.texts, " "])  # joined recordings have a space between them
        return tokenizer, tokenizer

    def make_data(
        self, recipe: RecipeTables, corpus: Recordings, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> SpeechData:
        changes = {key: getattr(recipe.data, key) for key in CHANGES}
        config: Any = network_config(recipe)
        data = SpeechData(
            corpus,
            tokenizers[1],
            make_log_mel(config),
            batch_tokens=required(recipe.training.batch_tokens),
            seed=recipe.training.seed,
            shuffle=training,
            augmentation=Augmentation(**changes) if training else Augmentation(joined=changes["joined"]),
            max_length=recipe.data.max_length,
        )
        limit = math.ceil(data.limit / config.subsampling)
        if (positions := config.max_positions) is not None and positions < limit:
            raise DataError(
                f"model.max_length={positions} is less than the {limit} vectors of {data.limit} frames: raise it, or "
                "lower data.max_length"
            )
        return data

    def longest_row(self, recipe: RecipeTables, corpora: Corpora[Recordings], tokenizers: Tokenizers) -> int:
        config: Any = network_config(recipe)
        how = Augmentation(**{key: getattr(recipe.data, key) for key in CHANGES})
        limit = min(required(recipe.training.batch_tokens), recipe.data.max_length or 2**31)
        return longest_sample(corpora.train, make_log_mel(config), how, limit)

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        assert isinstance(config, SoundConfig)
        frames = torch.zeros(rows, length, config.mels, device=device)
        written = max(1, length // (4 * config.subsampling))  # tokens
        numbers = torch.arange(rows * written, device=device).view(rows, written)
        tokens = numbered_tokens(numbers, config.vocabularies[0])
        return Batch(list(range(rows)), frames, tokens, tokens, tokens.numel())

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return partial(speech_loss, smoothing=training.label_smoothing or 0.0, kernels=training.kernels != "off")

    def validator(self, *args: Any, **options: Any) -> Validator:
        return SpeechValidator(*args, **options)

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        data, training = recipe.data, recipe.training
        for key in OTHER_KEYS:
            if getattr(data, key) != getattr(type(data), key):
                yield f"data.{key}", "reads no text"
        if recipe.tokenizer.shared is False:
            yield "tokenizer.shared", "has one vocabulary"
        if recipe.tokenizer.sampling:
            yield "tokenizer.sampling", "has one way to write a transcript"
        if recipe.kind == "speech-ctc" and training.label_smoothing:
            yield "training.label_smoothing", "sums over all ways to label the sound"
        if training.r_drop:
            yield "training.r_drop", "has no second pass for it"
        if training.temperature != TrainingRecipe.temperature:
            yield "training.temperature", "has no use for it"

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        if 2 <= facts.distinct_words <= FEW_WORDS:
            yield Choice("tokenizer.kind", "words", f"there are only {facts.distinct_words} different words")
        else:
            yield Choice("tokenizer.kind", "characters", "letters are close to sounds (Chan et al. 2016)")

    def input_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        (rate,) = facts.shape
        yield Choice("model.rate", rate, "the rate of the recordings")
        yield Choice("model.mels", 40 if rate < HIGHEST_RATE else 80, "bands, more for a higher rate")
        if SCHEMES[tables["model"].get("position", "sinusoidal")].limited:
            yield Choice("model.max_length", MAX_FRAMES, "as many positions as frames")

    def training_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        if tables["model"]["kind"] == "speech-ctc":
            yield Choice("training.label_smoothing", 0.0, "all ways to label the sound are summed")

    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        limit = min(tables["training"]["batch_tokens"], MAX_FRAMES)
        yield Choice("data.max_length", limit, "frames of 10 ms; longer recordings cost memory")

    def info(self, recipe: RecipeTables, train: Data, tokenizers: Tokenizers) -> dict[str, Any]:
        """Return the number of frames of the longest sample."""
        assert isinstance(train, SpeechData)
        return {"longest_frames": train.longest}

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Transcriber:
        return Transcriber(model, target, info=info)


class SpeechValidator(Validator):
    """A validator that transcribes recordings and counts wrong words."""

    measure = Measure("wer", "word error rate", lower_is_better=True, share=True)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.transcriber = Transcriber(self.model, self.tokenizers[1], info=self.info)
        if not self.recipe.decoding.sentences:
            self.measure = Validator.measure

    def more_scores(self, step: int) -> str:
        if not self.recipe.decoding.sentences:
            return ""
        names, references, texts = self.transcribe(self.recipe.decoding.sentences)
        scores = word_errors(texts, references)
        self.scores |= scores
        self.samples = list(zip(names, references, texts, strict=True))[: self.recipe.training.samples]
        line = f"  word error rate {scores['wer']:.1%}  without error {scores['exact']:.1%}"
        for _, reference, text in self.samples[:2]:
            line += f"\n    {reference}\n    → {text}"
        return line

    def transcribe(self, count: int) -> tuple[list[str], list[str], list[str]]:
        """Return the names and the texts of about `count` samples of all lengths, and their transcripts."""
        tokenizer, names, references, frames = self.tokenizers[1], [], [], []
        every = max(1, len(self.corpus) // count)
        for batch in self.data.batches(0):
            self.stop.check()
            names += [self.corpus.location(i) for i in batch.ids[::every]]
            for labels, rows in zip(batch.labels[::every].tolist(), required(batch.source)[::every], strict=True):
                references.append(tokenizer.decode([token for token in labels if token != END]))
                frames.append(rows[rows[:, 0].isfinite()].cpu())
        results = self.transcriber.decode(frames, beam=self.recipe.decoding.beam)
        return names, references, [tokenizer.decode(best.tokens) for best, _ in results]

    def rehearse(self, timed: Callable[..., float], *, seconds: float) -> tuple[float, float]:
        count = min(self.recipe.decoding.sentences, len(self.corpus))
        tried = min(count, REHEARSED)
        return (timed(self.transcribe, tried) * count / tried if tried else 0.0), 0.0


def split_recordings(recordings: Recordings, count: int | None, seed: int) -> Corpora[Recordings]:
    """Hold out `count` recordings, chosen by the hash of their samples, so that copies stay together."""
    count = count or max(1, min(1000, len(recordings) // 20))
    if count >= len(recordings):
        raise DataError(
            f"{count} of {len(recordings)} recordings are held out for validation, which leaves none to train on: "
            f"lower data.validation or give validation_speech"
        )
    key = str(seed).encode()
    hashes = [hashlib.blake2b(samples.tobytes(), digest_size=8, key=key).digest() for samples in recordings.audio]
    limit = sorted(hashes)[count - 1]
    train = [i for i, value in enumerate(hashes) if value > limit]
    if not train:
        raise DataError("all recordings are equal, so none can be held out: give validation_speech")
    held_out = [i for i, value in enumerate(hashes) if value <= limit][:count]
    return Corpora(recordings.select(train), recordings.select(held_out))


TASK = SpeechRecognition()
