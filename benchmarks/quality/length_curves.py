"""Does quality fall with the length of a sentence? With and without attention, also beyond the lengths of training.

    python benchmarks/quality/length_curves.py train.fr train.en --test test.fr test.en --device cuda --budget 320
    python benchmarks/quality/length_curves.py train.fr train.en --quick
    python benchmarks/quality/length_curves.py --draw results.json --picture curves.png

Figure 2 of Bahdanau et al. 2015 (D17): a recurrent encoder-decoder without attention (RNNenc) and with it (RNNsearch),
each trained on texts of up to 30 and of up to 50 words, and tested on texts of up to 60 words. Real corpora have few
long sentences, so longer texts are joined from sentence pairs. Each range of test lengths joins the same test
sentences: what differs between two points of a curve is the length, not the sentences.

The four trainings run side by side for the same time (recurrent_steps.py). The first fifth of it has single sentences,
the rest single sentences and joined texts in equal parts: without short texts RNNenc does not begin to learn.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch

import regard
from benchmarks.timing import command, hardware, keep
from benchmarks.train.recurrent_steps import Rows, Training, padded_rows, rows_per_batch, translate
from regard.compare.systems import matched_sizes
from regard.evaluation.bleu import Score
from regard.evaluation.by_length import Bucket, scores_by_length
from regard.models.presets import make_model
from regard.recipes.model_table import model_config
from regard.tasks.corpora import split_pairs
from regard.text.files.corpus import Corpus, read_parallel
from regard.text.tokenizers.subwords import SubwordTokenizer, train_subwords

SYSTEMS = {"RNNsearch": "bahdanau", "RNNenc": "rnn"}  # the paper's names, and those of regard compare
LIMITS = (50, 30)  # words of the longest texts in training
LONGEST, RANGE = 60, 10  # words of the longest test texts, and of a range of lengths
RESERVE = 50  # seconds for the test, of a run with a budget
SINGLE = 0.2  # of the time: single sentences alone

METRICS = ("bleu", "chrf")

Pair = tuple[str, str]


@dataclass(frozen=True)
class Size:
    """What a training costs."""

    passes: int  # over the sentences, each joined in another order; then they repeat
    parameters: int
    vocabulary: int
    seconds: float
    batch_tokens: int
    dropout: float
    lr: float
    held_out: int  # sentences for validation
    train: int | None = None  # sentences; None: all
    test: int | None = None


FULL = Size(6, 12_000_000, 4000, seconds=240, batch_tokens=8192, dropout=0.3, lr=1e-3, held_out=1000)
QUICK = Size(1, 100_000, 400, 2, batch_tokens=512, dropout=0.1, lr=3e-3, held_out=20, train=400, test=60)


def joined_groups(words: Sequence[tuple[int, int]], lengths: range, random: Random) -> Iterator[list[int]]:
    """Group shuffled pairs, given their words, to texts whose source has one of these lengths, and the target no more.

    The wanted length is drawn anew for each text. Every pair is used at most once; few fit nowhere.
    """
    shortest, longest = lengths[0], lengths[-1]
    group: list[int] = []
    total, wanted = (0, 0), random.choice(lengths)
    for i in random.sample(range(len(words)), len(words)):
        source, target = words[i]
        longer = total[0] + source, total[1] + target
        if max(source, target) > longest:
            continue
        if max(longer) > longest:
            if total[0] >= shortest:
                yield group
            group, longer, wanted = [], (source, target), random.choice(lengths)
        group.append(i)
        total = longer
        if total[0] >= wanted:
            yield group
            group, total, wanted = [], (0, 0), random.choice(lengths)


def word_counts(pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    return [(len(source.split()), len(target.split())) for source, target in pairs]


def joined_texts(pairs: Sequence[Pair], lengths: range, random: Random) -> Iterator[Pair]:
    """Join shuffled pairs to texts of these lengths."""
    for group in joined_groups(word_counts(pairs), lengths, random):
        sources, targets = zip(*(pairs[i] for i in group), strict=True)
        yield " ".join(sources), " ".join(targets)


def test_texts(pairs: Sequence[Pair]) -> list[Pair]:
    """The same sentences for each range of lengths, joined to texts of these lengths."""
    ranges = [range(low, low + RANGE) for low in range(1, LONGEST, RANGE)]
    return [text for lengths in ranges for text in joined_texts(pairs, lengths, Random(f"test {lengths[0]}"))]


def pairs_of(corpus: Corpus, count: int | None = None) -> list[Pair]:
    assert corpus.target is not None
    return list(zip(corpus.source, corpus.target, strict=True))[:count]


class EncodedPairs:
    """Sentence pairs as tokens: those of a joined text are those of its sentences, one after the other."""

    def __init__(self, pairs: Sequence[Pair], tokenizer: SubwordTokenizer, device: str) -> None:
        self.words, self.device = word_counts(pairs), device
        self.sides: list[list[list[int]]] = [tokenizer.encode_all(side) for side in zip(*pairs, strict=True)]

    def single(self, limit: int) -> list[Rows]:
        """The sentences of up to `limit` words as they are."""
        chosen = [i for i, words in enumerate(self.words) if max(words) <= limit]
        return self.rows([[i] for i in chosen])

    def joined(self, limit: int, seed: str) -> list[Rows]:
        return self.rows(list(joined_groups(self.words, range(1, limit + 1), Random(seed))))

    def rows(self, groups: Sequence[Sequence[int]]) -> list[Rows]:
        sources, targets = ([[t for i in group for t in side[i]] for group in groups] for side in self.sides)
        return padded_rows(sources, targets, self.device)


@dataclass(frozen=True)
class LimitedTexts:
    """The texts of up to so many words: single sentences, passes of joined ones, and validation texts."""

    limit: int
    single: list[Rows]
    passes: list[list[Rows]]
    validation: list[Rows]

    def mixed(self, i: int) -> list[Rows]:
        return [*self.single, *self.passes[i % len(self.passes)]]

    def batch(self, length: int, batch_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Any batch of this length, its rows repeated where they are few."""
        part = next(part for part in self.mixed(0) if part.length == length)
        return part.batch(
            torch.arange(rows_per_batch(length, batch_tokens), device=part.source.device) % len(part.source)
        )


