"""Write French and English sentence pairs with facts, from templates, as two more files for a training.

    python scripts/make_fact_pairs.py 20000 data/facts.fr data/facts.en

The pairs go beside others: data.source = ["train.fr", "facts.fr"] and data.target = ["train.en", "facts.en"].
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.demo.facts import fact_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, help="number of pairs")
    parser.add_argument("source", type=Path, help="file for the French sentences")
    parser.add_argument("target", type=Path, help="file for the English sentences")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    pairs = fact_pairs(args.count, seed=args.seed)
    for side, path in enumerate((args.source, args.target)):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


if __name__ == "__main__":
    main()
