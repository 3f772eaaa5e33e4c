"""`regard translate`: one output line for each input line, from a file, a pipe or the keyboard."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared.model_options import (
    DEFAULT_MODEL,
    Device,
    Dtype,
    Models,
    Threads,
    UnknownLetters,
    check_utf8,
    load_translators,
    plain_warnings,
)
from regard.cli.shared.search_options import (
    SEARCH,
    Draft,
    MinP,
    MinTokens,
    NoRepeat,
    Penalty,
    Seed,
    Temperature,
    TopK,
    TopP,
    check_draft_options,
    make_random_search,
    make_rules,
    make_search,
    search_option,
    with_draft,
    with_recommended,
)
from regard.cli.shared.torch_import import import_torch
from regard.cli.use.translate_job import (
    MAX_WORKERS,
    WorkerOptions,
    check_job_options,
    translate_block,
    translate_job,
)
from regard.cli.use.translated_lines import LineSettings, output_line, translate_stream
from regard.errors import UsageError
from regard.machine import set_threads
from regard.scale.worker_loop import answer_blocks, worker_number
from regard.text.files.input_windows import WINDOW_LINES

if TYPE_CHECKING:
    from regard.api.translator import Translator
    from regard.decoding.searches.search import Search


def translate_text(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Text file, one sentence per line; may be .gz, .xz or .zst. Several files need --out.",
            show_default="stdin",
        ),
    ] = None,
    model: Models = None,
    text: Annotated[str | None, typer.Option("--text", "-t", help="Translate this sentence instead of a file.")] = None,
    beam: Annotated[
        int | None,
        typer.Option(min=1, show_default="5", rich_help_panel=SEARCH, help="Beam width; 1 is greedy search."),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            show_default="1", rich_help_panel=SEARCH, help="Hypotheses are ranked by log-probability / length^PENALTY."
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=SEARCH, help="Phrase that every translation must contain; may be repeated."),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", rich_help_panel=SEARCH, help="Sample the translation at random.")
    ] = False,
    minimum_risk: Annotated[
        int | None,
        search_option("Minimum Bayes risk: sample N translations, take the one most like the others.", minimum=1),
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    seed: Seed = None,
    draft: Draft = None,
    repetition_penalty: Penalty = None,
    no_repeat: NoRepeat = None,
    min_tokens: MinTokens = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="2 x source + 20", rich_help_panel=SEARCH, help="Generate at most this many tokens."
        ),
    ] = None,
    source_language: Annotated[
        str | None, typer.Option("--from", metavar="CODE", help="Source language, for a model with codes for several.")
    ] = None,
    target_language: Annotated[
        str | None, typer.Option("--to", metavar="CODE", help="Target language, for a model with codes for several.")
    ] = None,
    alternatives: Annotated[
        int,
        typer.Option(
            "--alternatives", "-n", min=1, help="Print the N best as line number, score and text, tab-separated."
        ),
    ] = 1,
    batch: Annotated[
        int, typer.Option(min=1, help="Number of lines per batch; lines of similar length share one.")
    ] = WINDOW_LINES,
    attention: Annotated[
        bool, typer.Option("--attention", help="Output the alignment too; needs --json or --text.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the alignment to a .png, .svg or .pdf file; needs --text.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of a resumable job: the translation of each FILE goes there, under its name."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_WORKERS, show_default="1", help="Number of processes of a job, which share the cores."
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Run a job on a Ray cluster: HOST:PORT, auto for one that runs here, without an address a new one.",
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Translate text line by line.

    The output has one line for each input line. Empty lines stay empty. A line that cannot be translated becomes an
    empty line with a message on stderr, and the exit code is 3.

    Files of any size work, because only a few thousand lines are in memory at a time. Lines from a pipe or the
    keyboard are translated as they arrive.

    With --out, several processes translate many files. If this is interrupted, the same command continues.

    Examples:
      regard translate -m runs/mine < fr.txt > en.txt
      regard translate --text "Le chat dort." --attention
      regard translate -m runs/mine fr.txt --json --alternatives 3
      regard translate a.fr.gz b.fr --workers 4 -o translated
      regard translate a.fr b.fr --ray head:6379 --workers 64 -o translated
    """
    if text is not None and (files or out is not None):
        raise UsageError("pass a file or --text, not both")
    check_job_options(files or [], out, workers, ray)
    if attention and not as_json and text is None:
        raise UsageError("--attention needs --json or --text: a matrix does not fit on one line")
    if plot is not None and text is None:
        raise UsageError("--plot draws one sentence: pass it with --text")
    if out is None:  # a job divides the cores among its workers
        set_threads(threads)
    rules = make_rules(repetition_penalty, no_repeat, min_tokens, max_tokens)
    random_search = make_random_search(sample, minimum_risk, temperature, top_k, top_p, min_p, seed, rules)
    search = make_search(beam, length_penalty, random_search, alternatives, rules)
    search.rows(alternatives)  # raises UsageError now, not for each line, if the search cannot return so many
    phrases = [check_utf8(phrase, "--include") for phrase in include or ()]
    if phrases and (random_search is not None or beam == 1):
        raise UsageError(
            "--include needs beam search, which decides where each phrase goes: leave out --sample, --minimum-risk and "
            "--beam 1"
        )
    draftable = None if draft is None else check_draft_options(search, model, alternatives)
    if out is not None:
        settings = LineSettings(search, alternatives, max_tokens, attention, as_json, phrases)
        models = [*(model or [DEFAULT_MODEL]), *([draft] if draft else [])]
        translate_job(context, files or [], out, models, settings, batch, WorkerOptions(workers or 1, threads, ray))
        return
    shows_attention = attention or plot is not None
    if shows_attention or phrases or draft or why_torch(search, model, device, dtype) is not None:
        import_torch()  # what follows would import it too, but more slowly
    translator = load_translators(model, device, dtype)
    if source_language is not None or target_language is not None:
        translator = translator.between(source_language, target_language)
    search = with_recommended(search, beam, length_penalty, alternatives, translator.info.get("search"))
    if draft is not None and draftable is not None:
        search = with_draft(draftable, draft, translator, device, dtype)
    letters = None if worker_number() else UnknownLetters(translator.source_tokenizer, translator.reader.unseen)
    settings = LineSettings(search, alternatives, max_tokens, attention, as_json, phrases, letters)
    check_lengths(translator, phrases, min_tokens, max_tokens)
    with plain_warnings():
        if worker_number() is not None:
            answer_blocks(partial(translate_block, translator, settings, batch))
        elif text is None:
            translate_stream(translator, files[0] if files else None, settings, batch)
        else:
            translate_sentence(translator, check_utf8(text, "--text"), settings, plot)