def make_trainings(texts: Sequence[LimitedTexts], size: Size, device: str, *, capture: bool) -> list[Training]:
    """The systems for each limit: they differ in the model and in the lengths of the texts alone."""
    sizes = {"source_vocabulary": size.vocabulary, "target_vocabulary": size.vocabulary}
    tables = matched_sizes(list(SYSTEMS.values()), size.parameters, **sizes, shared=True)
    trainings = []
    for limited in texts:
        for title, name in SYSTEMS.items():
            torch.manual_seed(1)
            table = {**tables[name], "dropout": size.dropout}
            model: Any = make_model(model_config(table["kind"], table, **sizes))
            settings: dict[str, Any] = {"lr": size.lr, "batch_tokens": size.batch_tokens}
            training = Training(f"{title}-{limited.limit}", model, device=device, **settings)
            if capture:
                lengths = sorted({part.length for part in limited.mixed(0)}, reverse=True)
                training.capture(lengths, lambda length, texts=limited: texts.batch(length, size.batch_tokens))
            trainings.append(training)
    return trainings


def run_training(training: Training, texts: LimitedTexts, seconds: float) -> None:
    phases = [(SINGLE, lambda i: texts.single), (1 - SINGLE, texts.mixed)]
    training.run(phases, texts.validation, seconds=seconds, report=log)


def log(line: str) -> None:
    print(f"[{time.monotonic() - BEGIN:5.0f} s] {line}", file=sys.stderr, flush=True)


def system_report(training: Training, outputs: Sequence[str], texts: Sequence[Pair], samples: int) -> dict[str, Any]:
    sources, references = zip(*texts, strict=True)
    edges = range(RANGE, LONGEST, RANGE)
    progress = training.progress
    return {
        "name": training.name,
        "limit": int(training.name.rpartition("-")[2]),
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "steps": progress.steps,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 1),
        "best_step": progress.best_step,
        "validation_loss": progress.best_loss,
        "buckets": scores_by_length(outputs, references, sources, edges=edges, minimum=1, samples=samples),
    }


