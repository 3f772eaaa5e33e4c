# The table of __init__.py for type checkers and editors; tests/look/test_names.py holds the two together.

from regard.look.attribution.attribution import (
    Attribution as Attribution,
    attribute as attribute,
    rank_agreement as rank_agreement,
)
from regard.look.attribution.picture import attribution_plot as attribution_plot
from regard.look.embeddings import principal_plane as principal_plane, word_table as word_table
from regard.look.heads.interventions import force_attention as force_attention, heads_off as heads_off
from regard.look.heads.statistics import (
    best_alignment_head as best_alignment_head,
    head_statistics as head_statistics,
    rollout as rollout,
)
from regard.look.inside.inside import inside_block as inside_block
from regard.look.inside.random_features import (
    compare_features as compare_features,
    feature_errors as feature_errors,
    jane_head as jane_head,
    read_head as read_head,
)
from regard.look.page.single_file import write_page as write_page
from regard.look.pictures.architecture import (
    architecture_diagram as architecture_diagram,
    multi_head_diagram as multi_head_diagram,
    scaled_dot_product_diagram as scaled_dot_product_diagram,
)
from regard.look.pictures.attention_flow import qkv_flow_diagram as qkv_flow_diagram
from regard.look.pictures.drawing.figures import save as save
from regard.look.pictures.gradients import gradient_norms as gradient_norms, gradient_plot as gradient_plot
from regard.look.pictures.matrices import (
    alignment_plot as alignment_plot,
    mask_plot as mask_plot,
    one_hot_plot as one_hot_plot,
    positions_plot as positions_plot,
)
from regard.look.pictures.position_curves import (
    position_products_plot as position_products_plot,
    position_variance_plot as position_variance_plot,
)
from regard.look.pictures.random_features import random_features_plot as random_features_plot
from regard.look.pictures.traces import plot_trace as plot_trace
from regard.look.recurrent import recurrent_states as recurrent_states
from regard.look.source import show_source as show_source
from regard.look.trace.from_weights import trace_maps as trace_maps
from regard.look.trace.inputs.input_trace import InputTrace as InputTrace
from regard.look.trace.trace import Trace as Trace
from regard.look.trace.tracing import trace_text as trace_text
from regard.look.trace.words import merge_words as merge_words
