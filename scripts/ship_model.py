"""Put a trained run into the package: its model alone, in bfloat16, without what resume needs.

    python scripts/ship_model.py runs/fr-en fr-en

The folder regard/shipped/NAME is what `regard.load("NAME")` opens.
"""

from __future__ import annotations

import sys
from pathlib import Path

from regard.models.folder import RESERVED, load_model, read_config, save_model
from regard.text.tokenizer import read_tokenizers, tokenizer_files

SHIPPED = Path(__file__).parents[1] / "regard" / "shipped"


def ship(run: Path, name: str) -> Path:
    """The run's model as regard/shipped/NAME."""
    info = {key: value for key, value in read_config(run).items() if key not in RESERVED}
    return save_model(
        load_model(run),
        SHIPPED / name,
        storage="bfloat16",
        files=tokenizer_files(*read_tokenizers(run)),
        info=info,
        card=(run / "README.md").read_text(encoding="utf-8"),
    )


if __name__ == "__main__":
    ship(Path(sys.argv[1]), sys.argv[2])
