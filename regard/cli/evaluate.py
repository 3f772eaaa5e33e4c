"""`regard evaluate`: how good a model, or a file of translations, is on a test set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.cli.score import likelihood_of
from regard.cli.shared.model_options import (
    DEFAULT_MODEL,
    Device,
    Dtype,
    Models,
    load_translators,
    plain_warnings,
    read_pairs,
    read_text,
)
from regard.cli.translate import make_search
from regard.errors import DataError, UsageError

if TYPE_CHECKING:
    from regard.api.translator import Translator
    from regard.decoding.searches.search import Search
    from regard.evaluation.bleu import Score
    from regard.evaluation.by_length import Bucket
    from regard.evaluation.significance import Comparison

Item = TypeVar("Item")
BATCH = 64


def evaluate_model(
    source: Annotated[Path, typer.Argument(help="Sources, one a line; for a language model the text.")],
    reference: Annotated[
        Path | None, typer.Argument(help="Their true translations, line by line; not for a language model.")
    ] = None,
    model: Models = None,
    hypotheses: Annotated[
        Path | None, typer.Option(help="Judge these translations, one a line, in place of a model's.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="A file of translations, or a model: is the difference to it real?")
    ] = None,
    alignment: Annotated[
        Path | None, typer.Option(help="Gold word alignments (0-0 1-2 …): the error rate of the model's attention.")
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="Width of the beam; 1 is greedy.")] = 5,
    length_penalty: Annotated[
        float | None, typer.Option(show_default="1", help="Power of the length in a beam's ranking.")
    ] = None,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's splitter: 13a, intl, char, zh, none.")] = "13a",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare without case.")] = False,
    lengths: Annotated[
        str | None, typer.Option(help="Where lengths are parted, in words: 10,20 is up to 10, 11 to 20, and above.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the translations to this file.")] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            show_default="half a window",
            help="Of a language model: tokens from one window of the text to the next, of which only they count.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All results as one JSON object.")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Judge a model on a test set: BLEU and chrF with 95% intervals, also by sentence length.

    For a language model its perplexity on a text.

    Example: regard evaluate -m runs/mine test.fr test.en --against runs/older
    """
    with plain_warnings():
        if reference is None:
            for name, value in (
                ("--hypotheses", hypotheses),
                ("--against", against),
                ("--alignment", alignment),
                ("--length-penalty", length_penalty),
                ("--lengths", lengths),
            ):
                if value is not None:
                    raise UsageError(f"{name} compares translations: give the references as a second file")
            if len(model or ()) > 1:
                raise UsageError("several models translate as one: give the references as a second file, or one model")
            evaluate_writer(source, (model or [DEFAULT_MODEL])[0], device, dtype, stride, as_json)
            return
        if stride is not None:
            raise UsageError("--stride is for the text of a language model, and translations are read whole")
        if hypotheses is not None and (model or alignment is not None):
            other = "--alignment needs a model" if not model else "give a model or --hypotheses, not both"
            raise UsageError(f"{other}: a file of translations says nothing of attention")
        search, edges = make_search(beam, length_penalty, None, 1), read_edges(lengths)
        sources, references = read_pairs(source, reference)
        results: dict[str, Any] = {"sentences": len(sources)}
        if hypotheses is None:
            translator = load_translators(model, device, dtype)
            ours = translations(translator, sources, search)
            if alignment is not None:
                results["alignment_error_rate"] = attention_error(translator, sources, references, alignment)
        else:
            ours = read_hypotheses(hypotheses, len(sources))
        if out is not None:
            write_lines(out, ours)
        results |= judge(ours, references, sources, tokenize=tokenize, lowercase=lowercase, edges=edges)
        if against is not None:
            if Path(against).is_file():
                theirs = read_hypotheses(Path(against), len(sources))
            else:
                theirs = translations(load_translators([against], device, dtype), sources, search)
            results["comparison"] = compare(theirs, ours, references, tokenize=tokenize, lowercase=lowercase)
    typer.echo(json.dumps(plain(results), ensure_ascii=False) if as_json else report(results, against))


def evaluate_writer(path: Path, model: str, device: str, dtype: str, stride: int | None, as_json: bool) -> None:
    """How well a language model predicts a text, every token once, and from how much of it."""
    from regard.api.writer import Writer
    from regard.tasks.loading import load

    face = load(model, device=device, dtype=dtype)
    if not isinstance(face, Writer):
        raise UsageError(f"{model} is no language model: give the references as a second file")
    stride = face.window // 2 if stride is None else stride
    found = likelihood_of(face, path, stride=stride)
    if as_json:
        typer.echo(json.dumps({**found.to_dict(), "window": face.window, "stride": stride}))
        return
    typer.echo(f"perplexity          {found.perplexity:.3f}  (of {found.tokens:,} tokens)")
    typer.echo(f"nats per token      {found.loss:.4f}  (windows of {face.window}, stride {stride})")
    typer.echo(f"bits per character  {found.bits_per_character:.4f}")


