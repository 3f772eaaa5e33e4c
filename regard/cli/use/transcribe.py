"""`regard transcribe`: what is said in recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared.model_options import Device, Dtype, Model, Threads, load_as
from regard.cli.shared.torch_import import import_torch
from regard.errors import DataError, UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.api.arrays.transcriber import Transcriber, Transcript


def transcribe_recordings(
    model: Model,
    files: Annotated[list[Path] | None, typer.Argument(help="WAV files.")] = None,
    evaluate: Annotated[
        Path | None,
        typer.Option(help="Folder or table of recordings with texts: print the word error rate instead."),
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="Width of the beam search; 1 is greedy search.")] = 5,
    times: Annotated[bool, typer.Option("--times", help="Also print the second that each token was heard at.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per recording: text, tokens, times and attention weights."),
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Transcribe recordings: print what is said in each WAV file.

    Train a recognizer on WAV files with a text file beside each: regard train FOLDER --model speech-recognizer
    Train one on a table of paths and texts: regard train recordings.tsv --model speech-recognizer

    Examples:
      regard transcribe -m runs/speech a.wav b.wav
      regard transcribe -m runs/speech a.wav --json
      regard transcribe -m runs/speech --evaluate test.tsv
    """
    import_torch()
    set_threads(threads)
    from regard.api.arrays.transcriber import Transcriber

    if times and as_json:
        raise UsageError("--json has the times already: leave out --times")
    if (evaluate is None) == (not files):
        raise UsageError("give WAV files, or --evaluate with a folder or a table of recordings with texts")
    transcriber = load_as(Transcriber, model, device, dtype)
    if evaluate is not None:
        print_errors(transcriber, evaluate, beam, as_json)
        return
    failed = 0
    for file in files or []:
        try:
            transcript = transcriber.transcribe(file, beam=beam, attention=times or as_json)
        except DataError as error:
            failed += 1
            typer.echo(f"regard: {error}", err=True)
            if not as_json:
                typer.echo("")  # one line for each recording
            continue
        typer.echo(
            as_object(transcript) if as_json else transcript.text + (f"\t{file}" if len(files or []) > 1 else "")
        )
        if times:
            pairs = zip(transcript.tokens, transcript.times or [], strict=True)
            typer.echo("  " + "  ".join(f"{token} {second:.2f}" for token, second in pairs))
    if failed:
        raise typer.Exit(DataError.exit_code)


def print_errors(transcriber: Transcriber, source: Path, beam: int, as_json: bool) -> None:
    """Print how many words of recordings with texts are wrong."""
    from regard.arrays.speech.recordings import read_recordings

    scores = transcriber.evaluate(read_recordings([source], transcriber.rate), beam=beam)
    if as_json:
        typer.echo(json.dumps({name: round(value, 6) for name, value in scores.items()}))
    else:
        count = f"{scores['recordings']:,} recordings"
        typer.echo(f"word error rate {scores['wer']:.2%}, without error {scores['exact']:.2%} of {count}")


def as_object(transcript: Transcript) -> str:
    """Return a transcript as one line of JSON."""
    weights = transcript.weights
    content = {
        "recording": transcript.name,
        "text": transcript.text,
        "score": round(transcript.score, 6),
        "seconds": round(transcript.seconds, 3),
        "tokens": transcript.tokens,
        "times": None if transcript.times is None else [round(second, 3) for second in transcript.times],
        "step": transcript.step,
        "weights": None if weights is None else [[round(weight, 6) for weight in row] for row in weights],
    }
    return json.dumps(content, ensure_ascii=False)
