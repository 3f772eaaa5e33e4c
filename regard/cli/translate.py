"""`regard translate`: a line in, a line out, from a file, a pipe or the keyboard."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.shared.input_lines import line_windows, open_lines, progress, read_line
from regard.cli.shared.model_options import (
    SEARCH,
    Device,
    Draft,
    Dtype,
    MinP,
    MinTokens,
    Models,
    NoRepeat,
    Penalty,
    Seed,
    Temperature,
    TopK,
    TopP,
    load_translators,
    make_rules,
    make_sample,
    plain_warnings,
    search_option,
    whole_text,
    with_draft,
    write_utf8,
)
from regard.errors import DataError, RegardError, UsageError

if TYPE_CHECKING:
    from regard.api.results import Translation
    from regard.api.translator import Translator
    from regard.decoding.searches.greedy import Greedy
    from regard.decoding.searches.logit_rules import Rule
    from regard.decoding.searches.sample import Sample
    from regard.decoding.searches.search import Search


def translate_text(
    file: Annotated[
        Path | None, typer.Argument(help="One sentence a line; .gz, .xz and .zst too.", show_default="stdin")
    ] = None,
    model: Models = None,
    text: Annotated[str | None, typer.Option("--text", "-t", help="Translate this sentence, and read nothing.")] = None,
    beam: Annotated[
        int | None,
        typer.Option(min=1, show_default="5", rich_help_panel=SEARCH, help="Width of the beam; 1 is greedy."),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(show_default="1", rich_help_panel=SEARCH, help="Power of the length in a beam's ranking."),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=SEARCH, help="A phrase that each translation must hold; may be given again."),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", rich_help_panel=SEARCH, help="Draw the translation at random.")
    ] = False,
    minimum_risk: Annotated[
        int | None, search_option("Draw so many translations; take the one most like all others.", least=1)
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
        typer.Option(min=1, show_default="2 x source + 20", rich_help_panel=SEARCH, help="End after so many tokens."),
    ] = None,
    alternatives: Annotated[
        int, typer.Option("--alternatives", "-n", min=1, help="The n best: line number, score, text, tab-separated.")
    ] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Lines of similar length translated together.")] = 256,
    attention: Annotated[bool, typer.Option("--attention", help="Show the alignment; needs --json or --text.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the alignment as .png, .svg or .pdf; needs --text.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Translate text line by line: one line out for each line in.

    An empty line stays empty. A line that fails comes out empty, with a message on stderr and exit code 3 at the end.

    A file may be of any size: some thousand lines are in memory at a time. A line that comes alone is answered at once.

    Example: regard translate -m runs/mine < fr.txt > en.txt
    """
    if text is not None and file is not None:
        raise UsageError("give a file or --text, not both")
    if attention and not as_json and text is None:
        raise UsageError("--attention needs --json or --text: a matrix does not fit on a line")
    if plot is not None and text is None:
        raise UsageError("--plot draws one sentence: give it with --text")
    rules = make_rules(repetition_penalty, no_repeat, min_tokens, max_tokens)
    drawn = make_drawn(sample, minimum_risk, temperature, top_k, top_p, min_p, seed, rules)
    search = make_search(beam, length_penalty, drawn, alternatives, rules)
    search.rows(alternatives)  # a UsageError now, and not for each line, where it cannot find so many
    phrases = [whole_text(phrase, "--include") for phrase in include or ()]
    if phrases and (drawn is not None or beam == 1):
        raise UsageError(
            "--include needs a beam, which finds a place for each phrase: use no --sample, --minimum-risk or --beam 1"
        )
    drafted = None if draft is None else check_draft_options(search, model, alternatives)
    translator = load_translators(model, device, dtype)
    if draft is not None and drafted is not None:
        search = with_draft(drafted, draft, translator, device, dtype)
    settings = Settings(search, alternatives, max_tokens, attention, as_json, phrases)
    check_room(translator, phrases, min_tokens, max_tokens)
    write_utf8()
    with plain_warnings():
        if text is None:
            translate_stream(translator, file, settings, batch)
        else:
            translate_sentence(translator, whole_text(text, "--text"), settings, plot)


