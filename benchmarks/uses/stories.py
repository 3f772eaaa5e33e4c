"""Summaries of stories and answers to questions about them: the copy mechanism against models of the same size.

    python benchmarks/uses/stories.py                                        all systems, three seeds, then the table
    python benchmarks/uses/stories.py --task answers --system t5 --seed 1    one run
    python benchmarks/uses/stories.py --table                                the table of all results so far

Three systems learn from the same stories (regard/demo/stories.py) with the same tokenizer, sizes, batches, number of
steps and schedule: the pointer-generator of the shipped recipes, the Transformer without a copy mechanism, and T5 of
`transformers`, with the better of two learning rates on the validation part. They are judged with greedy search on the
part "test", and on two parts that nothing was tuned on: "combinations" (each person goes to places where training
never sent them) and "longer" (seven visits; training has five at most). A run appends one JSON line to the results.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import torch

from benchmarks.timing import hardware
from benchmarks.uses.deadline import over, train_until
from regard.decoding.engine import generate_tokens
from regard.demo.stories import PARTS as DEMO_PARTS, Story, StoryQuestion, demo_questions, demo_stories
from regard.evaluation.answers import answer_scores, normalized
from regard.evaluation.rouge import corpus_rouge
from regard.recipes.tables import DataRecipe
from regard.text.batches.batch import Batch
from regard.text.batches.pairs import PairData
from regard.text.tokenizers.special_tokens import END, PAD, SEPARATOR, START, pad_batch
from regard.training.recipe.toml_file import read_recipe

RESULTS = Path(__file__).parents[1] / "results" / "uses" / "stories.jsonl"
RECIPES = {"summaries": "demo-summarizer", "answers": "demo-answerer"}
SYSTEMS = ("pointer-generator", "transformer", "t5")
PARTS = ("test", "combinations", "longer")
SEEDS = (1, 2, 3)
T5_RATES = (1.0, 1 / 3)  # of the recipe's learning rate
BATCH = 200

Sample = tuple[Story, StoryQuestion | None]
Write = Callable[[list[list[int]]], list[str]]  # from sources to texts


def samples(task: str, part: str, count: int, seed: int = 0) -> list[Sample]:
    """Return stories, for answers each with a question."""
    if task == "answers":
        return list(demo_questions(part, count, seed=seed))
    return [(story, None) for story in demo_stories(part, count, seed=seed)]


def source_of(sample: Sample) -> str:
    story, asked = sample
    return story.text if asked is None else f"{story.text} {SEPARATOR} {asked.question}"


def target_of(sample: Sample) -> str:
    story, asked = sample
    return story.summary if asked is None else asked.answer


def train_regard(
    task: str, settings: dict[str, Any], folder: Path, *, copies: bool, quiet: bool, deadline: float | None
) -> tuple[Any, int]:
    """Train with the shipped recipe, or the Transformer on the same pairs; return the run and its steps."""
    if copies:
        return train_until(deadline, RECIPES[task], out=folder / "run", overrides=settings, quiet=quiet)
    recipe = read_recipe(RECIPES[task], settings)
    files = {}
    for part, prefix, count in (("train", "", recipe.data.demo), ("validation", "validation_", recipe.data.validation)):
        pairs = samples(task, part, count or 0, recipe.training.seed)
        for side, text_of in (("source", source_of), ("target", target_of)):
            files[f"{prefix}{side}"] = path = folder / f"{part}.{side}"
            path.write_text("".join(f"{text_of(pair)}\n" for pair in pairs), encoding="utf-8")
    without_copying = dataclasses.replace(
        recipe,
        data=DataRecipe(**{key: (str(path),) for key, path in files.items()}, max_length=512),
        tokenizer=dataclasses.replace(recipe.tokenizer, shared=True),
        model={**recipe.model, "kind": "transformer", "share_embeddings": True},
        training=dataclasses.replace(recipe.training, label_smoothing=0.0, pointing=0.0),
        decoding=dataclasses.replace(recipe.decoding, sentences=0),
    )
    return train_until(deadline, without_copying, out=folder / "run", quiet=quiet)


def greedy_writer(model: Any, tokenizer: Any) -> Write:
    """Return a function that writes texts with one of regard's models."""

    def write(sources: list[list[int]]) -> list[str]:
        longest = max(map(len, sources))
        texts = generate_tokens(model, sources, max_tokens=longest, allow_unknown=False, batch_tokens=2**16)
        return [tokenizer.decode(best.tokens) for best, *_ in texts]

    return write


def training_batches(data: PairData, device: str) -> Iterator[Batch]:
    """Yield the batches of all epochs."""
    epoch = 0
    while True:
        for batch in data.batches(epoch):
            yield batch.to(device)
        epoch += 1


