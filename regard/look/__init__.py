"""See it: pictures of weights, masks and positions, the diagrams of the lectures, and the colours that all share."""

from regard.look.curves import position_products_plot, position_variance_plot
from regard.look.diagrams import architecture_diagram, multi_head_diagram, scaled_dot_product_diagram
from regard.look.figures import save
from regard.look.flow import qkv_flow_diagram
from regard.look.gradients import gradient_norms, gradient_plot
from regard.look.matrices import alignment_plot, mask_plot, one_hot_plot, positions_plot

__all__ = [
    "alignment_plot",
    "architecture_diagram",
    "gradient_norms",
    "gradient_plot",
    "mask_plot",
    "multi_head_diagram",
    "one_hot_plot",
    "position_products_plot",
    "position_variance_plot",
    "positions_plot",
    "qkv_flow_diagram",
    "save",
    "scaled_dot_product_diagram",
]
