"""Random models of regard with any settings, saved as model folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from small_models import make_tokenizer

import regard
from regard.text.tokenizers.imported import ImportedTokenizer

SIZES: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 4, "hidden": 24}
VOCABULARY = 273


def random_model(folder: Path, config: Any, **info: Any) -> Any:
    """Save a random model, with all weights and biases away from their initial values."""
    torch.manual_seed(len(str(config)))
    model = regard.make_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    library = make_tokenizer()
    regard.save_model(model, folder, tokenizer=ImportedTokenizer(library.to_str().encode()), info=info)
    return model
