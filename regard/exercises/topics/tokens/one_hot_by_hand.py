"""Multiply one-hot rows with a table by hand (A1)."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from regard.exercises.exercise import NumberExercise, mistake

TABLE = torch.tensor([[1.0, 2, 0], [0, 3, 1], [4, 0, 2], [5, 1, 1]])
IDS = torch.tensor([2, 0, 2])


def reference(*, shift: int = 0, columns: bool = False, total: bool = False) -> dict[str, list]:
    """Return the rows that the one-hot rows select."""
    one_hot = F.one_hot(IDS - shift if shift == 0 else (IDS - shift) % 4, 4).float()
    if columns:
        return {"rows": [[*TABLE[:3, i % 3].tolist()] for i in IDS.tolist()], "one_hot": one_hot.tolist()}
    rows = one_hot @ TABLE
    return {
        "rows": [rows.sum(0).tolist()] * 3 if total else rows.tolist(),
        "one_hot": one_hot.tolist(),
    }


EXERCISE = NumberExercise(
    question="""
        A vocabulary has four words with the numbers 0 to 3, and this table has a row of width 3 for each word:

            word 0:  1  2  0
            word 1:  0  3  1
            word 2:  4  0  2
            word 3:  5  1  1

        A text has the words 2, 0, 2.

        a) Write the text as a matrix of one-hot rows: a row for each word of the text, a column for each of the four
           words of the vocabulary.
        b) Multiply this matrix with the table. How could you have found the result without multiplying?
    """,
    answers={
        "one_hot": "a) three rows of four numbers: [[…], […], […]]",
        "rows": "b) three rows of three numbers: [[…], […], […]]",
    },
    reference=lambda **options: {key: reference(**options)[key] for key in ("one_hot", "rows")},
    mistakes=(
        mistake(
            "counted-from-one",
            "The words are counted from 1 instead of 0.",
            "Word numbers are row numbers of the table, and the first row is row 0.",
            shift=1,
        ),
        mistake(
            "columns",
            "The table is read by columns instead of rows.",
            "A one-hot row times a matrix selects a row of the matrix: the vector of that word.",
            columns=True,
        ),
        mistake(
            "summed",
            "The selected rows are added together.",
            "Each word of the text keeps a row of its own; their sum is a bag of words.",
            total=True,
        ),
    ),
)