@dataclass(frozen=True)
class Settings:
    """How to translate, and how to write it down."""

    search: Search
    alternatives: int
    max_tokens: int | None
    attention: bool
    as_json: bool
    include: Sequence[str] = ()


def check_room(translator: Translator, phrases: Sequence[str], min_tokens: int | None, max_tokens: int | None) -> None:
    """A UsageError now, and not for each line, where no translation can be what the options ask for."""
    from regard.decoding.searches.constraints import needed_phrases
    from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

    longest = translator.longest
    if min_tokens is not None and longest is not None and min_tokens > longest:
        raise UsageError(f"--min-tokens {min_tokens} is more than the {longest} positions that the model has learned")
    tokens = [translator.target_tokenizer.encode(phrase) for phrase in phrases]
    for phrase, one in zip(phrases, tokens, strict=True):
        if not one or min(one) < len(SPECIAL_TOKENS):
            raise UsageError(f"--include {phrase!r}: give a phrase that the model can write, and not an empty one")
    room = max_tokens if longest is None else min(longest, max_tokens or longest)
    needed = sum(map(len, needed_phrases(tokens, sys.maxsize)))
    if room is not None and needed > room:
        raise UsageError(f"--include asks for {needed} tokens, and a translation may have {room}")


def make_drawn(
    sample: bool,
    minimum_risk: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    seed: int | None,
    rules: tuple[Rule, ...],
) -> Search | None:
    """The sampling, if it is wanted; its options without it are a mistake."""
    given = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--min-p": min_p, "--seed": seed}
    if sample and minimum_risk is not None:
        raise UsageError("--minimum-risk chooses from samples, and --sample takes the first one: give one of them")
    if not sample and minimum_risk is None:
        for name, value in given.items():
            if value is not None:
                raise UsageError(f"{name} is an option of sampling: add --sample or --minimum-risk")
        return None
    drawn = make_sample(temperature, top_k, top_p, min_p, seed, rules)
    if minimum_risk is None:
        return drawn
    from regard.decoding.searches.minimum_risk import MinimumRisk

    return MinimumRisk(minimum_risk, drawn)


def check_draft_options(search: Search, models: Sequence[str] | None, alternatives: int) -> Greedy | Sample:
    """The search, if a draft can help it; a UsageError where the other options leave a draft nothing to do."""
    from regard.decoding.searches.greedy import Greedy
    from regard.decoding.searches.sample import Sample

    if not isinstance(search, Greedy | Sample):
        raise UsageError("--draft is for greedy search and sampling: add --beam 1 or --sample")
    if len(models or ()) > 1 or alternatives > 1:
        raise UsageError("--draft is for one translation by one model: leave out --alternatives and other --model")
    return search


def make_search(
    beam: int | None,
    length_penalty: float | None,
    drawn: Search | None,
    alternatives: int,
    rules: tuple[Rule, ...] = (),
) -> Search:
    """The search that the options ask for."""
    from regard.api.translator import BEAM
    from regard.decoding.searches.beam import Beam
    from regard.decoding.searches.greedy import Greedy

    if drawn is not None:
        if beam is not None or length_penalty is not None:
            raise UsageError("samples are drawn token by token: --beam and --length-penalty do not go with them")
        return drawn
    if beam == 1:
        if length_penalty is not None:
            raise UsageError("--length-penalty ranks the texts of a beam, and --beam 1 has one")
        return Greedy(rules=rules)
    power = 1.0 if length_penalty is None else length_penalty
    return Beam(beam or max(BEAM, alternatives), length_penalty=power, rules=rules)


def translate_sentence(translator: Translator, text: str, settings: Settings, plot: Path | None) -> None:
    """One sentence, with its alignment to look at where that is wanted."""
    found = translator.translate(
        text,
        search=settings.search,
        alternatives=settings.alternatives,
        include=settings.include,
        max_tokens=settings.max_tokens,
    )
    typer.echo(written(1, found, settings))
    if settings.attention and not settings.as_json:
        from rich.console import Console

        Console(highlight=False).print(found.alignment())
    if plot is not None:
        typer.echo(f"wrote {found.plot(plot)}", err=True)


