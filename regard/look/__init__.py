"""Look inside models: traces, pictures of weights, masks and positions, and the explorer page.

This is a table of the public names. Each is imported at first use, so a trace can be read without PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    # traces
    "Trace": "regard.look.trace.trace",
    "InputTrace": "regard.look.trace.inputs.input_trace",
    "trace_text": "regard.look.trace.tracing",
    "trace_maps": "regard.look.trace.from_weights",
    "heads_off": "regard.look.heads.interventions",
    "force_attention": "regard.look.heads.interventions",
    "inside_block": "regard.look.inside.inside",
    "write_page": "regard.look.page.single_file",
    "merge_words": "regard.look.trace.words",
    "head_statistics": "regard.look.heads.statistics",
    "rollout": "regard.look.heads.statistics",
    "best_alignment_head": "regard.look.heads.statistics",
    "compare_features": "regard.look.inside.random_features",
    "feature_errors": "regard.look.inside.random_features",
    "jane_head": "regard.look.inside.random_features",
    "read_head": "regard.look.inside.random_features",
    "recurrent_states": "regard.look.recurrent",
    "principal_plane": "regard.look.embeddings",
    "word_table": "regard.look.embeddings",
    "show_source": "regard.look.source",
    "Attribution": "regard.look.attribution.attribution",
    "attribute": "regard.look.attribution.attribution",
    "rank_agreement": "regard.look.attribution.attribution",
    # pictures
    "plot_trace": "regard.look.pictures.traces",
    "alignment_plot": "regard.look.pictures.matrices",
    "attribution_plot": "regard.look.attribution.picture",
    "architecture_diagram": "regard.look.pictures.architecture",
    "gradient_norms": "regard.look.pictures.gradients",
    "gradient_plot": "regard.look.pictures.gradients",
    "mask_plot": "regard.look.pictures.matrices",
    "multi_head_diagram": "regard.look.pictures.architecture",
    "one_hot_plot": "regard.look.pictures.matrices",
    "position_products_plot": "regard.look.pictures.position_curves",
    "position_variance_plot": "regard.look.pictures.position_curves",
    "positions_plot": "regard.look.pictures.matrices",
    "qkv_flow_diagram": "regard.look.pictures.attention_flow",
    "random_features_plot": "regard.look.pictures.random_features",
    "save": "regard.look.pictures.drawing.figures",
    "scaled_dot_product_diagram": "regard.look.pictures.architecture",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'regard.look' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
