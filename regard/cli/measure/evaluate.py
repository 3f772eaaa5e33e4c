"""`regard evaluate`: measure the quality of a model, or of a file of translations, on a test set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.cli.measure.score import likelihood_of
from regard.cli.shared.model_options import (
    DEFAULT_MODEL,
    Device,
    Dtype,
    Models,
    Threads,
    load_translators,
    plain_warnings,
    read_pairs,
    read_text,
)
from regard.cli.shared.search_options import make_search, with_recommended
from regard.errors import DataError, UsageError
from regard.machine import redraws, set_threads

if TYPE_CHECKING:
    from regard.api.translator import Translator
    from regard.decoding.searches.search import Search
    from regard.evaluation.bleu import Score
    from regard.evaluation.by_length import Bucket
    from regard.evaluation.significance import Comparison

Item = TypeVar("Item")
BATCH_SENTENCES = 64


def evaluate_model(
    source: Annotated[Path, typer.Argument(help="Source sentences, one per line; for a language model, the text.")],
    reference: Annotated[
        Path | None, typer.Argument(help="Reference translations, one per line; not for a language model.")
    ] = None,
    model: Models = None,
    hypotheses: Annotated[
        Path | None, typer.Option(help="Evaluate this file of translations, one per line, instead of a model.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Test whether the difference to this model or file of translations is significant."),
    ] = None,
    alignment: Annotated[
        Path | None,
        typer.Option(help="Gold word alignments (0-0 1-2 …); report the alignment error rate of the attention."),
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="Beam width; 1 is greedy search.")] = 5,
    length_penalty: Annotated[
        float | None, typer.Option(show_default="1", help="Hypotheses are ranked by log-probability / length^PENALTY.")
    ] = None,
    tokenize: Annotated[str, typer.Option(help="Tokenization of sacreBLEU: 13a, intl, char, zh or none.")] = "13a",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    lengths: Annotated[
        str | None, typer.Option(help="Edges of the length buckets, in words: 10,20 means 1-10, 11-20 and above.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the translations to this file.")] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            show_default="half a window",
            help="Language models: tokens between the starts of two windows; each token is scored once.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as one JSON object.")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Evaluate a model on a test set: BLEU and chrF with 95% confidence intervals, overall and by sentence length.

    For a language model, pass one text; the result is the perplexity.

    Examples:
      regard evaluate -m runs/mine test.fr test.en --against runs/older
      regard evaluate test.fr test.en --hypotheses translations.en
      regard evaluate -m shakespeare play.txt
    """
    set_threads(threads)
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
                    raise UsageError(f"{name} is for translations: pass the references as a second file")
            if len(model or ()) > 1:
                raise UsageError("an ensemble translates: pass the references as a second file, or only one model")
            evaluate_writer(source, (model or [DEFAULT_MODEL])[0], device, dtype, stride, as_json)
            return
        if stride is not None:
            raise UsageError("--stride is for language models: leave it out, or pass a text without references")
        if hypotheses is not None and (model or alignment is not None):
            conflict = "--alignment needs a model" if not model else "pass a model or --hypotheses, not both"
            raise UsageError(f"{conflict}: a file of translations has no attention weights")
        search, edges = make_search(beam, length_penalty, None, 1), read_edges(lengths)
        sources, references = read_pairs(source, reference)
        results: dict[str, Any] = {"sentences": len(sources)}
        if hypotheses is None:
            translator = load_translators(model, device, dtype)
            our_search = with_recommended(search, beam, length_penalty, 1, translator.info.get("search"))
            ours = translations(translator, sources, our_search)
            if alignment is not None:
                results["alignment_error_rate"] = attention_error(translator, sources, references, alignment)
        else:
            ours = read_hypotheses(hypotheses, len(sources))
        if out is not None:
            write_lines(out, ours)
        results |= evaluate_translations(ours, references, sources, tokenize=tokenize, lowercase=lowercase, edges=edges)
        if against is not None:
            if Path(against).is_file():
                theirs = read_hypotheses(Path(against), len(sources))
            else:
                other = load_translators([against], device, dtype)
                their_search = with_recommended(search, beam, length_penalty, 1, other.info.get("search"))
                theirs = translations(other, sources, their_search)
            results["comparison"] = compare(theirs, ours, references, tokenize=tokenize, lowercase=lowercase)
    typer.echo(json.dumps(plain(results), ensure_ascii=False) if as_json else report(results, against))


