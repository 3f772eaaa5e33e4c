"""The data doctor: report what is wrong with training data, where, and how training will handle it.

    print(check_data([ParallelFiles(Path("train.fr"), Path("train.en"))]))

It reads the files once, with 24 bytes of memory per pair, and then reads them again as far as the examples require.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from regard.errors import RegardError
from regard.text.check.length_rules import DEFAULT_MAX_TOKENS, Rules
from regard.text.check.occurrences import Location, Occurrences
from regard.text.check.report import (
    EXCERPT_CHARACTERS,
    CheckReport,
    Example,
    Problem,
    SideStatistics,
    excerpt,
    sorted_problems,
    training_response,
)
from regard.text.check.scan import Scan, SideCounts
from regard.text.files.corpus import Corpus
from regard.text.files.lines import Fault
from regard.text.files.rows import Row
from regard.text.files.shards import CorpusRows, PairsFile, ParallelFiles, Shard, TextFile, rows_at
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import Tokenizer

__all__ = ["DEFAULT_MAX_TOKENS", "PairsFile", "ParallelFiles", "Rules", "TextFile", "check_data", "short_check"]


def check_data(
    train: Sequence[Shard],
    validation: Sequence[Shard] = (),
    test: Sequence[Shard] = (),
    *,
    rules: Rules | None = None,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> CheckReport:
    """Check training and validation data, and look for training sentences that are also in the test data.

    `on_progress` is called from time to time with the number of rows read so far.
    """
    rules = rules or Rules()
    scan, held_out, occurrences = _scan_all(train, validation, test, rules, on_progress)
    label, tokenizers = "the model's tokenizer", rules.tokenizers
    if tokenizers is None:
        label, tokenizers = "subwords of a sample", _small_tokenizers(scan.sides)
    sides = [_statistics(counts, tokenizers and tokenizers[i]) for i, counts in enumerate(scan.sides) if counts.lines]
    unit = "lines" if train[0].is_prose else "documents" if train[0].is_text else "pairs"
    share = max(part.faulty_share for part in (scan, held_out))
    problems = [
        Problem(
            kind,
            hits.count,
            training_response(kind, faults=rules.faults, limit=rules.limit, faulty_share=share),
            examples,
            (*scan.advice[kind], *held_out.advice[kind]),
        )
        for (kind, hits), examples in zip(occurrences.items(), _examples(list(occurrences.values())), strict=True)
    ]
    files = tuple(str(file) for shard in (*train, *validation, *test) for file in shard.files)
    fixable = any(part.can_be_fixed for part in (scan, held_out))
    return CheckReport(
        files,
        scan.rows,
        unit,
        tuple(sides),
        label,
        sorted_problems(problems),
        notes=(*scan.notes, *held_out.notes),
        is_fixable=fixable and not any(str(file).endswith(".parquet") for file in files),
    )


def short_check(train: Corpus, validation: Corpus | None = None, *, limit: int = DEFAULT_MAX_TOKENS) -> list[str]:
    """Return the lines that training prints about its data before the first step, one for each kind of problem.

    The report of the training corpus covers what was fixed and dropped while it was read, so these lines cover only the
    reading of the validation corpus. `limit` is the largest number of tokens of a side.
    """
    held_out = [] if validation is None or validation.target is None else [CorpusRows(validation)]
    _, _, occurrences = _scan_all([CorpusRows(train)], held_out, [], Rules(limit=limit))
    lines = []
    if validation is not None and validation.report is not train.report:
        findings = validation.report.findings
        lines += [f"{kind}: {finding.count:,}, first at {finding.locations[0]}" for kind, finding in findings.items()]
    problems = [
        Problem(kind, hits.count, training_response(kind, limit=limit), []) for kind, hits in occurrences.items()
    ]
    for problem in sorted_problems(problems):
        first = occurrences[problem.name].locations[0]
        where = first.shard.location(first.number, first.side or 0)
        lines.append(f"{problem.name}: {problem.count:,}, first at {where}; training {problem.training}")
    return lines


def _scan_all(
    train: Sequence[Shard],
    validation: Sequence[Shard],
    test: Sequence[Shard],
    rules: Rules,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> tuple[Scan, Scan, dict[str, Occurrences]]:
    """Scan the held-out data, then the training data. Return both scans, and all problems.

    Training never reads the test data, so only its sentences matter.
    """
    validation_scan, test_scan = Scan(rules), Scan(rules)
    validation_scan.read(validation, on_progress)
    test_scan.read(test, on_progress)
    train_scan = Scan(rules, held_out={**test_scan.sentences, **validation_scan.sentences})
    train_scan.read(train, on_progress)
    occurrences = dict(train_scan.occurrences)
    for kind, others in validation_scan.occurrences.items():
        occurrences.setdefault(kind, Occurrences()).merge(others)
    return train_scan, validation_scan, {kind: hits for kind, hits in occurrences.items() if hits.count}


def _small_tokenizers(sides: Sequence[SideCounts]) -> tuple[Tokenizer, Tokenizer] | None:
    """Learn subwords from the samples: fewer than a training run learns, so they give slightly more tokens."""
    lines = [line for side in sides for line in side.sample]
    try:
        tokenizer = train_subwords(lines, size=None, kind="bpe", lossless=False)
    except RegardError:  # too little text
        return None
    return tokenizer, tokenizer


def _statistics(counts: SideCounts, tokenizer: Tokenizer | None) -> SideStatistics:
    words = sum(len(line.split()) for line in counts.sample)
    tokens = None if tokenizer is None else sum(map(len, tokenizer.encode_all(counts.sample)))
    return SideStatistics(
        round(counts.words / counts.lines, 2),
        round(counts.characters / counts.words, 2),
        None if tokens is None else round(tokens / words, 2),
    )


def _examples(occurrences: Sequence[Occurrences]) -> list[list[Example]]:
    """Return the examples of each kind; each file is read once more, as far as necessary."""
    numbers: defaultdict[Shard, set[int]] = defaultdict(set)
    for hits in occurrences:
        for location in hits.locations:
            numbers[location.shard].add(location.number)
    rows = {shard: rows_at(shard, shard_numbers) for shard, shard_numbers in numbers.items()}
    return [[_example(x, rows[x.shard].get(x.number)) for x in hits.locations] for hits in occurrences]


def _example(location: Location, row: Row | None) -> Example:
    if row is None and location.number:  # a header row
        return Example(location.shard.location(location.number, location.side or 0), location.remark)
    if row is None:  # a problem of the whole file: the remark is "file: message"
        path, _, message = location.remark.partition(": ")
        return Example(path, message)
    texts = [text.excerpt if isinstance(text, Fault) else text for text in row[1:3] if text is not None]
    if location.side is None:
        pair = "  ‖  ".join(excerpt(text, width=EXCERPT_CHARACTERS * 2 // 3) for text in texts)
        return Example(location.shard.location(location.number), pair, location.remark)
    text = texts[min(location.side, len(texts) - 1)]
    where = location.shard.location(location.number, location.side)
    return Example(where, excerpt(text, location.offset), location.remark)
