"""Write French and English sentence pairs of this project as two more files for a training.

    python scripts/make_fact_pairs.py 20000 data/facts.fr data/facts.en
    python scripts/make_fact_pairs.py 15000 data/demo.fr data/demo.en --corpus demo

`facts` are sentences with numbers, dates, addresses and names, from templates; `demo` are those of the demo corpus. The
pairs go beside others: data.source = ["train.fr", "facts.fr"] and data.target = ["train.en", "facts.en"].
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.demo.corpus import demo_pairs
from regard.demo.facts import fact_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, help="number of pairs")
    parser.add_argument("source", type=Path, help="file for the French sentences")
    parser.add_argument("target", type=Path, help="file for the English sentences")
    parser.add_argument("--corpus", choices=("facts", "demo"), default="facts")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.corpus == "facts":
        pairs = fact_pairs(args.count, seed=args.seed)
    else:
        pairs = [(pair.source, pair.target) for pair in demo_pairs("train", args.count, seed=args.seed)]
    for side, path in enumerate((args.source, args.target)):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


if __name__ == "__main__":
    main()
