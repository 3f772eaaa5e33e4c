"""Does quality fall with the length of a sentence? With and without attention, also beyond the lengths of training.

    python benchmarks/length_curves.py train.fr train.en --test test.fr test.en --device cuda --jobs 4
    python benchmarks/length_curves.py train.fr train.en --quick
    python benchmarks/length_curves.py --draw results.json --picture curves.png

Figure 2 of Bahdanau et al. 2015 (D17): a recurrent encoder-decoder without attention (RNNenc) and with it (RNNsearch),
each trained on texts of up to 30 and of up to 50 words, and tested on texts of up to 60 words. Real corpora have few
long sentences, so longer texts are joined from sentence pairs. Each range of test lengths joins the same test
sentences: what differs between two points of a curve is the length, not the sentences.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from timing import command, hardware, keep

import regard
from regard.compare.systems import matched_sizes
from regard.evaluation.bleu import Score
from regard.evaluation.by_length import Bucket, scores_by_length
from regard.tasks.corpora import split_pairs
from regard.text.files.corpus import Corpus, read_parallel
from regard.training.recipe.schema import DataRecipe, DecodingRecipe, Recipe, TokenizerRecipe, TrainingRecipe
from regard.training.recipe.toml_file import to_toml

SYSTEMS = {"RNNsearch": "bahdanau", "RNNenc": "rnn"}  # the paper's names, and those of regard compare
LIMITS = (50, 30)  # words of the longest texts in training
LONGEST, RANGE = 60, 10  # words of the longest test texts, and of a range of lengths
TOKENS_PER_WORD = 2.5  # of the longest text that training keeps

METRICS = ("bleu", "chrf")

Pair = tuple[str, str]


@dataclass(frozen=True)
class Size:
    """What a training costs."""

    passes: int  # over the sentences, each joined in another order
    parameters: int
    vocabulary: int
    steps: int
    batch_tokens: int
    held_out: int  # sentences for validation
    train: int | None = None  # sentences; None: all
    test: int | None = None


FULL = Size(passes=4, parameters=8_000_000, vocabulary=4000, steps=2500, batch_tokens=12_288, held_out=1000)
QUICK = Size(1, 100_000, 400, steps=4, batch_tokens=512, held_out=20, train=400, test=60)


def joined_texts(pairs: Sequence[Pair], lengths: range, random: Random) -> Iterator[Pair]:
    """Join shuffled pairs to texts whose source has one of these numbers of words, and the target no more.

    The wanted length is drawn anew for each text. Every pair is used at most once; few fit nowhere.
    """
    shortest, longest = lengths[0], lengths[-1]
    parts: list[Pair] = []
    words, wanted = (0, 0), random.choice(lengths)
    for pair in random.sample(pairs, len(pairs)):
        more = len(pair[0].split()), len(pair[1].split())
        longer = words[0] + more[0], words[1] + more[1]
        if max(more) > longest:
            continue
        if max(longer) > longest:
            if words[0] >= shortest:
                yield joined(parts)
            parts, longer = [], more
        parts.append(pair)
        words = longer
        if words[0] >= wanted:
            yield joined(parts)
            parts, words, wanted = [], (0, 0), random.choice(lengths)


def joined(parts: Sequence[Pair]) -> Pair:
    sources, targets = zip(*parts, strict=True)
    return " ".join(sources), " ".join(targets)


def test_texts(pairs: Sequence[Pair]) -> list[Pair]:
    """The same sentences for each range of lengths, joined to texts of these lengths."""
    ranges = [range(low, low + RANGE) for low in range(1, LONGEST, RANGE)]
    return [text for lengths in ranges for text in joined_texts(pairs, lengths, Random(f"test {lengths[0]}"))]


def pairs_of(corpus: Corpus, count: int | None = None) -> list[Pair]:
    assert corpus.target is not None
    return list(zip(corpus.source, corpus.target, strict=True))[:count]


def write_texts(folder: Path, name: str, texts: Sequence[Pair]) -> tuple[str, str]:
    """Write two parallel files."""
    files = folder / f"{name}.source", folder / f"{name}.target"
    for side, path in enumerate(files):
        path.write_text("".join(f"{text[side]}\n" for text in texts), encoding="utf-8")
    return str(files[0].absolute()), str(files[1].absolute())


def write_recipes(folder: Path, train: Sequence[Pair], validation: Sequence[Pair], size: Size, device: str) -> None:
    """A recipe for each system and limit: they differ in the model and in the lengths of the texts alone."""
    sizes = {"source_vocabulary": size.vocabulary, "target_vocabulary": size.vocabulary}
    models = matched_sizes(list(SYSTEMS.values()), size.parameters, **sizes, shared=True)
    for limit in LIMITS:
        lengths = range(1, limit + 1)
        texts = [text for i in range(size.passes) for text in joined_texts(train, lengths, Random(f"train {i}"))]
        source, target = write_texts(folder, f"train-{limit}", texts)
        held_out = write_texts(folder, f"validation-{limit}", list(joined_texts(validation, lengths, Random("val"))))
        for title, name in SYSTEMS.items():
            recipe = Recipe(
                name=f"{title}-{limit}",
                data=DataRecipe(
                    source=(source,),
                    target=(target,),
                    validation_source=held_out[:1],
                    validation_target=held_out[1:],
                    max_length=int(TOKENS_PER_WORD * limit),
                ),
                tokenizer=TokenizerRecipe(kind="unigram", size=size.vocabulary, shared=True),
                model={**models[name], "dropout": 0.2},
                training=TrainingRecipe(
                    steps=size.steps,
                    batch_tokens=size.batch_tokens,
                    lr=1.5e-3,
                    warmup=min(500, size.steps // 4),
                    schedule="cosine",
                    label_smoothing=0.1,
                    ema=0.999 if size.steps > 1000 else 0.0,
                    validate_every=max(1, size.steps // 4),
                    samples=0,
                    device=device,
                    # Not compiled: GRU.step was compiled again until torch's limit of eight, and the first 50 steps
                    # of RNNsearch took six minutes. A captured step needs no Python either.
                    compile=False,
                    capture=True if device.startswith("cuda") else None,
                ),
                decoding=DecodingRecipe(sentences=0),
            )
            (folder / f"{title}-{limit}.toml").write_text(to_toml(recipe), encoding="utf-8")


def measure(name: str, *, folder: Path, texts: Sequence[Pair], device: str, samples: int) -> dict[str, Any]:
    """Train in a process of its own, translate every test text whole, and score each range of lengths."""
    run = folder / name
    training = [sys.executable, "-m", "regard", "train", str(folder / f"{name}.toml"), "--out", str(run), "--quiet"]
    subprocess.run(training, check=True, stdout=subprocess.DEVNULL)
    translator: Any = regard.load(run, device=device)
    sources, references = zip(*texts, strict=True)
    # Without the guard: it would split long texts into sentences.
    outputs = [translation.text for translation in translator.translate(sources, beam=1, guard=False)]
    write_texts(folder, f"test-{name}", list(zip(sources, outputs, strict=True)))
    edges = range(RANGE, LONGEST, RANGE)
    buckets = scores_by_length(outputs, references, sources, edges=edges, minimum=1, samples=samples)
    log = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [line for line in map(json.loads, log) if line["kind"] == "train"]
    return {
        "name": name,
        "limit": int(name.rpartition("-")[2]),
        "parameters": sum(parameter.numel() for parameter in translator.model.parameters()),
        "tokens": steps[-1]["tokens"] if steps else None,
        "validation_loss": translator.info["scores"]["loss"],
        "buckets": buckets,
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
    from regard.look.pictures import figures
    from regard.look.pictures.by_length import length_plot

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
    parser.add_argument("--steps", type=int, help=f"of each training (default: {FULL.steps})")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--folder", type=Path, help="keep texts, models and translations here")
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
    if args.steps is not None:
        size = Size(**{**vars(size), "steps": args.steps})
    report: dict[str, Any] = {
        "benchmark": "length_curves",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(args.device),
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__, "regard": regard.__version__},
        "size": vars(size),
    }
    warnings.filterwarnings("ignore", message="a sentence has")  # more tokens than in training, which is the question
    corpus = read_parallel(args.files[:1], args.files[1:])
    if args.test is None:
        parts = split_pairs(corpus, min(2000, len(corpus) // 10), seed=1)
        corpus, test = parts.train, parts.validation
    else:
        test = read_parallel([args.test[0]], [args.test[1]])
    parts = split_pairs(corpus, size.held_out, seed=2)
    texts = test_texts(pairs_of(test, size.test))
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(args.jobs) as pool:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_recipes(folder, pairs_of(parts.train, size.train), pairs_of(parts.validation), size, args.device)
        names = [f"{title}-{limit}" for limit in LIMITS for title in SYSTEMS]
        samples = 20 if args.quick else 1000
        one = partial(measure, folder=folder, texts=texts, device=args.device, samples=samples)
        systems = list(pool.map(one, names))
    print(table(systems))
    report["summary"] = {system["name"]: summary(system) for system in systems}
    report["systems"] = [{**s, "buckets": [bucket.to_dict() for bucket in s["buckets"]]} for s in systems]
    keep(report, args.out)
    return report


if __name__ == "__main__":
    sys.exit(main())