def train_t5(
    task: str, settings: dict[str, Any], device: str, rates: Sequence[float], deadline: float | None
) -> tuple[Write, Any, int, dict[str, Any]]:
    """Train T5 with the best of these rates; return its writer, the tokenizer, its size, and how it was trained."""
    from regard.tasks import task_for

    recipe = read_recipe(RECIPES[task], {**settings, "data.max_length": 512})
    copying = task_for(recipe.kind)
    corpora = copying.read(recipe)
    tokenizers = copying.make_tokenizers(recipe, corpora.train)
    train = copying.make_data(recipe, corpora.train, tokenizers, training=True, cache=None)
    validation = copying.make_data(recipe, corpora.validation, tokenizers, training=False, cache=None)
    assert isinstance(train, PairData)
    assert isinstance(validation, PairData)
    models = []
    for factor in rates:
        rate = factor * float(recipe.training.lr or 1e-3)
        model, steps = fit_t5(recipe, train, tokenizers[0].size, rate, device, deadline)
        with torch.no_grad():
            losses = [float(t5_loss(model.eval(), batch.to(device))) for batch in validation.batches(0)]
        models.append((mean(losses), rate, steps, model))
    loss, rate, steps, model = min(models, key=lambda entry: entry[0])

    def write(sources: list[list[int]]) -> list[str]:
        tokens = pad_batch(sources).to(device)
        with torch.no_grad():
            ids = model.generate(tokens, attention_mask=tokens != PAD, max_new_tokens=tokens.shape[1], do_sample=False)
        return [tokenizers[0].decode(row[1 : ([*row, END]).index(END)]) for row in ids.tolist()]

    size = sum(parameter.numel() for parameter in model.parameters())
    return write, tokenizers[0], size, {"rate": rate, "validation_loss": loss, "steps": steps}


