# The table of __init__.py for type checkers and editors; tests/look/test_names.py holds the two together.

from regard.look.curves import (
    position_products_plot as position_products_plot,
    position_variance_plot as position_variance_plot,
)
from regard.look.diagrams import (
    architecture_diagram as architecture_diagram,
    multi_head_diagram as multi_head_diagram,
    scaled_dot_product_diagram as scaled_dot_product_diagram,
)
from regard.look.feature_plots import random_features_plot as random_features_plot
from regard.look.figures import save as save
from regard.look.flow import qkv_flow_diagram as qkv_flow_diagram
from regard.look.gradients import gradient_norms as gradient_norms, gradient_plot as gradient_plot
from regard.look.heads import force_attention as force_attention, heads_off as heads_off
from regard.look.inside import inside_block as inside_block
from regard.look.matrices import (
    alignment_plot as alignment_plot,
    mask_plot as mask_plot,
    one_hot_plot as one_hot_plot,
    positions_plot as positions_plot,
)
from regard.look.page import write_page as write_page
from regard.look.random_features import (
    compare_features as compare_features,
    feature_errors as feature_errors,
    jane_head as jane_head,
    read_head as read_head,
)
from regard.look.recorded import trace_maps as trace_maps
from regard.look.statistics import (
    best_alignment_head as best_alignment_head,
    head_statistics as head_statistics,
    rollout as rollout,
)
from regard.look.trace import Trace as Trace
from regard.look.trace_plots import plot_trace as plot_trace
from regard.look.tracing import trace_text as trace_text
from regard.look.words import merge_words as merge_words