def table(systems: Sequence[dict[str, Any]]) -> str:
    """BLEU with its interval for each range of lengths; in brackets beyond the lengths of training."""
    rows = [["words", "texts", *(system["name"] for system in systems)], ["---:"] * (len(systems) + 2)]
    for i, first in enumerate(systems[0]["buckets"]):
        cells = [cell(system["buckets"][i], system["limit"]) for system in systems]
        rows.append([f"{first.low}–{first.high}", str(first.count), *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell(bucket: Bucket, limit: int) -> str:
    low, high = bucket.bleu.interval or (bucket.bleu.value,) * 2
    text = f"{bucket.bleu.value:.1f} [{low:.1f}, {high:.1f}]"
    return f"({text})" if bucket.low > limit else text


def summary(system: dict[str, Any]) -> dict[str, float]:
    """BLEU of the best range, at the end of the trained lengths, and of the longest texts."""
    scores = {bucket.high: bucket.bleu.value for bucket in system["buckets"]}
    trained = max((high for high in scores if high <= system["limit"]), default=max(scores))
    return {"best": max(scores.values()), "trained": scores[trained], "longest": scores[max(scores)]}


def draw(report: dict[str, Any], path: Path) -> None:
    """The curves of a report as a picture, dashed beyond the lengths of training; D17."""
    from regard.look.pictures.by_length import length_plot
    from regard.look.pictures.drawing import figures

    def bucket_of(values: dict[str, Any]) -> Bucket:
        scores = {name: Score(**{**values[name], "interval": tuple(values[name]["interval"])}) for name in METRICS}
        return Bucket(**{**values, **scores})

    curves = {system["name"]: list(map(bucket_of, system["buckets"])) for system in report["systems"]}
    limits = {system["name"]: system["limit"] for system in report["systems"]}
    figures.save(length_plot(curves, trained=limits), path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="SOURCE TARGET", help="sentences, and translations")
    parser.add_argument("--test", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="default: held out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, help=f"of each training (default: {FULL.seconds:.0f})")
    parser.add_argument("--budget", type=float, help=f"seconds of the whole run, the trainings take all but {RESERVE}")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="read it, or train it and write it there")
    parser.add_argument("--eager", action="store_true", help="do not capture the steps as CUDA graphs")
    parser.add_argument("--texts", type=Path, metavar="JSON", help="write the test texts and translations here")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the curves")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="train nothing: draw the curves of these results")
    parser.add_argument("--quick", action="store_true", help="toy sizes: tests that it runs")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    args = parser.parse_args()
    if args.draw is None and len(args.files) != 2:
        parser.error("two files are needed: sentences to train on, and their translations")
    if args.draw is not None and args.picture is None:
        parser.error("--draw needs --picture FILE, the picture to write")
    return args


def main() -> int:
    args = arguments()
    report = json.loads(args.draw.read_bytes()) if args.draw is not None else measured(args)
    if args.picture is not None:
        draw(report, args.picture)
    print(json.dumps(report))
    return 0


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Train and test the four systems."""
    size = QUICK if args.quick else FULL
    if args.seconds is not None:
        size = replace(size, seconds=args.seconds)
    report: dict[str, Any] = {
        "benchmark": "length_curves",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(args.device),
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__, "regard": regard.__version__},
        "size": vars(size),
    }
    torch.backends.cuda.matmul.allow_tf32 = True
    train, validation, test = read_pairs(args, size)
    tokenizer = make_tokenizer(args.tokenizer, train, size)
    log(f"{len(train):,} pairs, {tokenizer.size:,} tokens")
    encoded, held_out = (EncodedPairs(pairs, tokenizer, args.device) for pairs in (train, validation))
    texts = [limited_texts(encoded, held_out, limit, size.passes) for limit in LIMITS]
    log("texts joined")
    capture = args.device.startswith("cuda") and not args.eager
    trainings = make_trainings(texts, size, args.device, capture=capture)
    log("steps captured" if capture else "steps are not captured")
    of_training = [limited for limited in texts for _ in SYSTEMS]
    seconds = size.seconds if args.budget is None else args.budget - RESERVE - (time.monotonic() - BEGIN)
    with ThreadPoolExecutor(len(trainings) if args.device.startswith("cuda") else 1) as pool:
        list(pool.map(partial(run_training, seconds=seconds), trainings, of_training))
    tests = test_texts(test)
    sources = tokenizer.encode_all([source for source, _ in tests])
    outputs = {
        training.name: [tokenizer.decode(tokens) for tokens in translate(training.averaged, sources, args.device)]
        for training in trainings
    }
    log("test texts translated")
    keep({"texts": tests, "outputs": outputs}, args.texts)
    samples = 20 if args.quick else 1000
    systems = [system_report(training, outputs[training.name], tests, samples) for training in trainings]
    print(table(systems), flush=True)
    report["summary"] = {system["name"]: summary(system) for system in systems}
    report["systems"] = [{**s, "buckets": [bucket.to_dict() for bucket in s["buckets"]]} for s in systems]
    keep(report, args.out)
    return report


def read_pairs(args: argparse.Namespace, size: Size) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """The pairs for training, for validation and for the test."""
    corpus = read_parallel(args.files[:1], args.files[1:])
    if args.test is None:
        parts = split_pairs(corpus, min(2000, len(corpus) // 10), seed=1)
        corpus, test = parts.train, parts.validation
    else:
        test = read_parallel([args.test[0]], [args.test[1]])
    parts = split_pairs(corpus, size.held_out, seed=2)
    return pairs_of(parts.train, size.train), pairs_of(parts.validation), pairs_of(test, size.test)


def make_tokenizer(path: Path | None, pairs: Sequence[Pair], size: Size) -> SubwordTokenizer:
    if path is not None and path.exists():
        return SubwordTokenizer(path.read_bytes())
    sides = [side for pair in pairs for side in pair]
    tokenizer = train_subwords(sides, size=size.vocabulary, kind="unigram", lossless=False)
    if path is not None:
        path.write_bytes(tokenizer.save()[1])
    return tokenizer


def limited_texts(train: EncodedPairs, validation: EncodedPairs, limit: int, passes: int) -> LimitedTexts:
    joined = [train.joined(limit, f"train {i}") for i in range(passes)]
    held_out = [*validation.single(limit), *validation.joined(limit, "validation")]
    return LimitedTexts(limit, train.single(limit), joined, held_out)


BEGIN = time.monotonic()


if __name__ == "__main__":
    sys.exit(main())
