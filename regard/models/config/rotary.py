"""The settings of rotary positions, for long contexts and for models of other libraries."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from regard.models.config.base import SIZE, Config
from regard.positions.rotary import LAYOUTS, SCALINGS, make_scaling
from regard.settings import SettingError, ValueRule, choice, number

ABOVE_ZERO = ValueRule(above=0, most=1e12)
PORTION = ValueRule(above=0, most=1)


@dataclass(frozen=True, kw_only=True)
class RotaryConfig(Config):
    """The settings of `position = "rotary"`; see regard.positions.Rotary."""

    rope_base: float = number(10000.0, rule=ABOVE_ZERO)  # the frequencies are base^(-2c/r)
    rope_layout: str = choice("halves", LAYOUTS)
    rope_fraction: float = number(1.0, rule=PORTION)  # of each head that is rotated
    rope_scaling: str = choice("none", SCALINGS)
    rope_factor: float = number(1.0, rule=ABOVE_ZERO)  # of every scaling
    rope_trained_length: int | None = number(None, rule=SIZE)  # of "llama3" and "yarn": the context before scaling
    rope_low: float = number(1.0, rule=ABOVE_ZERO)  # of "llama3"
    rope_high: float = number(4.0, rule=ABOVE_ZERO)
    rope_beta_fast: float = number(32.0, rule=ABOVE_ZERO)  # of "yarn"
    rope_beta_slow: float = number(1.0, rule=ABOVE_ZERO)
    rope_truncate: bool = True  # the bounds of "yarn" are whole numbers
    rope_attention_factor: float = number(1.0, rule=ABOVE_ZERO)  # of "yarn": multiplies sines and cosines

    def rotary_options(self) -> dict[str, Any]:
        """Return the options of `Rotary`."""
        return {
            "base": self.rope_base,
            "layout": self.rope_layout,
            "fraction": self.rope_fraction,
            "amplitude": self.rope_attention_factor,
            "scaling": make_scaling(
                self.rope_scaling,
                base=self.rope_base,
                factor=self.rope_factor,
                trained_length=self.rope_trained_length,
                low=self.rope_low,
                high=self.rope_high,
                fast=self.rope_beta_fast,
                slow=self.rope_beta_slow,
                truncate=self.rope_truncate,
            ),
        }

    def _check_rotary(self, position: str, head_width: int) -> None:
        """Raise SettingError if a setting has no effect, or does not fit the position scheme or the heads."""
        changed = [name for name in ROTARY if getattr(self, name) != DEFAULTS[name]]
        if position != "rotary":
            for name in changed:
                message = f"{name} is a setting of position = 'rotary', and position is {position!r}"
                raise SettingError(name, message, "position")
            return
        used = {"rope_base", "rope_layout", "rope_fraction", "rope_scaling", *USED[self.rope_scaling]}
        for name in changed:
            if name not in used:
                message = f"{name} has no effect with rope_scaling = {self.rope_scaling!r}"
                raise SettingError(name, message, "rope_scaling")
        if "rope_trained_length" in used and self.rope_trained_length is None:
            message = f"rope_scaling = {self.rope_scaling!r} needs rope_trained_length, the context before scaling"
            raise SettingError("rope_trained_length", message, "rope_scaling")
        width = int(head_width * self.rope_fraction)
        if self.rope_fraction != 1.0 and (width < 2 or width % 2):
            message = f"rope_fraction={self.rope_fraction} of heads of width {head_width} is not an even number"
            raise SettingError("rope_fraction", message)
        if self.rope_scaling == "yarn" and self.rope_base <= 1:
            raise SettingError("rope_base", f"yarn needs a rope_base above 1, got {self.rope_base}", "rope_scaling")
        if self.rope_scaling == "llama3" and self.rope_low >= self.rope_high:
            message = f"rope_low must be below rope_high, got {self.rope_low} and {self.rope_high}"
            raise SettingError("rope_low", message, "rope_high")


ROTARY = tuple(field.name for field in fields(RotaryConfig) if field.name.startswith("rope_"))
DEFAULTS = {field.name: field.default for field in fields(RotaryConfig)}
USED: dict[str, tuple[str, ...]] = {
    "none": (),
    "linear": ("rope_factor",),
    "llama3": ("rope_factor", "rope_trained_length", "rope_low", "rope_high"),
    "yarn": (
        *("rope_factor", "rope_trained_length", "rope_beta_fast", "rope_beta_slow", "rope_truncate"),
        "rope_attention_factor",
    ),
}