def translations(translator: Translator, sources: Sequence[str], search: Search) -> list[str]:
    """What the model makes of each source, on one line."""
    batches = [list(sources[start : start + BATCH]) for start in range(0, len(sources), BATCH)]
    found = [one.text for some in tracked(batches, "translating") for one in translator.translate(some, search=search)]
    return [text.replace("\n", " ") for text in found]


def attention_error(translator: Translator, sources: Sequence[str], references: Sequence[str], gold: Path) -> float:
    """The alignment error rate of the attention while the model is led along the references."""
    from regard.demo.corpus import demo_words
    from regard.evaluation.alignment import alignment_error_rate, read_links

    links = read_links(gold)
    if len(links) != len(sources):
        raise DataError(f"{gold} has {len(links)} lines of alignments for {len(sources)} sentences")
    pairs = list(zip(sources, references, strict=True))
    predicted = [
        set(translator.align(source, target, words=demo_words).pairs) for source, target in tracked(pairs, "aligning")
    ]
    return alignment_error_rate(predicted, [one.sure for one in links], [one.possible for one in links])


def read_edges(lengths: str | None) -> list[int] | None:
    """The lengths that the user parts sentences at."""
    if lengths is None:
        return None
    try:
        return [int(length) for length in lengths.split(",")]
    except ValueError:
        raise UsageError(f"--lengths {lengths}: write whole numbers with commas between, such as 10,20,30") from None


def judge(
    ours: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    *,
    tokenize: str,
    lowercase: bool,
    edges: Sequence[int] | None = None,
) -> dict[str, Any]:
    from regard.evaluation.bleu import corpus_bleu, corpus_chrf
    from regard.evaluation.by_length import MIN_SENTENCES, scores_by_length

    minimum = MIN_SENTENCES if edges is None else 1  # who says where wants it there, however few they are
    return {
        "bleu": corpus_bleu(ours, references, tokenize=tokenize, lowercase=lowercase, samples=1000),
        "chrf": corpus_chrf(ours, references, lowercase=lowercase, samples=1000),
        "by_length": scores_by_length(
            ours, references, sources, edges=edges, minimum=minimum, tokenize=tokenize, lowercase=lowercase
        ),
    }


def compare(
    theirs: Sequence[str], ours: Sequence[str], references: Sequence[str], *, tokenize: str, lowercase: bool
) -> dict[str, Comparison]:
    from regard.evaluation.significance import paired_bootstrap

    return {
        metric: paired_bootstrap(theirs, ours, references, metric=metric, tokenize=tokenize, lowercase=lowercase)
        for metric in ("bleu", "chrf")
    }


def read_hypotheses(path: Path, count: int) -> list[str]:
    lines = read_text(path)
    if len(lines) != count:
        raise DataError(f"{path} has {len(lines)} lines for {count} sentences: it must have one for each")
    return lines


def write_lines(path: Path, lines: Iterable[str]) -> None:
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def report(results: dict[str, Any], against: str | None) -> str:
    """The results as lines of text."""
    lines = [f"{results['sentences']:,} sentences", *(str(results[metric]) for metric in ("bleu", "chrf"))]
    if "alignment_error_rate" in results:
        lines.append(f"alignment error rate {results['alignment_error_rate']:.3f}")
    lines += ["", f"{'words':>9}  {'sentences':>9}  {'BLEU':>18}  {'chrF':>18}"]
    lines += [length_row(bucket) for bucket in results["by_length"]]
    for metric, found in results.get("comparison", {}).items():
        name = {"bleu": "BLEU", "chrf": "chrF"}[metric]
        low, high = found.interval
        lines += [
            "",
            f"{name} against {against}: {found.a.value:.1f} there, {found.b.value:.1f} here",
            f"  difference {found.difference:+.1f} [{low:+.1f}, {high:+.1f}], p = {found.p_value:.3f}, "
            f"ahead on {found.wins:.0%} of the resampled test sets",
        ]
    return "\n".join(lines)


def length_row(bucket: Bucket) -> str:
    words = f"{bucket.low}-{bucket.high}"
    return f"{words:>9}  {bucket.count:>9,}  {with_interval(bucket.bleu):>18}  {with_interval(bucket.chrf):>18}"


def with_interval(score: Score) -> str:
    if score.interval is None:
        return f"{score.value:.1f}"
    return f"{score.value:.1f} [{score.interval[0]:.1f}, {score.interval[1]:.1f}]"


def plain(value: Any) -> Any:
    """Results as JSON holds them."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def tracked(items: Sequence[Item], what: str) -> Iterable[Item]:
    """The items with a progress bar on stderr, where somebody can see it."""
    from rich.console import Console
    from rich.progress import track

    return track(items, what, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
