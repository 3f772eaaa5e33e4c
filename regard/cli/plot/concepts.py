"""`regard plot`: the pictures that explain an idea of the lectures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from regard.cli.plot.drawing import AnimatedOutput, Output, write


def norms(output: Output = None) -> None:
    """Draw layer norm against batch norm: what is averaged, and what a batch does to a recurrent net (E1)."""
    from regard.look.pictures.concepts.normalization import norms_plot

    write(norms_plot, output, "norms")


def scaling(
    keys: Annotated[int, typer.Option(min=2, help="Number of keys.")] = 16,
    output: Output = None,
) -> None:
    """Draw why scores are divided by √d: scores, weights and gradients against the width (D9)."""
    from regard.look.pictures.concepts.scaling import scaling_plot

    write(lambda: scaling_plot(keys=keys), output, "scaling")


def position_schemes(output: Output = None) -> None:
    """Draw the rejected positions, and a table of position schemes against criteria (B3, B5)."""
    from regard.look.pictures.concepts.position_schemes import position_schemes_plot

    write(position_schemes_plot, output, "position-schemes")


def three_heads(
    word: Annotated[int, typer.Option(min=1, max=5, help="Word of the sentence, from 1.")] = 3,
    output: Output = None,
) -> None:
    """Draw three heads that ask what, when and who about one word (D11, E9)."""
    from regard.look.pictures.concepts.three_heads import three_heads_plot

    write(lambda: three_heads_plot(word=word - 1), output, "three-heads")


def search(output: Output = None) -> None:
    """Draw attention as a search: a query, titles as keys, videos as values (D4)."""
    from regard.look.pictures.concepts.three_heads import search_plot

    write(search_plot, output, "search")


def two_attentions(output: Output = None) -> None:
    """Draw attention in a recurrent net beside the Transformer's, formula by formula (D9, D14)."""
    from regard.look.pictures.concepts.diagrams import two_attentions_diagram

    write(two_attentions_diagram, output, "two-attentions")


def sequence_tasks(output: Output = None) -> None:
    """Draw one-to-many, many-to-one and many-to-many tasks of a recurrent net (C2, C4)."""
    from regard.look.pictures.concepts.diagrams import sequence_tasks_diagram

    write(sequence_tasks_diagram, output, "sequence-tasks")


def growth(output: Output = None) -> None:
    """Draw how Transformers have grown since 2018: parameters of published models against time (E10)."""
    from regard.look.pictures.concepts.growth import growth_plot

    write(growth_plot, output, "growth")


def unrolling(output: AnimatedOutput = None) -> None:
    """Draw a recurrent net unrolled over a sentence, and what its last state keeps of each word (C1, C3).

    Example: regard plot unrolling -o unrolling.gif
    """
    from regard.look.pictures.animations.unrolling import unrolling_frames, unrolling_plot

    write(unrolling_plot, output, "unrolling", animate=unrolling_frames)


def attention_rows(output: AnimatedOutput = None) -> None:
    """Draw self-attention row by row: scores, weights and output of each word (D8, D9).

    Example: regard plot attention-rows -o attention-rows.gif
    """
    from regard.look.pictures.animations.attention_rows import attention_rows_frames, attention_rows_plot

    write(attention_rows_plot, output, "attention-rows", animate=attention_rows_frames)


CONCEPTS: dict[str, Callable[..., None]] = {
    "norms": norms,
    "scaling": scaling,
    "position-schemes": position_schemes,
    "three-heads": three_heads,
    "search": search,
    "two-attentions": two_attentions,
    "sequence-tasks": sequence_tasks,
    "growth": growth,
    "unrolling": unrolling,
    "attention-rows": attention_rows,
}
