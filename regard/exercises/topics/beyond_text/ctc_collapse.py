"""Collapse the frames of a speech recognizer (Graves et al. 2006; G6)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
def collapse(frames: str, blank: str) -> str:
    """One letter or blank per frame of sound; return the text."""
    raise NotImplementedError
'''


def reference(
    frames: str, blank: str, *, order: str = "repeats first", blanks: bool = True, repeats: str = "all"
) -> str:
    """Merge repeated letters, then remove the blanks."""
    if order == "blanks first":
        frames = frames.replace(blank, "")
    if repeats == "all":
        frames = "".join(letter for letter, _ in groupby(frames))
    elif repeats == "set":
        frames = "".join(dict.fromkeys(frames))
    return frames.replace(blank, "") if blanks else frames


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a word without double letters", ("__cc_aaa_t__", "_"))
    yield Case("a double letter", ("hh_e_ll_lll_oo", "_"))
    yield Case("a letter that comes again later", ("b-aan--aa-nn-a", "-"))


EXERCISE = CodeExercise(
    question="""
        A speech recognizer writes one letter, or a blank, for each frame of sound. A spoken letter lasts several
        frames, so repeated letters are merged. The blank separates letters that are really double:

            hh_e_ll_lll_oo   →   hello

        Write this: first merge equal neighbours, then remove the blanks.
    """,
    function="collapse",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "blanks-removed-first",
            "The blanks are removed before equal neighbours are merged.",
            "Then double letters merge, too, and hello becomes helo.",
            order="blanks first",
        ),
        mistake(
            "repeats-kept",
            "Equal neighbours are not merged.",
            "A letter is written once for each frame that it lasts.",
            repeats="none",
        ),
        mistake(
            "blanks-kept",
            "The blanks are still there.",
            "They are no letters; they only separate.",
            blanks=False,
        ),
        mistake(
            "every-letter-once",
            "Each letter occurs only once in the text.",
            "Merge neighbours only: a letter may come again later.",
            repeats="set",
        ),
    ),
)
