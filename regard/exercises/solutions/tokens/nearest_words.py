"""Solution of nearest-words."""

from torch import Tensor
from torch.nn import functional as F


def nearest(table: Tensor, word: int, count: int) -> list[int]:
    """Word vectors (V, d); return the `count` words most similar to `word` by cosine, the nearest first."""
    unit = F.normalize(table, dim=1)  # length 1, so that the dot product is the cosine
    cosines = unit @ unit[word]
    cosines[word] = -2  # less than any cosine
    return cosines.topk(count).indices.tolist()
