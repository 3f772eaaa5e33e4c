"""List the training pairs of skip-gram (Mikolov et al. 2013; A2)."""

from __future__ import annotations

from collections.abc import Iterator

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
def skip_gram_pairs(words: list[str], window: int) -> list[tuple[str, str]]:
    """Return (word, context word) for each word and each other word at most `window` places away, in order."""
    raise NotImplementedError
'''


def reference(
    words: list[str],
    window: int,
    *,
    itself: bool = False,
    left: bool = True,
    right: bool = True,
    shorter: tuple[int, int] = (0, 0),
    swap: bool = False,
) -> list[tuple[str, str]]:
    """Return the pairs, first by the word and then by its context."""
    pairs = []
    for i, word in enumerate(words):
        first = max(0, i - window + shorter[0]) if left else i
        last = min(len(words), i + window - shorter[1] + 1) if right else i + 1
        for j in range(first, last):
            if j != i or itself:
                pairs.append((words[j], word) if swap else (word, words[j]))
    return pairs


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("window 1", (["the", "cat", "sleeps", "here"], 1))
    yield Case("window 2", (["a", "b", "c", "d", "e", "f"], 2))
    yield Case("a repeated word", (["no", "no", "yes", "no", "maybe"], 2))
    yield Case("a window longer than the text", (["one", "two", "three"], 5))


EXERCISE = CodeExercise(
    question="""
        Skip-gram learns word vectors by predicting, from each word, the words around it. List its training pairs: for
        each word of the text, in order, a pair with each word at most `window` places before or after it, from left to
        right.

        For "the cat sleeps" and window 1: (the, cat), (cat, the), (cat, sleeps), (sleeps, cat).
    """,
    function="skip_gram_pairs",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "pair-with-itself",
            "Each word is paired with itself, too.",
            "To predict a word from itself teaches nothing about its neighbours. Compare places, not words: the same"
            " word elsewhere is a neighbour like any other.",
            itself=True,
        ),
        mistake(
            "only-the-right",
            "Only words to the right are used.",
            "The context is on both sides.",
            left=False,
        ),
        mistake(
            "only-the-left",
            "Only words to the left are used.",
            "The context is on both sides.",
            right=False,
        ),
        mistake(
            "window-too-short",
            "The window ends one place too early on both sides.",
            "A window of 2 reaches two places to each side.",
            shorter=(1, 1),
        ),
        mistake(
            "last-word-excluded",
            "The last word of the window to the right is left out.",
            "range and slices exclude their end: the window ends at i + window + 1.",
            shorter=(0, 1),
        ),
        mistake(
            "swapped",
            "The pairs are (context word, word).",
            "Skip-gram predicts the context from the word; the other direction is CBOW's.",
            swap=True,
        ),
    ),
)
