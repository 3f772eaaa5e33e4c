"""Word vectors against gensim: words per second, and how well the vectors agree with human judgements of similarity.

    python benchmarks/quality/word_vectors.py --data data
    python benchmarks/quality/word_vectors.py --analogies vectors.txt    # of `regard words export`

Both read one file of words, one sentence per line, and train skip-gram and CBOW with the same width, window, negatives,
subsampling, minimum count, epochs and threads, from reading the file to the saved vectors; each with its own default
learning rate, and gensim also with regard's. GloVe, which gensim does not have, reads the text GLOVE_EPOCHS times.
gensim evaluates all vectors, from exported text files, with the lists that it ships: WordSim-353 and SimLex-999
(Spearman's correlation).
CPU time is compared, because wall time depends on what else the machine does; both use `--threads` threads.
Target: regard's CPU time is lower, and its scores are at least gensim's. Prints a table and a last line of JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

import regard
from benchmarks.timing import command, hardware, keep
from regard.tasks import task_for
from regard.text.tokenizers.words import split_words

DIM, WINDOW, NEGATIVES, SUBSAMPLE, MIN_COUNT, EPOCHS = 100, 5, 5, 1e-3, 5, 5
FILES = ("tatoeba-fr-en/train.en.gz", "multi30k/train.en.gz", "tinyshakespeare/input.txt")
VALIDATION = "tatoeba-fr-en/val.en.gz"
GLOVE_EPOCHS = 40  # regard's default
RATES = {"skip-gram": 0.05, "cbow": 0.15}
BATCH = 32_768


def sentences(path: Path) -> Iterator[str]:
    """Yield the sentences of a file as lower-case words between blanks."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for line in file:
            if words := split_words(line.rstrip("\n")):
                yield " ".join(words)


def write_text(path: Path, files: list[Path], limit: int | None) -> tuple[int, int]:
    """Write the sentences of files into one; return the numbers of sentences and of words."""
    lines = [line for file in files for line in sentences(file)][:limit]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines), sum(line.count(" ") + 1 for line in lines)


