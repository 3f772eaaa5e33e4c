"""The special tokens that a batch puts around the two texts of a pair."""

from __future__ import annotations

from dataclasses import dataclass

from regard.text.text_frame import TextFrame
from regard.text.tokenizers.special_tokens import DEFAULT, END, SpecialTokens


@dataclass(frozen=True)
class PairFrame:
    """The tokens around both sides, and the special tokens of the model. The defaults are those of this package.

    The input of a decoder is the start token, `before_target` and the target; its labels are `before_target`, the
    target and `after_target`. A sentence encoder reads the labels as a text.
    """

    before_source: tuple[int, ...] = ()
    after_source: tuple[int, ...] = (END,)
    before_target: tuple[int, ...] = ()
    after_target: tuple[int, ...] = (END,)
    special: SpecialTokens = DEFAULT

    @classmethod
    def of_translator(cls, frame: TextFrame, special: SpecialTokens, *, coded: bool = False) -> PairFrame:
        """Return the frame of a translation model; the sources of `coded` pairs begin with the code of a language."""
        before, after = frame.around_source(coded=coded)
        return cls(tuple(before), tuple(after), tuple(frame.before_target()), (special.end,), special)

    @classmethod
    def of_encoder(cls, frame: TextFrame, special: SpecialTokens) -> PairFrame:
        """Return the frame of a sentence encoder, which reads both sides alike."""
        before, after = map(tuple, frame.around_source())
        return cls(before, after, before, after, special)

    @property
    def source_tokens(self) -> int:
        """The number of tokens around a source."""
        return len(self.before_source) + len(self.after_source)

    @property
    def target_tokens(self) -> int:
        """The number of tokens around a target, among its labels."""
        return len(self.before_target) + len(self.after_target)

    @property
    def tokens(self) -> int:
        """The larger of both numbers."""
        return max(self.source_tokens, self.target_tokens)


OWN_FRAME = PairFrame()
