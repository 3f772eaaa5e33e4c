"""`regard generate`: continue a text with a language model, printing it as it is generated."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared.model_options import (
    Device,
    Dtype,
    Model,
    Threads,
    UnknownLetters,
    check_utf8,
    load_as,
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
    make_rules,
    make_sample,
    search_option,
    with_draft,
)
from regard.cli.shared.torch_import import import_torch
from regard.errors import DataError, UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.api.writer import Writer

DEFAULT_WRITER = "shakespeare"
MAX_RANDOM_SEED = 10**6  # a number that is easy to type again


def generate_text(
    prompt: Annotated[str | None, typer.Argument(help="Beginning of the text.", show_default="stdin, if piped")] = None,
    model: Model = DEFAULT_WRITER,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    seed: Seed = None,
    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy", rich_help_panel=SEARCH, help="Always take the most probable token instead of sampling."
        ),
    ] = False,
    draft: Draft = None,
    repetition_penalty: Penalty = None,
    no_repeat: NoRepeat = None,
    min_tokens: MinTokens = None,
    max_tokens: Annotated[int, search_option("Generate at most this many tokens.", minimum=1)] = 200,
    stop: Annotated[list[str] | None, search_option("Stop before this text; may be repeated.")] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Number of texts, with consecutive seeds.")] = 1,
    chat: Annotated[
        bool,
        typer.Option("--chat", help="Talk to a chat model: answer the prompt, or each line that is typed or piped."),
    ] = False,
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="With --chat: what the system says first.", show_default="the model's own"),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per text: prompt, text, seed; with --chat: message, answer."
        ),
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Continue a text with a language model.

    The output is the prompt and the continuation. An empty line separates several texts.

    Example: regard generate -m runs/plays "ROMEO:" --temperature 0.8 --seed 1

    With --chat, it answers the messages of a conversation, if it is a chat model.
    """
    import_torch()
    set_threads(threads)
    from regard.api.writer import Writer
    from regard.decoding.searches.greedy import Greedy

    options = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--min-p": min_p, "--seed": seed}
    if greedy:
        for name, value in options.items():
            if value is not None:
                raise UsageError(f"{name} is an option of sampling, and --greedy does not sample: pass one of them")
        if n > 1:
            raise UsageError("--greedy always gives the same text: leave out --n")
    rules = make_rules(repetition_penalty, no_repeat, min_tokens, max_tokens)
    first_seed = secrets.randbelow(MAX_RANDOM_SEED) if seed is None else seed
    sampling = make_sample(temperature, top_k, top_p, min_p, first_seed, rules, greedy="--greedy")
    writer = load_as(Writer, model, device, dtype)
    if chat:
        check_chat_options(writer, model, draft=draft, n=n)
        from regard.cli.use.conversation import Conversation

        Conversation(
            writer,
            lambda number: Greedy(rules=rules) if greedy else replace(sampling, seed=sampling.seed + number),
            system=system,
            max_tokens=max_tokens,
            stop=stop,
            as_json=as_json,
        ).run(prompt)
        return
    if system is not None:
        raise UsageError("--system is an option of --chat")
    speculative = None if draft is None else with_draft(sampling, draft, writer, device, dtype)
    prompt = read_prompt() if prompt is None else check_utf8(prompt, "the prompt")
    UnknownLetters(writer.tokenizer).name_in(prompt)
    if seed is None and not greedy:
        typer.echo(f"regard: seed {first_seed}; --seed {first_seed} generates the same text again", err=True)
    with plain_warnings():
        for number in range(n):
            search = Greedy(rules=rules) if greedy else replace(sampling, seed=sampling.seed + number)
            parts: Iterable[str]
            if speculative is None:
                parts = writer.stream(prompt, search=search, max_tokens=max_tokens, stop=stop)
            else:
                parts = [
                    writer.write(prompt, search=replace(speculative, search=search), max_tokens=max_tokens, stop=stop)
                ]
            if as_json:
                entry = {"prompt": prompt, "text": "".join(parts), "seed": None if greedy else sampling.seed + number}
                typer.echo(json.dumps(entry, ensure_ascii=False))
                continue
            sys.stdout.write("\n" * (number > 0) + prompt)
            for part in parts:
                sys.stdout.write(part)
                sys.stdout.flush()
            sys.stdout.write("\n")


def check_chat_options(writer: Writer, model: str, *, draft: str | None, n: int) -> None:
    """Raise UsageError if the model cannot chat, or an option does not fit a conversation."""
    if writer.chat_format is None:
        raise UsageError(f"{model} has no chat format: it continues texts, and does not answer messages")
    if draft is not None or n > 1:
        raise UsageError(f"--chat gives one answer to each message: leave out {'--draft' if n == 1 else '--n'}")


def read_prompt() -> str:
    """Read the prompt from a pipe, without the line break that `echo` adds; empty if stdin is a terminal."""
    if sys.stdin.isatty():
        return ""
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"the prompt on stdin is not UTF-8: {error.reason} at byte {error.start + 1}") from None
