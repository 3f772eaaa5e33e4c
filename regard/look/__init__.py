"""See it: traces of what models do, pictures of weights, masks and positions, and the colours that all share.

Only a table of the public names; each is imported when it is first used, so that a trace can be read without PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    # traces
    "Trace": "regard.look.trace",
    "trace_text": "regard.look.tracing",
    "trace_maps": "regard.look.recorded",
    "heads_off": "regard.look.heads",
    "force_attention": "regard.look.heads",
    "inside_block": "regard.look.inside",
    "write_page": "regard.look.page",
    "merge_words": "regard.look.words",
    "head_statistics": "regard.look.statistics",
    "rollout": "regard.look.statistics",
    "best_alignment_head": "regard.look.statistics",
    "compare_features": "regard.look.random_features",
    "feature_errors": "regard.look.random_features",
    "jane_head": "regard.look.random_features",
    "read_head": "regard.look.random_features",
    # pictures
    "plot_trace": "regard.look.trace_plots",
    "alignment_plot": "regard.look.matrices",
    "architecture_diagram": "regard.look.diagrams",
    "gradient_norms": "regard.look.gradients",
    "gradient_plot": "regard.look.gradients",
    "mask_plot": "regard.look.matrices",
    "multi_head_diagram": "regard.look.diagrams",
    "one_hot_plot": "regard.look.matrices",
    "position_products_plot": "regard.look.curves",
    "position_variance_plot": "regard.look.curves",
    "positions_plot": "regard.look.matrices",
    "qkv_flow_diagram": "regard.look.flow",
    "random_features_plot": "regard.look.feature_plots",
    "save": "regard.look.figures",
    "scaled_dot_product_diagram": "regard.look.diagrams",
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
