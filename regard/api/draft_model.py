"""The draft model of speculative decoding, which must have the same tokenizers as the model."""

from __future__ import annotations

from regard.decoding.searches.search import Search
from regard.errors import UsageError


def check_draft(face: object, search: Search) -> None:
    """Refuse a search whose draft model has another tokenizer than the model that decodes."""
    draft = getattr(search, "draft", None)  # of Speculative
    if draft is None:
        return
    for side in ("source_tokenizer", "target_tokenizer", "tokenizer"):
        ours, theirs = getattr(face, side, None), getattr(draft, side, None)
        if ours is None or theirs is None or ours is theirs or ours.save() == theirs.save():
            continue
        raise UsageError(
            f"model and draft must have the same tokenizers, but the {side.replace('_', ' ')} of the draft differs: "
            "train both with one tokenizer"
        )
