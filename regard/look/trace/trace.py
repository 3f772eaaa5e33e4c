"""Everything that a model did with one text, as data: attention weights, candidates of each token, the beam's tree.

H4. Pages, plots and tests read only this, so a recorded trace can be shown without the model and without PyTorch. A
trace is checked when it is made or loaded; inconsistent data raises DataError. `file_format.py` has the file format,
regard-trace/1.

    L layers   H heads   G heads of keys and values   m queries (rows)   n keys (columns)   d width of a head's vector
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.errors import DataError, unknown_name
from regard.look.trace.attention_map import Map, shape_text
from regard.look.trace.search_steps import Step, Tree

if TYPE_CHECKING:
    from regard.look.pictures.drawing.figures import Picture

# The stack of blocks that the layers of each map belong to; a recurrent translator has a single attention layer, and
# a model that copies has one more, the pointer.
MAPS = {"enc_self": "encoder", "dec_self": "decoder", "cross": "decoder", "rnn": None, "pointer": None}


@dataclass(frozen=True)
class Model:
    """The model of a trace."""

    name: str
    kind: str
    layers: dict[str, int]  # number of layers of the encoder and the decoder, if there is one
    heads: int  # heads per layer; 0: no attention
    widths: dict[str, int]
    score: str | None = None  # the score function
    scale: float | None = None  # the factor of the score; None if the score is not a product


@dataclass(frozen=True)
class Token:
    """A token on an axis."""

    text: str
    word: int | None = None  # index of its word on the axis; None if it belongs to no word
    special: bool = False
    pad: bool = False


@dataclass(frozen=True)
class Axis:
    """The tokens along one side of a map, and the words that they form."""

    tokens: tuple[Token, ...]
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        previous = 0
        for i, word in enumerate(token.word for token in self.tokens):
            if word is None:
                continue
            if not 0 <= word < len(self.words):
                raise DataError(f"token {i} belongs to word {word}, but there are {len(self.words)} words")
            if word < previous:
                raise DataError(f"token {i} belongs to word {word}, but the token before it to word {previous}")
            previous = word

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Sentence:
    """A sentence of the source, with its first token and the one after its last."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Head:
    """A head of a map, or the mean over the heads of a layer (head None)."""

    layer: int
    head: int | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """Everything that a model did with one text.

    The axis `source` has the tokens that the encoder read, `target` those that the model wrote or was forced to write,
    and `read` the decoder's input: the token before each target token. Step i belongs to token i of the target.
    """

    model: Model
    axes: dict[str, Axis]
    maps: dict[str, Map]
    steps: tuple[Step, ...] = ()
    tree: Tree | None = None
    source: str | None = None
    output: str = ""
    search: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    best_head: Head | None = None  # of cross or rnn: the head that aligns best at the step that writes a token
    notes: tuple[str, ...] = ()  # remarks for the reader, e.g. that the model has no attention
    alignment: Map | None = None  # [1, 1, target, source]: the mean of the heads that align best together
    sentences: tuple[Sentence, ...] = ()  # of the source of a model that copies; what follows them is a question

    def __post_init__(self) -> None:
        for name, attention in self.maps.items():
            self._check_map(name, attention)
        if self.steps and ("target" not in self.axes or len(self.steps) != len(self.axes["target"])):
            tokens = len(self.axes["target"]) if "target" in self.axes else 0
            raise DataError(f"{len(self.steps)} steps for {tokens} target tokens: there must be one per token")
        if self.best_head is not None:
            shape = next((self.maps[name].weights.shape for name in ("cross", "rnn") if name in self.maps), (0, 0))
            layer, head = self.best_head.layer, self.best_head.head or 0
            if not (0 <= layer < shape[0] and 0 <= head < shape[1]):
                raise DataError(f"best_head is head {head} of layer {layer}, which no map to the source has")

        for i, sentence in enumerate(self.sentences):
            if "source" not in self.axes or not 0 <= sentence.start <= sentence.end <= len(self.axes["source"]):
                raise DataError(f"sentence {i} has tokens {sentence.start} to {sentence.end}, which the source has not")
        if self.alignment is not None:
            self._check_axes("alignment", self.alignment)
            if self.alignment.weights.shape[:2] != (1, 1):
                raise DataError(f"alignment: {shape_text(self.alignment.weights)} must be a single map")

    def _check_map(self, name: str, attention: Map) -> None:
        if name not in MAPS:
            raise DataError(unknown_name("map", name, tuple(MAPS)))
        self._check_axes(f"maps.{name}", attention)
        layers, heads = attention.weights.shape[:2]
        stack = MAPS[name]
        expected = (1, 1) if stack is None else (self.model.layers.get(stack, 0), self.model.heads)
        if (layers, heads) != expected:
            raise DataError(
                f"maps.{name}: {shape_text(attention.weights)} does not fit {expected[0]} layers of {expected[1]} heads"
            )

    def _check_axes(self, name: str, attention: Map) -> None:
        sides = attention.weights.shape[2:]
        for axis, length in zip((attention.query, attention.key), sides, strict=True):
            if axis not in self.axes:
                raise DataError(f"{name}: {unknown_name('axis', axis, tuple(self.axes))}")
            if len(self.axes[axis]) != length:
                tokens = len(self.axes[axis])
                raise DataError(f"{name}: {shape_text(attention.weights)} does not fit the {tokens} tokens of {axis}")

    def save(self, path: str | Path) -> Path:
        """Write the trace as .json or .json.gz."""
        from regard.look.trace.file_format import write_trace

        return write_trace(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Load a trace from a file; DataError with the position of the error if the file is not a valid trace."""
        from regard.look.trace.file_format import read_trace

        return read_trace(Path(path))

    def plot(
        self,
        path: str | Path | None = None,
        kind: str | None = None,
        *,
        which: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        level: Literal["word", "piece"] = "word",
    ) -> Path | Picture:
        """Draw the trace as PNG, SVG or PDF; the kind is alignment (default), heads, steps or tree (`plot_trace`).

        Without a path, return a picture that a notebook shows; `plot("heads")` is short for `plot(kind="heads")`.
        """
        from regard.look.pictures.drawing.figures import save_or_show
        from regard.look.pictures.traces import KINDS, plot_trace

        if path in KINDS and kind is None:
            path, kind = None, str(path)
        figure = plot_trace(self, kind or "alignment", which=which, layer=layer, head=head, level=level)
        return save_or_show(figure, path)

    def explore(self, path: str | Path | None = None, *, state: str = "", show: bool = True) -> Path:
        """Write the explorer page with this trace as one .html file and open it in the browser, without a server.

        Without a path, it is a temporary file; `state` as in `write_page`.
        """
        from regard.look.page.single_file import open_page

        return open_page([self], path, state, show)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Display in a notebook: the page in a frame, or a picture if HTML is not supported."""
        from regard.look.page.notebook import display_trace

        return display_trace(self)

    def _repr_html_(self) -> str:
        """Display in a notebook that asks for HTML alone: the page in a frame."""
        from regard.look.page.single_file import make_frame

        return make_frame([self])

    def __repr__(self) -> str:
        maps = (
            ", ".join(f"{name} {shape_text(attention.weights)}" for name, attention in self.maps.items())
            or "no attention"
        )
        return f"Trace({self.model.name!r}: {self.source or ''!r} -> {self.output!r}; {maps})"

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as JSON data."""
        from regard.look.trace.file_format import to_json

        return to_json(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Trace:
        """Return the trace of the JSON data that `to_dict` returns."""
        from regard.look.trace.file_format import from_json

        return from_json(content)
