"""The types that a model may put together: attention layers, their caches, and their sources.

Attention   a layer that a block can use for self-attention or cross-attention
Cache       what a self-attention layer stores of the tokens so far
Source      what a cross-attention layer stores of the text it attends to, made by `project_source`
"""

from __future__ import annotations

from regard.attention.cache import KVCache, ProjectedSource, StaticCache, WindowCache
from regard.attention.linear.cache import FeatureCache, WholeText
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.mixed import MixedAttention, MixedCache
from regard.attention.linear.state import FeatureState
from regard.attention.multihead import MultiHeadAttention

Attention = MultiHeadAttention | RandomFeatureAttention | MixedAttention
Cache = KVCache | StaticCache | WindowCache | FeatureCache | MixedCache
Source = ProjectedSource | FeatureState | WholeText | MixedCache
