"""What a model did with one text, as data: who looked at whom, what it chose from, the tree of its beam.

H4. Pages, plots and tests read this and nothing else, so what was recorded once can be shown without the model, and
without PyTorch. A trace that exists is a sound one: what does not fit together is refused when it is made or loaded.
`trace_file.py` has the format, regard-trace/1.

    L layers   H heads   G heads of keys and values   m queries (rows)   n keys (columns)   d width of a head's vector
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, unknown_name
from regard.look.trace.search_steps import Step, Tree

# Each map, and the stack of blocks that its layers belong to; a recurrent translator has one attention.
MAPS = {"enc_self": "encoder", "dec_self": "decoder", "cross": "decoder", "rnn": None}
LARGEST_JSON = 4096  # numbers of an array that is written as text; larger ones are float16
TOLERANCE = {np.dtype(np.float32): 1e-5, np.dtype(np.float16): 2e-3}  # of a row's sum
THUMBNAIL = 32  # cells of a thumbnail's side at most


@dataclass(frozen=True)
class Model:
    """Whose trace it is."""

    name: str
    kind: str
    layers: dict[str, int]  # of encoder and decoder, those that there are
    heads: int  # of each layer's attention; 0: it has none
    widths: dict[str, int]
    score: str | None = None  # how queries and keys are compared
    scale: float | None = None  # what the score is multiplied by; None where the score is no product


@dataclass(frozen=True)
class Token:
    """A place on an axis."""

    text: str
    word: int | None = None  # its place in the axis' words; None: it belongs to none
    special: bool = False
    pad: bool = False


@dataclass(frozen=True)
class Axis:
    """The tokens along one side of a map, and the words that they make."""

    tokens: tuple[Token, ...]
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        before = 0
        for i, word in enumerate(token.word for token in self.tokens):
            if word is None:
                continue
            if not 0 <= word < len(self.words):
                raise DataError(f"token {i} belongs to word {word}, and there are {len(self.words)} words")
            if word < before:
                raise DataError(f"token {i} belongs to word {word}, and the one before it to word {before}")
            before = word

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, eq=False)
class Map:
    """Attention weights [L, H, m, n] between two axes; row i was used when token i of the query axis was produced.

    The mask [m, n] says where a query may look; without one it may look everywhere. Weights made by random features
    are estimates, whose rows need not sum to one. float16 numbers are those of a large map that was saved.
    """

    query: str  # names of axes
    key: str
    weights: NDArray[Any]
    mask: NDArray[Any] | None = None
    random_features: bool = False
    thumbnails: NDArray[Any] | None = None  # uint8 [L, H, up to 32, up to 32], of large maps
    q: NDArray[Any] | None = None  # [L, H, m, d]
    k: NDArray[Any] | None = None  # [L, G, n, d]
    v: NDArray[Any] | None = None  # [L, G, n, ·]

    def __post_init__(self) -> None:
        weights = self._numbers("weights")
        if not weights.size:
            raise DataError(f"weights of shape {shown(weights)} hold no number")
        self._check_mask(weights)
        if not self.random_features:
            self._check_rows(weights)
        self._check_vectors(weights)
        self._check_thumbnails(weights)

    def _numbers(self, name: str) -> NDArray[Any]:
        """A field as four-dimensional float16 or float32, finite."""
        numbers = np.asarray(getattr(self, name))
        numbers = numbers if numbers.dtype == np.float16 else numbers.astype(np.float32)
        if numbers.ndim != 4:
            raise DataError(f"{name} must be [layer, head, token, token or width], got the shape {shown(numbers)}")
        if not np.isfinite(numbers).all():
            raise DataError(f"{name} hold a number that is not finite")
        object.__setattr__(self, name, numbers)
        return numbers

    def _check_mask(self, weights: NDArray[Any]) -> None:
        if self.mask is None:
            return
        mask = np.asarray(self.mask)
        if mask.shape != weights.shape[2:]:
            raise DataError(f"the mask has the shape {shown(mask)}, its map {shown(weights)}")
        if not np.isin(mask, (0, 1)).all():
            raise DataError("the mask must be 1 where a query may look and 0 elsewhere")
        mask = mask.astype(bool)
        object.__setattr__(self, "mask", mask)
        if (wrong := np.argwhere((weights != 0) & ~mask)).size:
            raise DataError(f"{place(wrong[0])} is not 0, and the mask bars it")

    def _check_rows(self, weights: NDArray[Any]) -> None:
        if (wrong := np.argwhere(weights < 0)).size:
            raise DataError(f"{place(wrong[0])} is below 0")
        sums = weights.sum(-1, dtype=np.float64)  # [L, H, m]
        wanted: NDArray[Any] = np.ones(sums.shape[2]) if self.mask is None else np.asarray(self.mask.any(-1))  # [m]
        wrong = np.argwhere(np.abs(sums - wanted) > TOLERANCE[weights.dtype])
        if wrong.size:
            at = tuple(wrong[0])
            raise DataError(f"{place(wrong[0])} sums to {sums[at]:.6f} and not to {int(wanted[at[2]])}")

    def _check_vectors(self, weights: NDArray[Any]) -> None:
        layers, heads, m, n = weights.shape
        for name, tokens in (("q", m), ("k", n), ("v", n)):
            if getattr(self, name) is None:
                continue
            groups = self._numbers(name).shape[1]
            shape = getattr(self, name).shape
            shared = groups == heads if name == "q" else groups > 0 and heads % groups == 0
            if (shape[0], shape[2]) != (layers, tokens) or not shared:
                raise DataError(f"{name} has the shape {shown(shape)}, which does not fit a map of {shown(weights)}")
        if self.q is not None and self.k is not None and self.q.shape[3] != self.k.shape[3]:
            raise DataError(f"q and k have vectors of different widths, {self.q.shape[3]} and {self.k.shape[3]}")

    def _check_thumbnails(self, weights: NDArray[Any]) -> None:
        if weights.size <= LARGEST_JSON and self.thumbnails is None:
            return
        made = make_thumbnails(weights)
        if self.thumbnails is None:
            object.__setattr__(self, "thumbnails", made)
            return
        given = np.asarray(self.thumbnails)
        # A weight that was rounded to float16 may be shown one shade off.
        if given.shape != made.shape or np.abs(given.astype(np.float32) - made).max() > 1:
            raise DataError(f"the thumbnails, of shape {shown(given)}, are not those of the weights")
        object.__setattr__(self, "thumbnails", given.astype(np.uint8))


@dataclass(frozen=True)
class Head:
    """A head of a map, or the mean over the heads of a layer (head None)."""

    layer: int
    head: int | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """What a model did with one text.

    Axes: `source` is what it read to translate, `target` what it wrote or was led along, `read` what the decoder had
    read before each of those. Step i is about token i of the target.
    """

    model: Model
    axes: dict[str, Axis]
    maps: dict[str, Map]
    steps: tuple[Step, ...] = ()
    tree: Tree | None = None
    source: str | None = None
    output: str = ""
    search: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    best_head: Head | None = None  # of cross or rnn: the one that aligns
    notes: tuple[str, ...] = ()  # what a reader should know, such as that the model has no attention

    def __post_init__(self) -> None:
        for name, one in self.maps.items():
            self._check_map(name, one)
        if self.steps and ("target" not in self.axes or len(self.steps) != len(self.axes["target"])):
            tokens = len(self.axes["target"]) if "target" in self.axes else 0
            raise DataError(f"{len(self.steps)} steps for {tokens} tokens of the target: each has one")
        if self.best_head is not None:
            shape = next((self.maps[name].weights.shape for name in ("cross", "rnn") if name in self.maps), (0, 0))
            layer, head = self.best_head.layer, self.best_head.head or 0
            if not (0 <= layer < shape[0] and 0 <= head < shape[1]):
                raise DataError(f"best_head is head {head} of layer {layer}, which no map to the source has")

    def _check_map(self, name: str, one: Map) -> None:
        if name not in MAPS:
            raise DataError(unknown_name("map", name, tuple(MAPS)))
        layers, heads, *sides = one.weights.shape
        for axis, length in zip((one.query, one.key), sides, strict=True):
            if axis not in self.axes:
                raise DataError(f"maps.{name}: {unknown_name('axis', axis, tuple(self.axes))}")
            if len(self.axes[axis]) != length:
                tokens = len(self.axes[axis])
                raise DataError(f"maps.{name}: {shown(one.weights)} does not fit the {tokens} tokens of {axis}")
        stack = MAPS[name]
        wanted = (1, 1) if stack is None else (self.model.layers.get(stack, 0), self.model.heads)
        if (layers, heads) != wanted:
            raise DataError(f"maps.{name}: {shown(one.weights)} does not fit {wanted[0]} layers of {wanted[1]} heads")

    def save(self, path: str | Path) -> Path:
        """Write it as .json, or packed as .json.gz."""
        from regard.look.trace.file_format import write_trace

        return write_trace(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Trace:
        """The trace in a file; a DataError that says what is wrong and where if it is no sound one."""
        from regard.look.trace.file_format import read_trace

        return read_trace(Path(path))

    def plot(
        self,
        path: str | Path,
        kind: str = "alignment",
        *,
        which: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        level: Literal["word", "piece"] = "word",
    ) -> Path:
        """A picture as PNG, SVG or PDF: alignment, heads, steps or tree (`plot_trace`)."""
        from regard.look.pictures.figures import save
        from regard.look.pictures.traces import plot_trace

        return save(plot_trace(self, kind, which=which, layer=layer, head=head, level=level), path)

    def explore(self, path: str | Path | None = None, *, state: str = "", show: bool = True) -> Path:
        """Write the page with this trace as one .html file, and open it in the browser; no server is needed.

        Without a path it is a temporary file; `state` as in `write_page`.
        """
        from regard.look.page.single_file import open_page

        return open_page([self], path, state, show)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """How notebooks show it: the page in a frame, or a picture where they show no HTML."""
        from regard.look.page.notebook import display_trace

        return display_trace(self)

    def __repr__(self) -> str:
        maps = ", ".join(f"{name} {shown(one.weights)}" for name, one in self.maps.items()) or "no attention"
        return f"Trace({self.model.name!r}: {self.source or ''!r} -> {self.output!r}; {maps})"

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        from regard.look.trace.file_format import to_json

        return to_json(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Trace:
        """The trace that `to_dict` gave."""
        from regard.look.trace.file_format import from_json

        return from_json(content)


def make_thumbnails(weights: NDArray[Any]) -> NDArray[np.uint8]:
    """[L, H, m, n] -> [L, H, up to 32, up to 32]: the largest weight of each part, from 0 to 255."""
    for side in (2, 3):
        length = weights.shape[side]
        if length > THUMBNAIL:
            starts = np.arange(THUMBNAIL) * length // THUMBNAIL
            weights = np.maximum.reduceat(weights, starts, axis=side)
    return np.rint(np.clip(weights.astype(np.float32), 0, 1) * 255).astype(np.uint8)


def unit_rows(weights: NDArray[Any]) -> NDArray[np.float32]:
    """Rounded weights, in float32, scaled so that rows sum to one again; rows of zeros stay."""
    wide = weights.astype(np.float64)
    sums = wide.sum(-1, keepdims=True)
    return (wide / np.where(sums > 0, sums, 1.0)).astype(np.float32)


def shown(shape: NDArray[Any] | tuple[int, ...]) -> str:
    """A shape as messages have it."""
    return str(list(shape if isinstance(shape, tuple) else shape.shape))


def place(index: NDArray[Any]) -> str:
    """A row or a weight as messages have it."""
    names = ("layer", "head", "row", "column")
    return ", ".join(f"{name} {i}" for name, i in zip(names, index.tolist(), strict=False))
