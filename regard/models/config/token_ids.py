"""The special tokens of a model, which an imported model keeps as its tokenizer numbers them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from regard.models.config.base import SIZE, TOKEN, Config
from regard.settings import SettingError, number
from regard.text.tokenizers.special_tokens import END, PAD, START, UNKNOWN, SpecialTokens

MAX_IDS = 64  # of a setting with several tokens


@dataclass(frozen=True, kw_only=True)
class TokenConfig(Config):
    """The special tokens beside `pad_id`. The defaults are those of regard's own tokenizers."""

    unknown_id: int | None = number(UNKNOWN, rule=TOKEN)  # None: the tokenizer has none
    start_id: int = number(START, rule=TOKEN)
    end_ids: tuple[int, ...] = number((END,), rule=TOKEN)
    barred_ids: tuple[int, ...] = number((PAD, START), rule=TOKEN)  # never chosen
    tokenizer_size: int | None = number(None, rule=SIZE)  # None: every row of the output has a token

    @property
    def special_tokens(self) -> SpecialTokens:
        return SpecialTokens(
            self.pad_id, self.unknown_id, self.start_id, self.end_ids, self.barred_ids, self.tokenizer_size
        )

    def _check_tokens(self, vocabulary: int) -> None:
        """Raise SettingError unless a vocabulary of this size has these tokens."""
        if not self.end_ids:
            raise SettingError("end_ids", "end_ids must contain at least one token")
        for name in ("end_ids", "barred_ids"):
            if len(getattr(self, name)) > MAX_IDS:
                raise SettingError(name, f"{name} must contain at most {MAX_IDS} tokens")
        if self.tokenizer_size is not None and self.tokenizer_size > vocabulary:
            message = f"tokenizer_size={self.tokenizer_size} is more than the vocabulary of {vocabulary}"
            raise SettingError("tokenizer_size", message)
        size = vocabulary if self.tokenizer_size is None else self.tokenizer_size
        for name in TOKEN_IDS:
            value = getattr(self, name)
            if name == "tokenizer_size" or value == DEFAULTS[name]:  # a tiny vocabulary may lack the defaults
                continue
            tokens = value if isinstance(value, tuple) else () if value is None else (value,)
            if wrong := [token for token in tokens if token >= size]:
                raise SettingError(name, f"{name} has the token {wrong[0]}, but there are tokens 0 to {size - 1}")


TOKEN_IDS = ("unknown_id", "start_id", "end_ids", "barred_ids", "tokenizer_size")
DEFAULTS = {field.name: field.default for field in fields(TokenConfig)}