def why_torch(search: Search, models: Sequence[str] | None, device: str, dtype: str) -> str | None:
    """Return the reason why a search with these models needs torch, or None if C can translate without it."""
    from regard.api.model_names import find_model
    from regard.decoding.cpu.c_search import why_not_search
    from regard.decoding.cpu.folder_model import why_not_settings

    model, *others = models or [DEFAULT_MODEL]
    if others:
        return "several models decode as an ensemble of modules"
    return why_not_search(search) or why_not_settings(find_model(model), device=device, dtype=dtype)


def check_lengths(
    translator: Translator, phrases: Sequence[str], min_tokens: int | None, max_tokens: int | None
) -> None:
    """Raise UsageError, once and not for each line, if no translation can satisfy the options."""
    from regard.decoding.searches.constraints import needed_phrases
    from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

    longest = translator.longest
    if min_tokens is not None and longest is not None and min_tokens > longest:
        raise UsageError(f"--min-tokens {min_tokens} is more than the {longest} positions that the model has learned")
    phrase_ids = [translator.target_tokenizer.encode(phrase) for phrase in phrases]
    for phrase, ids in zip(phrases, phrase_ids, strict=True):
        if not ids or min(ids) < len(SPECIAL_TOKENS):
            raise UsageError(f"--include {phrase!r}: the phrase is empty or the model's tokenizer cannot encode it")
    limit = max_tokens if longest is None else min(longest, max_tokens or longest)
    needed = sum(map(len, needed_phrases(phrase_ids, sys.maxsize)))
    if limit is not None and needed > limit:
        raise UsageError(f"--include needs {needed} tokens, but a translation may have at most {limit}")


def translate_sentence(translator: Translator, text: str, settings: LineSettings, plot: Path | None) -> None:
    """Translate one sentence and print it, with its alignment if the options ask for it."""
    if settings.letters is not None:
        settings.letters.name_in(text)
    translation = translator.translate(
        text,
        search=settings.search,
        alternatives=settings.alternatives,
        include=settings.include,
        max_tokens=settings.max_tokens,
    )
    typer.echo(output_line(1, translation, settings))
    if settings.attention and not settings.as_json:
        from rich.console import Console

        Console(highlight=False).print(translation.alignment())
    if plot is not None:
        typer.echo(f"wrote {translation.plot(plot)}", err=True)
