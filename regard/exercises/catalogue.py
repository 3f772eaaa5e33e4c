"""The list of all exercises, ordered by lecture topic and difficulty.

A new exercise is a file in topics/, its solution in solutions/, and a line here.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.resources import files
from typing import NamedTuple

from regard.errors import UsageError, unknown_name
from regard.exercises.exercise import CodeExercise, Exercise, NumberExercise


class Topic(NamedTuple):
    """A lecture topic; `folder` is its name in topics/."""

    folder: str
    title: str


class Entry(NamedTuple):
    """An exercise in the list; level 1 is a first step, 2 the standard, 3 a challenge."""

    name: str
    level: int
    tags: tuple[str, ...]
    title: str
    topic: Topic

    @property
    def module(self) -> str:
        """Path of the exercise in topics/ and in solutions/, without suffix."""
        return f"{self.topic.folder}/{self.name.replace('-', '_')}"


TOPICS: dict[Topic, tuple[tuple[str, int, str, str], ...]] = {
    Topic("tokens", "Tokens and embeddings"): (
        ("one-hot-by-hand", 1, "A1", "Multiply one-hot rows with a table by hand"),
        ("bag-of-words", 1, "A2", "Count the words of texts"),
        ("wrap-and-pad", 2, "A4", "Make a batch with start, end and padding"),
        ("sentence-mean", 2, "A3", "Turn a padded sentence into one vector"),
        ("skip-gram-pairs", 2, "A2", "List the training pairs of skip-gram"),
        ("nearest-words", 2, "A2", "Find the nearest words by cosine similarity"),
    ),
    Topic("positions", "Positions"): (
        ("sinusoid-by-hand", 1, "B2", "Compute a sinusoidal position by hand"),
        ("sinusoidal", 2, "B2 B3", "Write the sinusoidal positions"),
        ("relative-index", 2, "B8", "Look up relative positions"),
        ("alibi", 2, "B8", "Write the biases of ALiBi"),
        ("rotary", 3, "B7", "Write rotary positions"),
    ),
    Topic("recurrent", "Recurrent nets and the bottleneck"): (
        ("rnn-by-hand", 1, "C1", "Unroll a recurrent network by hand"),
        ("vanishing-by-hand", 1, "C3", "Compute how a gradient vanishes and explodes"),
        ("rnn", 2, "C1", "Write a recurrent network over a sequence"),
        ("last-states", 2, "C4", "Pick the state after the last real word"),
        ("bidirectional", 2, "C3 D14", "Read a sentence in both directions"),
        ("lstm-step", 3, "C1", "Write a step of an LSTM"),
    ),
    Topic("attention", "Attention"): (
        ("softmax-by-hand", 1, "D1 D10", "Compute a softmax by hand"),
        ("attention-by-hand", 1, "D6 D9", "Compute attention for one query by hand"),
        ("softmax", 1, "D1", "Write a softmax that does not overflow"),
        ("scaled-dot-product", 2, "D9", "Write scaled dot-product attention"),
        ("additive-score", 2, "D5 D14", "Write the additive score of Bahdanau"),
        ("cross-attention", 2, "D13", "Let a decoder attend to an encoder"),
        ("padding-mask", 2, "D10", "Write a padding mask"),
        ("causal-mask", 2, "D10", "Write a causal mask for the last queries"),
        ("split-heads", 2, "D11", "Split vectors into heads and merge them again"),
        ("masked-attention", 3, "D10", "Write attention with a mask"),
        ("multi-head", 3, "D11", "Write multi-head attention"),
        ("grouped-queries", 3, "D11", "Let several query heads share a key head"),
    ),
    Topic("transformer", "The Transformer"): (
        ("layer-norm-by-hand", 1, "E1", "Normalize a vector by hand"),
        ("parameters-by-hand", 1, "E2 E3", "Count the parameters of an encoder block"),
        ("feed-forward", 1, "E2", "Write the feed-forward net"),
        ("layer-norm", 2, "E1", "Write layer normalization"),
        ("encoder-block", 2, "E3", "Assemble an encoder block"),
        ("decoder-bug", 3, "E4", "Find the bugs in a decoder block"),
    ),
    Topic("training", "Training and decoding"): (
        ("loss-by-hand", 1, "E7", "Compute the loss of a sentence by hand"),
        ("teacher-forcing", 1, "E7", "Make inputs and labels for teacher forcing"),
        ("warm-up", 1, "E7", "Write the learning rate of the Transformer"),
        ("beam-by-hand", 2, "E8", "Search with a beam by hand"),
        ("cross-entropy", 2, "E7", "Write the cross-entropy of a padded batch"),
        ("greedy", 2, "E8", "Write greedy decoding"),
        ("length-normalization", 2, "E8", "Score hypotheses of different length"),
        ("label-smoothing", 3, "E7", "Write label smoothing"),
        ("beam-step", 3, "E8", "Write a step of beam search"),
        ("decoding-bug", 3, "E8", "Find the bugs in a decoder for batches"),
    ),
    Topic("language_models", "Language models"): (
        ("perplexity-by-hand", 1, "E10", "Compute a perplexity by hand"),
        ("bigram", 1, "C2", "Estimate a bigram model"),
        ("temperature", 1, "E10", "Sample with a temperature"),
        ("windows", 2, "E10", "Cut a text into training windows"),
        ("nucleus", 3, "E10", "Sample from the nucleus"),
        ("key-value-cache", 3, "E10", "Attend with a key-value cache"),
    ),
    Topic("random_features", "Random features"): (
        ("cost-by-hand", 1, "F3", "Count what attention costs with and without random features"),
        ("random-fourier", 2, "F2", "Write random Fourier features"),
        ("linear-attention", 2, "F1 F3", "Write attention that is linear in the length"),
        ("causal-linear", 3, "F3", "Write causal linear attention with running sums"),
        ("key-factor", 3, "F3", "Estimate softmax attention, with the factor that slides lose"),
    ),
    Topic("beyond_text", "Attention elsewhere"): (
        ("patches-by-hand", 1, "G5", "Count the tokens of a Vision Transformer"),
        ("ctc-collapse", 1, "G6", "Collapse the frames of a speech recognizer"),
        ("patches", 2, "G5", "Cut images into patches"),
        ("forecast-windows", 2, "G6", "Cut a series into past and future"),
        ("copy-gate", 3, "G3", "Copy words with a pointer-generator"),
    ),
}

ENTRIES: dict[str, Entry] = {
    name: Entry(name, level, tuple(tags.split()), title, topic)
    for topic, rows in TOPICS.items()
    for name, level, tags, title in rows
}


def entry_of(name: str) -> Entry:
    """Return the entry of an exercise; UsageError if there is no exercise of this name."""
    if name not in ENTRIES:
        raise UsageError(f"{unknown_exercise(name)}; `regard exercise list` shows all {len(ENTRIES)}")
    return ENTRIES[name]


def unknown_exercise(name: str) -> str:
    """Return the message for an unknown name, with the most similar one."""
    return unknown_name("exercise", name, list(ENTRIES)).partition(" (known")[0]


def load_exercise(name: str) -> tuple[Entry, Exercise]:
    """Return an exercise and its entry; UsageError if there is no exercise of this name."""
    entry = entry_of(name)
    exercise = import_module(f"regard.exercises.topics.{entry.module.replace('/', '.')}").EXERCISE
    assert isinstance(exercise, (CodeExercise, NumberExercise))
    return entry, exercise


def solution(name: str) -> str:
    """Return the text of the solution of an exercise."""
    entry = entry_of(name)
    folder, _, stem = entry.module.partition("/")
    place = files("regard.exercises") / "solutions" / folder
    found = [file for file in place.iterdir() if file.name in (f"{stem}.py", f"{stem}.toml")]
    return found[0].read_text(encoding="utf-8")


def entries(topic: str | None = None, level: int | None = None, tag: str | None = None) -> Iterable[Entry]:
    """Return the exercises of a topic (by folder name), level and lecture tag, in order."""
    folders = [known.folder for known in TOPICS]
    if topic is not None and topic not in folders:
        raise UsageError(unknown_name("topic", topic, folders))
    return [
        entry
        for entry in ENTRIES.values()
        if topic in (None, entry.topic.folder) and level in (None, entry.level) and (tag is None or tag in entry.tags)
    ]
