"""A sentence encoder with its tokenizer: it maps texts to vectors that can be compared.

A3; Reimers & Gurevych 2019.

    N texts   n tokens   d width
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.api.html import describe_model, model_html, model_repr
from regard.api.saving import save_face
from regard.decoding.cpu.packed_copy import PackedCopy
from regard.decoding.model_step import evaluating
from regard.errors import DataError, ModelError, UsageError, unknown_name
from regard.models.folder.weights_file import Storage
from regard.models.protocols import config_of
from regard.text.tokenizers.special_tokens import pad_batch
from regard.text.tokenizers.tokenizer import Tokenizer

BATCH_TOKENS = 8192  # of one forward pass, including padding


class Embedder:
    """Embeds texts with a sentence encoder; `regard.load` makes one from a folder.

    With `pack`, a float32 model on a CPU computes with packed weights, which is faster and takes more memory.
    """

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, *, info: Mapping[str, Any] | None = None, pack: bool = False
    ) -> None:
        self.model = model
        self._packed = PackedCopy() if pack else None
        self.tokenizer = tokenizer
        self.info = dict(info or {})
        config = config_of(model)
        (vocabulary,) = config.vocabularies
        frame = self.info.get("frame", {}).get("source", {})
        self.before: list[int] = list(frame.get("before", []))  # what precedes a text
        self.after: list[int] = list(frame.get("after", [config.special_tokens.end]))
        self.max_tokens: int | None = self.info.get("max_tokens")  # of an imported model, which cuts longer texts
        if wrong := [token for token in (*self.before, *self.after) if token >= vocabulary]:
            raise ModelError(f"config.json: frame has the token {wrong[0]}, but there are tokens 0 to {vocabulary - 1}")
        if tokenizer.size > vocabulary:
            raise ModelError(f"the tokenizer has {tokenizer.size} tokens, but the model only {vocabulary}")

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        return save_face(self.model, folder, tokenizer=self.tokenizer, info=self.info, storage=storage)

    def __repr__(self) -> str:
        return model_repr("Embedder", describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return model_html("Embedder", describe_model(self.model, self.info), 'embedder.embed(["…", "…"])')

    @property
    def prompts(self) -> dict[str, str]:
        """What the authors of an imported model put before a text, by name, such as "query"."""
        return dict(self.info.get("prompts") or {})

    def embed(self, texts: str | Sequence[str], *, prompt: str | None = None) -> Tensor:
        """Return (N, d), float32 on the CPU; one text gives one row.

        Rows have unit length, except those of a model whose `normalize` is false. `prompt` is one of `prompts`.
        """
        if prompt is not None and prompt not in self.prompts:
            raise UsageError(unknown_name("prompt", prompt, tuple(self.prompts)))
        start = "" if prompt is None else self.prompts[prompt]
        texts = [start + text for text in ([texts] if isinstance(texts, str) else texts)]
        tokens = [self._framed(ids) for ids in self.tokenizer.encode_all(texts)]
        config, longest = config_of(self.model), max(map(len, tokens), default=0)
        if config.max_positions is not None and longest > config.max_positions:
            raise DataError(
                f"a text has {longest} tokens, but this model has positions for {config.max_positions} only: "
                "split the text"
            )
        vectors = torch.zeros(len(texts), config.width)
        model = self.model if self._packed is None else self._packed.of(self.model)
        unit = getattr(config, "normalize", True)
        # Texts of similar length form a batch, to avoid padding.
        order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))
        with torch.inference_mode(), evaluating(model):
            while order:
                rows = max(1, BATCH_TOKENS // len(tokens[order[-1]]))
                batch, order = order[-rows:], order[:-rows]
                embeddings = embed_batch(model, [tokens[i] for i in batch], config.pad_id).float()  # (rows, d)
                vectors[batch] = (F.normalize(embeddings, dim=-1) if unit else embeddings).cpu()
        return vectors

    def token_ids(self, text: str) -> list[int]:
        """Return the tokens that the model reads for a text."""
        return self._framed(self.tokenizer.encode(text))

    def _framed(self, ids: list[int]) -> list[int]:
        if self.max_tokens is not None and len(ids) > (room := self.max_tokens - len(self.before) - len(self.after)):
            warnings.warn(f"a text has {len(ids)} tokens, but the model reads only the first {room}", stacklevel=4)
            ids = ids[:room]
        return [*self.before, *ids, *self.after]

    def similarity(self, a: str | Sequence[str], b: str | Sequence[str]) -> Tensor:
        """Return the cosine similarity of each text of `a` with each of `b`, (N, M), from -1 to 1."""
        return F.normalize(self.embed(a), dim=-1) @ F.normalize(self.embed(b), dim=-1).T


def embed_batch(model: Any, texts: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    """Return a vector for each text, (N, d): in C if the model has packed weights and C implements it."""
    c_encoder: Any = getattr(model, "c_encoder", None)
    suits_c = c_encoder is not None and all(texts) and not any(pad_id in text for text in texts)
    if suits_c and c_encoder.why_not_now(max(map(len, texts))) is None:
        return torch.cat([model.pooled(x[None], x.new_ones(1, len(x)) > 0) for x in c_encoder.encode(texts)])
    return model(pad_batch(texts, pad_id=pad_id).to(next(model.parameters()).device))
