"""`regard generate`: a language model goes on with a text, on the screen as it is written."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import typer

from regard.cli.shared.model_options import (
    SEARCH,
    Device,
    Draft,
    Dtype,
    MinP,
    MinTokens,
    Model,
    NoRepeat,
    Penalty,
    Seed,
    Temperature,
    TopK,
    TopP,
    load_as,
    make_rules,
    make_sample,
    plain_warnings,
    search_option,
    whole_text,
    with_draft,
    write_utf8,
)
from regard.errors import DataError, UsageError

DEFAULT_WRITER = "shakespeare"


def generate_text(
    prompt: Annotated[str | None, typer.Argument(help="How the text begins.", show_default="stdin, if piped")] = None,
    model: Model = DEFAULT_WRITER,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    seed: Seed = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", rich_help_panel=SEARCH, help="Always the most probable token; no chance.")
    ] = False,
    draft: Draft = None,
    repetition_penalty: Penalty = None,
    no_repeat: NoRepeat = None,
    min_tokens: MinTokens = None,
    max_tokens: Annotated[int, search_option("End after so many tokens.", least=1)] = 200,
    stop: Annotated[list[str] | None, search_option("End before this text; may be given several times.")] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many texts, from seeds one after the other.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a text: prompt, text, seed.")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Go on with a text: print the prompt and what the model writes after it.

    Several texts have an empty line between them.

    Example: regard generate -m runs/plays "ROMEO:" --temperature 0.8 --seed 1
    """
    from regard.api.writer import Writer
    from regard.decoding.searches.greedy import Greedy

    options = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--min-p": min_p, "--seed": seed}
    if greedy:
        for name, value in options.items():
            if value is not None:
                raise UsageError(f"{name} is an option of sampling, and --greedy does not draw")
        if n > 1:
            raise UsageError("--greedy has one text, so --n must be 1")
    rules = make_rules(repetition_penalty, no_repeat, min_tokens, max_tokens)
    drawn = make_sample(temperature, top_k, top_p, min_p, seed, rules)
    writer = load_as(Writer, model, device, dtype)
    speculative = None if draft is None else with_draft(drawn, draft, writer, device, dtype)
    prompt = read_prompt() if prompt is None else whole_text(prompt, "the prompt")
    write_utf8()
    with plain_warnings():
        for number in range(n):
            search = Greedy(rules=rules) if greedy else replace(drawn, seed=drawn.seed + number)
            parts: Iterable[str]
            if speculative is None:
                parts = writer.stream(prompt, search=search, max_tokens=max_tokens, stop=stop)
            else:
                drafted = replace(speculative, search=search)
                parts = [writer.write(prompt, search=drafted, max_tokens=max_tokens, stop=stop)]
            if as_json:
                entry = {"prompt": prompt, "text": "".join(parts), "seed": None if greedy else drawn.seed + number}
                typer.echo(json.dumps(entry, ensure_ascii=False))
                continue
            sys.stdout.write("\n" * (number > 0) + prompt)
            for part in parts:
                sys.stdout.write(part)
                sys.stdout.flush()
            sys.stdout.write("\n")


def read_prompt() -> str:
    """What is piped in, without the line end that `echo` puts there; nothing when a person sits at the keyboard."""
    if sys.stdin.isatty():
        return ""
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"the prompt on stdin is not UTF-8: {error.reason} at byte {error.start + 1}") from None
