"""All pictures of `regard plot` that need no model, with their default settings, as `regard lectures` draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def lecture_pictures() -> dict[str, Callable[[], Figure]]:
    """Return the function that draws each picture, by the picture's name."""
    from regard.look import lecture_examples as examples
    from regard.look.pictures.architecture import architecture_diagram, multi_head_diagram, scaled_dot_product_diagram
    from regard.look.pictures.attention_flow import qkv_flow_diagram
    from regard.look.pictures.concepts.diagrams import sequence_tasks_diagram, two_attentions_diagram
    from regard.look.pictures.concepts.growth import growth_plot
    from regard.look.pictures.concepts.normalization import norms_plot
    from regard.look.pictures.concepts.position_schemes import position_schemes_plot
    from regard.look.pictures.concepts.scaling import scaling_plot
    from regard.look.pictures.concepts.three_heads import search_plot, three_heads_plot
    from regard.look.pictures.gradients import gradient_plot
    from regard.look.pictures.matrices import alignment_plot, mask_plot, one_hot_plot, positions_plot
    from regard.look.pictures.position_curves import position_products_plot, position_variance_plot
    from regard.look.pictures.random_features import random_features_plot
    from regard.positions.sinusoids import sinusoidal

    marine = examples.marine_alignment()
    return {
        "alignment": lambda: alignment_plot(marine.weights, marine.source, marine.target, made=marine.made),
        "positions": lambda: positions_plot(sinusoidal(100, 500)),
        "variance": position_variance_plot,
        "products": position_products_plot,
        "position-schemes": position_schemes_plot,
        "mask": lambda: mask_plot(examples.example_mask("causal", 12), title="Causal mask"),
        "one-hot": one_hot_plot,
        "gradients": gradient_plot,
        "sequence-tasks": sequence_tasks_diagram,
        "search": search_plot,
        "scaling": scaling_plot,
        "two-attentions": two_attentions_diagram,
        "architecture": architecture_diagram,
        "scaled-dot-product": scaled_dot_product_diagram,
        "multi-head": multi_head_diagram,
        "three-heads": three_heads_plot,
        "norms": norms_plot,
        "growth": growth_plot,
        "qkv-flow": qkv_flow_diagram,
        "random-features": random_features_plot,
    }
