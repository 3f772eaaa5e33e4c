"""The search in C for a model with packed weights: what C implements, and whether the modules have changed."""

from __future__ import annotations

from typing import Any
from weakref import ref

from torch import nn

from regard.decoding import decoder_layout
from regard.decoding.cpu.c_decoder import C_TRAITS, why_not as why_not_step
from regard.decoding.cpu.c_matrix import compiled
from regard.decoding.cpu.c_network import CNetwork
from regard.decoding.cpu.c_search import CSearch
from regard.decoding.decoder_layout import BLOCK_TRAITS, INPUT_TRAITS, all_modules, why_not_alike, why_not_hooked
from regard.decoding.model_snapshot import ModelSnapshot
from regard.models.transformer import Transformer
from regard.traits import traits_of, why_not_known

POSITIONS = frozenset({"position Position", "position Sinusoidal", "sinusoidal-start", "position Learned"})
KNOWN_TRAITS = BLOCK_TRAITS | C_TRAITS | INPUT_TRAITS | POSITIONS


def make_c_search(model: Any) -> CSearch | None:
    """Return the search in C for a model with packed weights, or None where `why_not` gives a reason."""
    return None if why_not(model) is not None else ModuleSearch(model, compiled())


def why_not(model: nn.Module) -> str | None:
    """Return the reason why C cannot translate with this model, or None if it can."""
    if not isinstance(model, Transformer):
        return f"a {type(model).__name__} is no Transformer that translates"
    reason = why_not_step(model) or decoder_layout.why_not(model, KNOWN_TRAITS, runs_input=False)
    encoder = traits_of(model.encoder) | traits_of(model.source)
    reason = reason or why_not_known(encoder, KNOWN_TRAITS) or why_not_alike(model.encoder)
    if reason is None and (model.source.embedding.pad_id, model.target.embedding.pad_id) != (None, None):
        reason = "an embedding has a padding row, whose score is constant"
    return reason


class ModuleSearch(CSearch):
    """Searches with the modules of a model, which may change between two calls."""

    def __init__(self, model: Transformer, library: Any) -> None:
        super().__init__(library)
        self.model = ref(model)
        self.snapshot: ModelSnapshot | None = None  # of the model as it was prepared

    def why_not_now(self) -> str | None:
        model: Any = self.model()
        if self.snapshot is None or not self.snapshot.matches(model):
            if (reason := why_not_hooked(all_modules(model)) or why_not(model)) is not None:
                return reason
            snapshot = ModelSnapshot(model)
            self.prepared = CNetwork(model, self.library)
            self.snapshot = snapshot  # last, because other threads take it for the snapshot of what is prepared
        return None
