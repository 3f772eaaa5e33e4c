"""Position schemes: every scheme of the lectures, with one interface, `Position`; B1 to B8.

Attention by itself ignores the order of its input (B1). The schemes that encode it fall into four groups (B8):

|         | absolute: the position in the sequence        | relative: the distance to the query |
|---------|-----------------------------------------------|-------------------------------------|
| fixed   | `Sinusoidal`; the rejected `Fraction`, `Index` | `Rotary`, `Alibi`                   |
| learned | `Learned`                                     | `ShawRelative`, `T5Buckets`         |

Fixed schemes have no parameters and, except for `Fraction`, accept any position. `Learned` is limited to its trained
length; the learned relative schemes treat all far distances alike. `make_position` creates a scheme by its name.
`SinusoidalGrid` has sinusoids of two axes, for the patches of an image.
"""

from regard.positions.alibi import Alibi, slopes
from regard.positions.by_name import POSITIONS, SCHEMES, make_position, register_position, unregister_position
from regard.positions.grid import SinusoidalGrid
from regard.positions.interface import ModelSizes, Position
from regard.positions.learned import Learned
from regard.positions.rejected_ideas import Fraction, Index, fraction, index
from regard.positions.relative import ShawRelative, T5Buckets
from regard.positions.rotary import Interpolation, LlamaScaling, Rotary, Yarn
from regard.positions.sinusoids import Sinusoidal, distance_variance, inner_products, rotation, sinusoidal

__all__ = [
    "POSITIONS",
    "SCHEMES",
    "Alibi",
    "Fraction",
    "Index",
    "Interpolation",
    "Learned",
    "LlamaScaling",
    "ModelSizes",
    "Position",
    "Rotary",
    "ShawRelative",
    "Sinusoidal",
    "SinusoidalGrid",
    "T5Buckets",
    "Yarn",
    "distance_variance",
    "fraction",
    "index",
    "inner_products",
    "make_position",
    "register_position",
    "rotation",
    "sinusoidal",
    "slopes",
    "unregister_position",
]