def translate_stream(translator: Translator, file: Path | None, settings: Settings, batch: int) -> None:
    """All lines of the input; typer.Exit(3) at the end where some failed."""
    failed = number = 0
    with open_lines(file) as stream, progress(stream, file) as advance:
        for lines in line_windows(stream, batch):
            ready = [""] * len(lines)
            faults: dict[int, str] = {}
            for place, found in translate_lines(translator, lines, settings, batch, first=number):
                if isinstance(found, str):
                    faults[place] = found
                ready[place] = written(number + place + 1, found, settings)
                advance(len(lines[place]) + 1)
            for place in sorted(faults):
                typer.echo(f"regard: line {number + place + 1}: {faults[place]}", err=True)
            sys.stdout.write("".join(f"{line}\n" for line in ready))
            sys.stdout.flush()
            number, failed = number + len(lines), failed + len(faults)
    if failed:
        typer.echo(f"regard: {failed} of {number} lines failed; they are empty in the output", err=True)
        raise typer.Exit(3)


def translate_lines(
    translator: Translator, lines: Sequence[bytes], settings: Settings, batch: int, *, first: int
) -> Iterator[tuple[int, Translation | str]]:
    """The place of each line and its translation, or what is wrong with it; lines of similar length go together."""
    texts: dict[int, str] = {}
    for place, line in enumerate(lines):
        try:
            texts[place] = read_line(line)
        except DataError as error:
            yield place, str(error)
    # The longest first, as what does not fit into memory should fail early.
    order = sorted(texts, key=lambda place: len(texts[place]), reverse=True)
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        numbered = [(first + place, texts[place]) for place in places]
        yield from zip(places, translate_together(translator, numbered, settings), strict=True)


def translate_together(
    translator: Translator, numbered: list[tuple[int, str]], settings: Settings
) -> list[Translation | str]:
    """A translation of each text, or what is wrong with it: where one fails, the others shall come out."""
    numbers, texts = ([*side] for side in zip(*numbered, strict=True))
    try:
        return [
            *translator.translate(
                texts,
                search=settings.search,
                alternatives=settings.alternatives,
                include=settings.include,
                max_tokens=settings.max_tokens,
                numbers=numbers,  # so that draws depend on the line, and not on what comes together
            )
        ]
    except RegardError as error:
        reason = str(error)
    except (MemoryError, RuntimeError) as error:
        from regard.machine import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        reason = "too long for the memory: split it"
    if len(texts) == 1:
        return [reason]
    halves = numbered[: len(texts) // 2], numbered[len(texts) // 2 :]
    return [one for half in halves for one in translate_together(translator, half, settings)]


def written(number: int, found: Translation | str, settings: Settings) -> str:
    """A translation, or a failure, as the output has it: one line, or one for each alternative."""
    if settings.as_json:
        return json.dumps(as_object(found, settings), ensure_ascii=False)
    if settings.alternatives == 1:
        return "" if isinstance(found, str) else one_line(found.text)
    if isinstance(found, str):
        return f"{number}\t\t"
    return "\n".join(f"{number}\t{one.score:.4f}\t{one_line(one.text)}" for one in found.alternatives)


def as_object(found: Translation | str, settings: Settings) -> dict[str, Any]:
    if isinstance(found, str):
        return {"text": "", "error": found}
    result: dict[str, Any] = {
        "text": found.text,
        "score": round(found.score, 4),
        "tokens": found.tokens,
        "source_tokens": found.source_tokens,
    }
    if settings.alternatives > 1:
        result["alternatives"] = [{"text": one.text, "score": round(one.score, 4)} for one in found.alternatives]
    if settings.attention:
        result["alignment"] = found.alignment().to_dict() if found.ids else None
    return result


def one_line(text: str) -> str:
    """A model may write a line break; the output may not, or its lines would no longer be those of the input."""
    return text.replace("\r", " ").replace("\n", " ")
