"""Put a trained run into the package: its model alone, stored small, with its scores and whose data it learnt from.

    python scripts/ship_model.py runs/fr-en fr-en --test data/tatoeba-fr-en/test.fr.gz data/tatoeba-fr-en/test.en.gz \\
        --attribution "Sentences from tatoeba.org …"

The folder regard/shipped/NAME is what `regard.load("NAME")` opens. The test part is translated by the model as it is
stored, with a beam of 5.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from regard.api.translation.foreign_input import doubt
from regard.api.translator import Translator
from regard.evaluation.bleu import corpus_bleu, corpus_chrf
from regard.models.folder import RESERVED, load_model, read_config, save_model
from regard.models.folder.config_file import STORAGES
from regard.tasks.loading import load
from regard.text.files.corpus import read_parallel
from regard.text.tokenizers.tokenizer import read_tokenizers, tokenizer_files
from regard.training.run.model_card import OWNERS_MISSING, VALIDATION_SCORES

SHIPPED = Path(__file__).parents[1] / "regard" / "shipped"
FALSE_ALARMS = 0.005  # share of the test sentences that look like another language


def ship(run: Path, folder: Path, *, storage: str, attribution: str | None, test: tuple[Path, Path] | None) -> Path:
    """The run's model as that folder."""
    card = (run / "README.md").read_text(encoding="utf-8").replace(f"# {run.name}\n", f"# {folder.name}\n", 1)
    info = {key: value for key, value in read_config(run).items() if key not in RESERVED}
    if OWNERS_MISSING in card:
        if attribution is None:
            raise SystemExit("the card does not say who owns the data and under which terms: pass --attribution")
        card = card.replace(OWNERS_MISSING, attribution)
    elif attribution is not None:
        raise SystemExit("the card has no sentence that --attribution could replace: it says already who owns the data")
    settings: dict[str, Any] = {"storage": storage, "files": tokenizer_files(*read_tokenizers(run))}
    model = load_model(run)
    save_model(model, folder, **settings, info=info, card=card)
    if test is not None:
        scores, max_doubt = judge(folder, *test)
        card = card.replace(VALIDATION_SCORES, f"{test_table(scores, storage)}\n\n{VALIDATION_SCORES}")
        info = {**info, "scores": {**info["scores"], **scores}, "max_doubt": max_doubt}
        save_model(model, folder, **settings, info=info, card=card)
    return folder


def test_table(scores: dict[str, Any], storage: str) -> str:
    """The scores as the card shows them."""
    head = ["## Scores on the test part", "", f"Stored as {storage}, beam 5.", "", "| score | value | signature |"]
    signatures = [score["signature"].replace("|", "\\|") for score in scores.values()]
    rows = [
        f"| {score['name']} | {score['value']:.2f} | {signature} |"
        for score, signature in zip(scores.values(), signatures, strict=True)
    ]
    return "\n".join([*head, "|---|---|---|", *rows])


def judge(folder: Path, source: Path, target: Path) -> tuple[dict[str, Any], float]:
    """BLEU and chrF of the stored model on a test part, and the doubt above which it warns about its input."""
    corpus, translator = read_parallel([source], [target]), load(str(folder))
    assert isinstance(translator, Translator)
    assert corpus.target is not None
    translations = translator.translate(corpus.source, beam=5)
    ours = [translation.text for translation in translations]
    scores = {"test_bleu": corpus_bleu(ours, corpus.target), "test_chrf": corpus_chrf(ours, corpus.target)}
    doubts = sorted(map(doubt, translations))
    max_doubt = doubts[min(len(doubts) - 1, int(len(doubts) * (1 - FALSE_ALARMS)))]
    return {name: score.to_dict() for name, score in scores.items()}, round(max_doubt, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a finished training")
    parser.add_argument("name", help="of the shipped model")
    parser.add_argument("--storage", choices=STORAGES, default="int8")
    parser.add_argument("--attribution", help="whose data it learnt from, and under which terms")
    parser.add_argument("--test", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="files for the scores")
    args = parser.parse_args()
    folder = ship(
        args.run,
        SHIPPED / args.name,
        storage=args.storage,
        attribution=args.attribution,
        test=args.test and tuple(args.test),
    )
    size = sum(path.stat().st_size for path in folder.iterdir())
    sys.stdout.write(f"{folder}: {size / 1e6:.2f} MB\n")


if __name__ == "__main__":
    main()
