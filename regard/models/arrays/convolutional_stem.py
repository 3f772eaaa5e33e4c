"""A convolutional stem: an image becomes one vector per patch by a few small convolutions.

Xiao et al. 2021, "Early Convolutions Help Transformers See Better". The vectors of the patches know their neighbours'
pixels before attention begins, which helps where there are few images.

    B batch   C channels   H height   W width   P pixels of a patch's side   n patches   p width of the vectors
"""

from __future__ import annotations

from torch import Tensor, nn


def make_stem(stem: str, *, channels: int, patch: int, dim: int) -> nn.Module:
    """Return the layers that turn pixels into one vector per patch: one linear layer, or convolutions."""
    if stem == "patches":
        return nn.Linear(channels * patch**2, dim)
    return ConvolutionalStem(channels=channels, patch=patch, dim=dim, pooled=stem == "pooled-convolutions")


class ConvolutionalStem(nn.Module):
    """Halve the image until a patch is a pixel; at each size there are two convolutions, and a linear layer follows.

    The last convolutions have `dim` channels; each earlier size has half as many. Normalization is over all channels
    and pixels of an image (Wu and He 2018, with one group), so that images of a batch do not influence each other.
    The first convolution of a size halves the image; with `pooled`, both see all pixels, and the largest of each 2 x 2
    is kept after them, as in the CNN of a hybrid (Dosovitskiy et al. 2021, section 3.1).
    """

    def __init__(self, *, channels: int, patch: int, dim: int, pooled: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before, halvings = channels, patch.bit_length() - 1
        for i in range(halvings):
            after = dim // 2 ** (halvings - 1 - i)
            for inputs, stride in ((before, 1 if pooled else 2), (after, 1)):
                layers += [nn.Conv2d(inputs, after, 3, stride=stride, padding=1), nn.GroupNorm(1, after), nn.GELU()]
            if pooled:
                layers.append(nn.MaxPool2d(2))
            before = after
        self.layers = nn.Sequential(*layers, nn.Conv2d(before, dim, 1))
        self.pooled = pooled

    @property
    def traits(self) -> frozenset[str]:
        """The name of this module, and whether it pools; see regard.traits."""
        return frozenset({"convolutional-stem", *(["pooled"] if self.pooled else [])})

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, n, p), row by row."""
        return self.layers(images).flatten(2).transpose(1, 2)
