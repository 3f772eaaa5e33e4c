"""The data doctor: what is wrong with training data, where, and what training will do about it.

    print(check_data([ParallelFiles(Path("train.fr"), Path("train.en"))]))

One pass over the files, which keeps 24 bytes a pair, and a second one over as much as the examples need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from regard.errors import RegardError
from regard.text.check.report import WIDTH, CheckReport, Example, Kind, Side, excerpt, ordered, what_training_does
from regard.text.check.scan import LONGEST, Found, Part, Rules, SideCounts, Spot
from regard.text.files.corpus import Corpus
from regard.text.files.lines import Fault
from regard.text.files.rows import Row
from regard.text.files.shards import CorpusRows, PairsFile, ParallelFiles, Shard, TextFile, rows_at
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import Tokenizer

__all__ = ["LONGEST", "PairsFile", "ParallelFiles", "Rules", "TextFile", "check_data", "short_check"]


def check_data(
    train: Sequence[Shard],
    validation: Sequence[Shard] = (),
    test: Sequence[Shard] = (),
    *,
    rules: Rules | None = None,
    told: Callable[[int], None] = lambda rows: None,
) -> CheckReport:
    """Look through training and validation data, and for sentences that they share with test data.

    `told` hears now and then how many rows have been seen.
    """
    rules = rules or Rules()
    part, found = _examine(train, validation, test, rules, told)
    label, tokenizers = "the model's tokenizer", rules.tokenizers
    if tokenizers is None:
        label, tokenizers = "subwords of a sample", _small_tokenizers(part.sides)
    sides = [_side(counts, tokenizers and tokenizers[i]) for i, counts in enumerate(part.sides) if counts.lines]
    unit = "lines" if train[0].is_prose else "documents" if train[0].is_text else "pairs"
    told_kinds = [
        Kind(kind, one.count, what_training_does(kind, faults=rules.faults, limit=rules.limit), examples)
        for (kind, one), examples in zip(found.items(), _examples(list(found.values())), strict=True)
    ]
    files = tuple(str(file) for shard in (*train, *validation, *test) for file in shard.files)
    return CheckReport(files, part.rows, unit, tuple(sides), label, ordered(told_kinds))


def short_check(train: Corpus, validation: Corpus | None = None, *, limit: int = LONGEST) -> list[str]:
    """What training should say about its data before the first step: a line for each kind that was found.

    What was mended and dropped while reading is told by the report of the training corpus, so only that of the
    validation corpus is here. `limit` is the most tokens of a side.
    """
    held_out = [] if validation is None or validation.target is None else [CorpusRows(validation)]
    _, found = _examine([CorpusRows(train)], held_out, [], Rules(limit=limit))
    lines = []
    if validation is not None and validation.report is not train.report:
        mended = validation.report.findings
        lines += [f"{kind}: {one.count:,}, first at {one.places[0]}" for kind, one in mended.items()]
    kinds = [Kind(kind, one.count, what_training_does(kind, limit=limit), []) for kind, one in found.items()]
    for kind in ordered(kinds):
        spot = found[kind.name].spots[0]
        place = spot.shard.place(spot.number, spot.side or 0)
        lines.append(f"{kind.name}: {kind.count:,}, first at {place}; training {kind.training}")
    return lines


def _examine(
    train: Sequence[Shard],
    validation: Sequence[Shard],
    test: Sequence[Shard],
    rules: Rules,
    told: Callable[[int], None] = lambda rows: None,
) -> tuple[Part, dict[str, Found]]:
    """Walk over what is held out, then over the training data. All that was found, and the training part.

    Of test data, which training never sees, only its sentences matter.
    """
    held_out, unseen = Part(rules), Part(rules)
    held_out.walk(validation, told)
    unseen.walk(test, told)
    part = Part(rules, held_out={**unseen.sentences, **held_out.sentences})
    part.walk(train, told)
    found = dict(part.found)
    for kind, more in held_out.found.items():
        found.setdefault(kind, Found()).include(more)
    return part, {kind: one for kind, one in found.items() if one.count}


def _small_tokenizers(sides: Sequence[SideCounts]) -> tuple[Tokenizer, Tokenizer] | None:
    """Subwords learnt from the samples: smaller than those of a training, so they count a little more tokens."""
    try:
        one = train_subwords([line for side in sides for line in side.sample], size=None, kind="bpe", lossless=False)
    except RegardError:  # too little text
        return None
    return one, one


def _side(counts: SideCounts, tokenizer: Tokenizer | None) -> Side:
    words = sum(len(line.split()) for line in counts.sample)
    tokens = None if tokenizer is None else sum(map(len, tokenizer.encode_all(counts.sample)))
    return Side(
        round(counts.words / counts.lines, 2),
        round(counts.characters / counts.words, 2),
        None if tokens is None else round(tokens / words, 2),
    )


def _examples(found: Sequence[Found]) -> list[list[Example]]:
    """What stands at the spots of each kind; each file is read once more, as far as is needed."""
    wanted: defaultdict[Shard, set[int]] = defaultdict(set)
    for one in found:
        for spot in one.spots:
            wanted[spot.shard].add(spot.number)
    rows = {shard: rows_at(shard, numbers) for shard, numbers in wanted.items()}
    return [[_example(spot, rows[spot.shard].get(spot.number)) for spot in one.spots] for one in found]


def _example(spot: Spot, row: Row | None) -> Example:
    if row is None:  # the file as a whole: "file: what is wrong with it"
        place, _, told = spot.remark.partition(": ")
        return Example(place, told)
    texts = [text.shown if isinstance(text, Fault) else text for text in row[1:] if text is not None]
    if spot.side is None:
        told = "  ‖  ".join(excerpt(text, width=WIDTH * 2 // 3) for text in texts)
        return Example(spot.shard.place(spot.number), told, spot.remark)
    text = texts[min(spot.side, len(texts) - 1)]
    return Example(spot.shard.place(spot.number, spot.side), excerpt(text, spot.at), spot.remark)
