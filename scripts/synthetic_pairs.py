"""Write the pairs of a translated corpus as two more files for a training: data diversification (Nguyen et al. 2020).

    regard translate -m runs/fr-en train.fr.gz > train.translated.en
    python scripts/synthetic_pairs.py train.fr.gz train.translated.en --real train.fr.gz train.en.gz \\
        --out synthetic.fr synthetic.en

Source and target may each be the translated side: with a model of the other direction this is back-translation
(Sennrich et al. 2016). Pairs that are among the real ones are left out, and so are empty translations and those whose
length does not fit.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from regard.text.files.corpus import read_parallel

MAX_LENGTH_RATIO = 2.0  # between the words of the two sides
FREE_WORDS = 3  # added to both sides, so that short sentences may differ more


def plausible(source: str, target: str) -> bool:
    """Whether both sides have words, and similar numbers of them."""
    lengths = sorted(len(text.split()) for text in (source, target))
    return lengths[0] > 0 and (lengths[1] + FREE_WORDS) / (lengths[0] + FREE_WORDS) <= MAX_LENGTH_RATIO


def new_pairs(pairs: Iterable[tuple[str, str]], real: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The plausible pairs that are not among the real ones, each once."""
    known = set(real)
    return [pair for pair in dict.fromkeys(pairs) if pair not in known and plausible(*pair)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="source sentences, real or translated")
    parser.add_argument("target", type=Path, help="target sentences, translated or real")
    parser.add_argument(
        "--real", type=Path, nargs=2, required=True, metavar=("SOURCE", "TARGET"), help="training pairs"
    )
    parser.add_argument("--out", type=Path, nargs=2, required=True, metavar=("SOURCE", "TARGET"), help="files to write")
    args = parser.parse_args()
    translated, real = (
        read_parallel([source], [target], faults="skip") for source, target in ((args.source, args.target), args.real)
    )
    assert translated.target is not None
    assert real.target is not None
    pairs = new_pairs(
        zip(translated.source, translated.target, strict=True), zip(real.source, real.target, strict=True)
    )
    for side, path in enumerate(args.out):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


if __name__ == "__main__":
    main()
