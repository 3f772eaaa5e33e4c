"""`regard answer`: answers to questions about a story."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shared.model_options import (
    Device,
    Dtype,
    Model,
    Threads,
    check_utf8,
    load_as,
    plain_warnings,
    read_text,
)
from regard.cli.shared.torch_import import import_torch
from regard.errors import DataError, UsageError
from regard.machine import set_threads


def answer_questions(
    model: Model,
    story: Annotated[Path, typer.Argument(help="Text file with the story; - is stdin.")],
    questions: Annotated[list[str], typer.Argument(help="Questions about the story.")],
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Also print the sentence that each answer is taken from.")
    ] = False,
    beam: Annotated[int, typer.Option(min=1, help="Beam width; 1 is greedy search.")] = 1,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per line: question, answer, score, sentences and shares."),
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Answer questions about a story: print one answer for each question.

    Train on a .jsonl file with "story", "question" and "answer" in each line:
    regard train questions.jsonl --model answerer

    Examples:
      regard answer -m runs/mine story.txt "Who went to the park?" --sentences
    """
    import_torch()
    set_threads(threads)
    from regard.api.copying.answerer import Answerer

    if sentences and as_json:
        raise UsageError("--json has the sentences already: leave out --sentences")
    for question in questions:
        check_utf8(question, "a question")
    text = "\n".join(read_text(story)).strip()
    if not text:
        raise DataError(f"{story} is empty: there is nothing to ask about")
    answerer = load_as(Answerer, model, device, dtype)
    with plain_warnings():
        answers = answerer.answer(text, questions, beam=beam)
    for answer in answers:
        if as_json:
            content = {
                "question": answer.question,
                "answer": answer.text,
                "score": round(answer.score, 6),
                "sentences": answer.sentences,
                "shares": [round(share, 6) for share in answer.shares],
            }
            typer.echo(json.dumps(content, ensure_ascii=False))
            continue
        typer.echo(answer.text)
        if sentences:
            typer.echo(f"  {answer.shares[answer.support]:4.0%}  {answer.sentences[answer.support]}")
