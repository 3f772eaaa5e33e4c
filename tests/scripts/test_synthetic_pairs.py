"""scripts/synthetic_pairs.py: which pairs of a translated corpus join the training data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "synthetic_pairs.py"


def test_new_and_plausible_pairs_are_written_once(tmp_path: Path) -> None:
    files = {
        "real.fr": ["Bonjour.", "Le chat dort."],
        "real.en": ["Hello.", "The cat sleeps."],
        "back.fr": ["Bonjour.", "Le chat est endormi.", "Le chat est endormi.", "", "Oui " * 20],
        "back.en": ["Hello.", "The cat sleeps.", "The cat sleeps.", "Nothing.", "Yes."],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    arguments = ["back.fr", "back.en", "--real", "real.fr", "real.en", "--out", "new.fr", "new.en"]
    subprocess.run([sys.executable, str(SCRIPT), *arguments], cwd=tmp_path, check=True)
    assert (tmp_path / "new.fr").read_text(encoding="utf-8") == "Le chat est endormi.\n"
    assert (tmp_path / "new.en").read_text(encoding="utf-8") == "The cat sleeps.\n"