def with_regard(method: str, text: Path, validation: Path, folder: Path, size: tuple[int, int], seed: int) -> Path:
    """Train with regard; return the exported vectors."""
    overrides: dict[str, Any] = {
        "name": method,
        "data.text": str(text),
        "data.validation_text": str(validation),
        "tokenizer.tokenised": True,
        "tokenizer.min_count": MIN_COUNT,
        "model.method": method,
        "model.dim": DIM,
        "training.batch_tokens": min(BATCH, sum(size) // 4),
        "training.seed": seed,
    }
    epochs = GLOVE_EPOCHS if method == "glove" else EPOCHS
    steps = -(-epochs * sum(size) // overrides["training.batch_tokens"])  # the end of a line is a token
    for key in ("steps", "validate_every", "save_every", "log_every"):
        overrides[f"training.{key}"] = steps
    recipe = folder / "recipe.toml"
    recipe.write_text('[data]\ntext = "x"\n[model]\nkind = "word-vectors"\n', encoding="utf-8")
    run = regard.train(recipe, out=folder / "run", overrides=overrides, quiet=True)
    return run.load().export(folder / "vectors.txt")


def with_gensim(method: str, text: Path, folder: Path, rate: float, threads: int, seed: int) -> Path:
    """Train with gensim from a file, its fastest way; return the exported vectors."""
    from gensim.models import Word2Vec

    model = Word2Vec(
        corpus_file=str(text), vector_size=DIM, window=WINDOW, negative=NEGATIVES, sample=SUBSAMPLE,
        min_count=MIN_COUNT, epochs=EPOCHS, sg=int(method == "skip-gram"), alpha=rate, workers=threads, seed=seed,
    )  # fmt: skip
    model.wv.save_word2vec_format(folder / "vectors.txt")
    return folder / "vectors.txt"


def scores_of(vectors: Path) -> dict[str, float]:
    """Evaluate vectors with the lists that gensim ships."""
    from gensim.models import KeyedVectors
    from gensim.test.utils import datapath

    words = KeyedVectors.load_word2vec_format(vectors)
    return {
        name: float(words.evaluate_word_pairs(datapath(file), dummy4unknown=False)[1][0])
        for name, file in {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}.items()
    }


def print_analogies(vectors: Path) -> None:
    """Print the share of right answers in each category of Mikolov's list that has words of the vectors."""
    from gensim.models import KeyedVectors
    from gensim.test.utils import datapath

    words = KeyedVectors.load_word2vec_format(vectors)
    _, sections = words.evaluate_word_analogies(datapath("questions-words.txt"))
    counts = {
        part["section"]: (len(part["correct"]), len(part["correct"]) + len(part["incorrect"])) for part in sections
    }
    for name, (right, asked) in counts.items():
        if asked:
            print(f"{name:<30}{right:>6} of {asked:>5}{right / asked:>8.0%}")
    print(json.dumps({name: {"right": right, "asked": asked} for name, (right, asked) in counts.items() if asked}))


def measure(train: Callable[[Path], Path]) -> dict[str, float]:
    """Return the seconds of a training, and the scores of its vectors."""
    with tempfile.TemporaryDirectory() as name:
        wall, cpu = time.perf_counter(), time.process_time()
        vectors = train(Path(name))
        seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        return {**seconds, **scores_of(vectors)}


def summary_of(results: dict[str, list[dict[str, float]]], words: int) -> dict[str, dict[str, float]]:
    """Return the medians of all rounds, and words per second over all epochs."""
    summary: dict[str, dict[str, float]] = {}
    for name, rounds in results.items():
        values = {key: median(one_round[key] for one_round in rounds) for key in rounds[0]}
        epochs = GLOVE_EPOCHS if name.endswith("glove") else EPOCHS
        values["words_per_cpu_second"] = epochs * words / values["cpu"]
        values["words_per_second"] = epochs * words / values["wall"]
        summary[name] = {key: round(value, 4) for key, value in values.items()}
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data; see docs/training/data.md")
    parser.add_argument("--analogies", type=Path, metavar="VECTORS", help="only ask these vectors for analogies")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few sentences, only to test that it runs")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a target is missed")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    logging.getLogger("gensim").setLevel(logging.ERROR)
    if options.analogies:
        print_analogies(options.analogies)
        return 0
    torch.set_num_threads(options.threads)
    task_for("word-vectors")  # import it before the clock starts
    folder = Path(tempfile.mkdtemp())
    text, validation = folder / "text.txt", folder / "validation.txt"
    size = write_text(text, [options.data / file for file in FILES], 5000 if options.quick else None)
    write_text(validation, [options.data / VALIDATION], None)
    print(f"{size[0]:,} sentences, {size[1]:,} words, {EPOCHS} epochs, {options.threads} threads")
    results: dict[str, list[dict[str, float]]] = {}
    for seed in range(1, 1 + (1 if options.quick else options.rounds)):
        for method, rate in RATES.items():
            contenders = {
                f"regard {method}": lambda to, m=method, s=seed: with_regard(m, text, validation, to, size, s),
                f"gensim {method}": lambda to, m=method, s=seed: with_gensim(m, text, to, 0.025, options.threads, s),
                f"gensim {method}, lr {rate}": lambda to, m=method, r=rate, s=seed: with_gensim(
                    m, text, to, r, options.threads, s
                ),
            }
            for name, train in contenders.items():
                results.setdefault(name, []).append(measure(train))
                print(seed, name, {key: round(value, 3) for key, value in results[name][-1].items()}, file=sys.stderr)
        results.setdefault("regard glove", []).append(
            measure(lambda to, s=seed: with_regard("glove", text, validation, to, size, s))
        )
    summary = summary_of(results, size[1])
    columns = ("wall", "cpu", "words_per_cpu_second", "WordSim-353", "SimLex-999")
    print(f"{'':<28}" + "".join(f"{column:>22}" for column in columns))
    for name, values in summary.items():
        print(f"{name:<28}" + "".join(f"{values[column]:>22,.3f}" for column in columns))
    targets = {
        method: {
            "cpu": summary[f"regard {method}"]["cpu"] <= summary[f"gensim {method}"]["cpu"],
            **{
                score: summary[f"regard {method}"][score] >= summary[f"gensim {method}"][score]
                for score in ("WordSim-353", "SimLex-999")
            },
        }
        for method in RATES
    }
    report = {
        "benchmark": "word_vectors",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware("cpu"),
        "versions": {name: version(name) for name in ("torch", "numpy", "gensim")},
        "text": {"sentences": size[0], "words": size[1], "epochs": EPOCHS, "threads": options.threads},
        "rounds": results,
        "summary": summary,
        "targets": targets,
    }
    keep(report, options.out)
    print(json.dumps(report))
    return int(options.check and not all(all(parts.values()) for parts in targets.values()))


if __name__ == "__main__":
    sys.exit(main())