def fit_t5(
    recipe: Any, train: PairData, vocabulary: int, rate: float, device: str, deadline: float | None
) -> tuple[Any, int]:
    """Train a T5 of the recipe's sizes with its batches, steps and schedule; return it with the steps it took."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes, training = recipe.model, recipe.training
    torch.manual_seed(training.seed)
    config = T5Config(
        vocab_size=vocabulary, d_model=sizes["dim"], d_kv=sizes["dim"] // sizes["heads"], d_ff=sizes["hidden"],
        num_layers=sizes["layers"], num_decoder_layers=sizes["decoder_layers"], num_heads=sizes["heads"],
        dropout_rate=0.0, pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=START,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=training.betas, eps=training.eps)
    step = 0
    for step, batch in enumerate(islice(training_batches(train, device), training.steps)):
        if over(deadline):
            break
        progress = (step - training.warmup) / max(1, training.steps - training.warmup)
        factor = (step + 1) / training.warmup if progress < 0 else (1 + math.cos(math.pi * progress)) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
        optimizer.zero_grad()
        t5_loss(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
    return model, step + 1


def t5_loss(model: Any, batch: Batch) -> Any:
    """Return the mean loss of the labels that are not padding."""
    labels = batch.labels.masked_fill(batch.labels == PAD, -100)
    return model(
        input_ids=batch.source, attention_mask=batch.source != PAD, decoder_input_ids=batch.inputs, labels=labels
    ).loss


def judge(task: str, pairs: Sequence[Sample], write: Write, tokenizer: Any) -> dict[str, Any]:
    """Return the scores of a system on a part."""
    sources = [[*ids, END] for ids in tokenizer.encode_all([source_of(pair) for pair in pairs])]
    outputs = [text for i in range(0, len(sources), BATCH) for text in write(sources[i : i + BATCH])]
    references = [target_of(pair) for pair in pairs]
    if task == "summaries":
        right = sum(map(str.__eq__, outputs, references))
        return {**corpus_rouge(outputs, references), "identical": 100 * right / len(pairs)}
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for (_, asked), output in zip(pairs, outputs, strict=True):
        assert asked is not None
        by_kind[asked.kind].append(normalized(output) == normalized(asked.answer))
    kinds = {kind: round(100 * mean(right), 1) for kind, right in sorted(by_kind.items())}
    return {**answer_scores(outputs, references), "by_kind": kinds}


def judge_pointer(task: str, pairs: Sequence[Sample], face: Any) -> dict[str, Any]:
    """Return how well the attention of the pointer finds the sentences that were used."""
    if task == "answers":
        stories, questions = [story.text for story, _ in pairs], [asked.question for _, asked in pairs if asked]
        answers = face.answer(stories, questions)
        by_kind: dict[str, list[bool]] = defaultdict(list)
        for answer, (_, asked) in zip(answers, pairs, strict=True):
            assert asked is not None
            by_kind[asked.kind].append(answer.support == asked.support)
        kinds = {kind: round(100 * mean(right), 1) for kind, right in sorted(by_kind.items())}
        return {"support": 100 * mean(right for kind in by_kind.values() for right in kind), "support_by_kind": kinds}
    shares, exact = [], []
    for summary, (story, _) in zip(face.summarize([story.text for story, _ in pairs]), pairs, strict=True):
        ranked = sorted(range(len(summary.shares)), key=lambda i: -summary.shares[i])
        shares.append(sum(summary.shares[i] for i in story.used))
        exact.append(set(ranked[: len(story.used)]) == set(story.used))
    return {"share_of_used": 100 * mean(shares), "support": 100 * mean(exact)}


def run(task: str, system: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train and judge a system."""
    settings = dict(text.partition("=")[::2] for text in options.set)
    settings |= {"training.seed": seed, "training.device": options.device}
    if options.device != "cpu":
        settings = {"training.precision": "fp32", "training.capture": "false", "training.kernels": "off", **settings}
    wall, cpu = time.perf_counter(), time.process_time()
    face, extra = None, dict[str, Any]()
    with tempfile.TemporaryDirectory() as name:
        if system == "t5":
            write, tokenizer, size, extra = train_t5(task, settings, options.device, options.rates, options.until)
        else:
            copies, quiet = system == "pointer-generator", not options.verbose
            trained, steps = train_regard(
                task, settings, Path(name), copies=copies, quiet=quiet, deadline=options.until
            )
            extra = {"steps": steps, "validation": trained.scores}
            face = trained.load(device=options.device)
            tokenizer = face.tokenizer
            write, size = greedy_writer(face.model, tokenizer), sum(p.numel() for p in face.model.parameters())
    seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    scores: dict[str, Any] = {}
    for part in options.parts:
        pairs = samples(task, part, options.samples)
        scores[part] = judge(task, pairs, write, tokenizer)
        if system == "pointer-generator":
            scores[part] |= judge_pointer(task, pairs[: options.pointed], face)
    return {
        "task": task, "system": system, "seed": seed, "name": options.name, "settings": options.set, "parameters": size,
        **extra, **{f"{key}_seconds": round(value, 1) for key, value in seconds.items()}, "scores": scores,
        "device": options.device, "hardware": hardware(options.device), "torch": torch.__version__,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def table(path: Path, name: str) -> str:
    """Return the results of that name as a Markdown table: mean and standard deviation of the seeds."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        if result["name"] == name:
            groups[result["task"], result["system"]].append(result)
    columns = ("task", "system", "parameters", "test", "unseen combinations", "longer stories", "sentence found")
    rows = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for (task, system), results in sorted(groups.items(), key=lambda entry: (entry[0][0], SYSTEMS.index(entry[0][1]))):
        key = "exact" if task == "answers" else "rougeL"
        cells = [spread([result["scores"][part][key] for result in results]) for part in PARTS]
        support = [result["scores"]["test"].get("support") for result in results]
        found = spread(support) if None not in support else "–"
        measure = "exact match" if task == "answers" else "ROUGE-L"
        rows.append(f"| {task}, {measure} | {system} | {results[0]['parameters']:,} | {' | '.join(cells)} | {found} |")
    return "\n".join(rows)


def spread(values: Sequence[Any]) -> str:
    """Return the mean, for several seeds with the standard deviation."""
    return f"{mean(values):.1f}" + (f" ± {pstdev(values):.1f} ({len(values)} seeds)" if len(values) > 1 else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=tuple(RECIPES), help="default: both")
    parser.add_argument("--system", choices=SYSTEMS, help="default: all")
    parser.add_argument("--seed", type=int, help="default: 1, 2 and 3")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a recipe's setting")
    parser.add_argument("--rates", nargs="+", type=float, default=T5_RATES, help="of T5, as shares of the recipe's")
    parser.add_argument("--name", default="recipe", help="name of these settings in the results")
    parser.add_argument("--parts", nargs="+", choices=DEMO_PARTS, default=list(PARTS), help="`validation` for tuning")
    parser.add_argument("--samples", type=int, default=2000, help="stories or questions of each part")
    parser.add_argument("--pointed", type=int, default=500, help="those of which the pointer is judged")
    parser.add_argument("--verbose", action="store_true", help="print the progress of regard's trainings")
    parser.add_argument("--until", type=float, help="end trainings at this time, in seconds since 1970")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the table of the results and do nothing else")
    options = parser.parse_args()
    if not options.table:
        for seed in SEEDS if options.seed is None else [options.seed]:
            for task in RECIPES if options.task is None else [options.task]:
                for system in SYSTEMS if options.system is None else [options.system]:
                    result = run(task, system, seed, options)
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(result) + "\n")
                    print(json.dumps(result), flush=True)
    if set(options.parts) >= set(PARTS):
        print(table(options.out, options.name))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