def evaluate_writer(path: Path, model: str, device: str, dtype: str, stride: int | None, as_json: bool) -> None:
    """Print the perplexity of a language model on a text, with the window and the stride."""
    from regard.api.writer import Writer
    from regard.tasks.loading import load

    face = load(model, device=device, dtype=dtype)
    if not isinstance(face, Writer):
        raise UsageError(f"{model} is not a language model: pass the references as a second file")
    stride = face.window // 2 if stride is None else stride
    likelihood = likelihood_of(face, path, stride=stride)
    if as_json:
        typer.echo(json.dumps({**likelihood.to_dict(), "window": face.window, "stride": stride}))
        return
    typer.echo(f"perplexity          {likelihood.perplexity:.3f}  ({likelihood.tokens:,} tokens)")
    typer.echo(f"nats per token      {likelihood.loss:.4f}  (windows of {face.window}, stride {stride})")
    typer.echo(f"bits per character  {likelihood.bits_per_character:.4f}")


def translations(translator: Translator, sources: Sequence[str], search: Search) -> list[str]:
    """Translate the sources; each translation is one line."""
    batches = [list(sources[start : start + BATCH_SENTENCES]) for start in range(0, len(sources), BATCH_SENTENCES)]
    return [
        translation.text.replace("\n", " ")
        for batch in tracked(batches, "translating")
        for translation in translator.translate(batch, search=search)
    ]


def attention_error(translator: Translator, sources: Sequence[str], references: Sequence[str], gold: Path) -> float:
    """Return the alignment error rate of the attention while the model is forced to write the references."""
    from regard.demo.corpus import demo_words
    from regard.evaluation.alignment import alignment_error_rate, read_links

    links = read_links(gold)
    if len(links) != len(sources):
        raise DataError(f"{gold} has {len(links)} lines of alignments for {len(sources)} sentences")
    pairs = list(zip(sources, references, strict=True))
    predicted = [
        set(translator.align(source, target, words=demo_words).pairs) for source, target in tracked(pairs, "aligning")
    ]
    return alignment_error_rate(predicted, [line.sure for line in links], [line.possible for line in links])


def read_edges(lengths: str | None) -> list[int] | None:
    """Parse the edges of the length buckets."""
    if lengths is None:
        return None
    try:
        return [int(length) for length in lengths.split(",")]
    except ValueError:
        raise UsageError(f"--lengths {lengths}: write comma-separated whole numbers, such as 10,20,30") from None


def evaluate_translations(
    ours: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    *,
    tokenize: str,
    lowercase: bool,
    edges: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Return BLEU and chrF with confidence intervals, and by sentence length."""
    from regard.evaluation.bleu import corpus_bleu, corpus_chrf
    from regard.evaluation.by_length import MIN_SENTENCES, scores_by_length

    minimum = MIN_SENTENCES if edges is None else 1  # buckets that the user asks for may be small
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
    """Test the difference of two lists of translations with the paired bootstrap, in BLEU and chrF."""
    from regard.evaluation.significance import paired_bootstrap

    return {
        metric: paired_bootstrap(theirs, ours, references, metric=metric, tokenize=tokenize, lowercase=lowercase)
        for metric in ("bleu", "chrf")
    }


def read_hypotheses(path: Path, count: int) -> list[str]:
    """Read a file of translations; DataError if it does not have `count` lines."""
    lines = read_text(path)
    if len(lines) != count:
        raise DataError(f"{path} has {len(lines)} lines for {count} sentences: it must have one line per sentence")
    return lines


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a UTF-8 file."""
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def report(results: dict[str, Any], against: str | None) -> str:
    """Format the results as lines of text."""
    lines = [f"{results['sentences']:,} sentences", *(str(results[metric]) for metric in ("bleu", "chrf"))]
    if "alignment_error_rate" in results:
        lines.append(f"alignment error rate {results['alignment_error_rate']:.3f}")
    lines += ["", f"{'words':>9}  {'sentences':>9}  {'BLEU':>18}  {'chrF':>18}"]
    lines += [length_row(bucket) for bucket in results["by_length"]]
    for metric, comparison in results.get("comparison", {}).items():
        name = {"bleu": "BLEU", "chrf": "chrF"}[metric]
        low, high = comparison.interval
        lines += [
            "",
            f"{name} against {against}: {comparison.a.value:.1f} there, {comparison.b.value:.1f} here",
            f"  difference {comparison.difference:+.1f} [{low:+.1f}, {high:+.1f}], p = {comparison.p_value:.3f}, "
            f"better on {comparison.wins:.0%} of the resampled test sets",
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
    """Convert results to types that JSON supports."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(member) for member in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def tracked(items: Sequence[Item], what: str) -> Iterable[Item]:
    """Iterate over items with a progress bar on stderr, if it is a terminal."""
    from rich.console import Console
    from rich.progress import track

    return track(items, what, console=Console(stderr=True), transient=True, disable=not redraws(sys.stderr))
