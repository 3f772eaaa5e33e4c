"""The settings of attention by random features: the table [model.random_features] of a recipe.

Peng et al. 2021; F3. Earlier versions had these settings flat among the others of a model (`feature_map`, …). The flat
names are still read, and config.json of a model folder, whose format is fixed, still has them.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.attention.linear.feature_maps import MAPS, WHOLE
from regard.attention.linear.random_rows import KINDS
from regard.errors import unknown_name
from regard.settings import SettingError, ValueRule, check_fields, choice, number

TABLE = "random_features"
# The flat name of each setting, in the order of config.json.
FLAT_NAMES = {
    "exact_heads": "exact_heads",
    "features": "features",
    "feature_map": "map",
    "feature_cross_map": "cross_map",
    "feature_draw": "draw",
    "feature_norm": "norm",
    "feature_scale": "scale",
    "feature_sigma": "sigma",
    "feature_gate": "gate",
    "feature_redraw": "redraw",
    "feature_seed": "seed",
}


@dataclass(frozen=True, kw_only=True)
class RandomFeaturesConfig:
    """How random features estimate softmax attention, and which heads stay exact."""

    exact_heads: tuple[str, ...] = ()  # heads that stay exact, see exact_heads.py
    features: int | None = number(
        None, rule=ValueRule(least=1, most=2**16)
    )  # per query or key; 128 or the map's default
    map: str = choice("hyperbolic", MAPS)
    cross_map: str | None = choice(None, WHOLE)  # of cross-attention, if another
    draw: str = choice("orthogonal", KINDS)
    norm: bool = True  # scale queries and keys to length 1
    scale: bool = True  # learn a factor for each head and dimension
    sigma: float = number(1.0, rule=ValueRule(above=0, most=1e6))  # standard deviation of the random rows; F2
    gate: bool = False  # let the past fade, in the self-attention of a decoder
    redraw: int = number(0, rule=ValueRule(least=0, most=2**24))  # training steps between two draws; 0: never
    seed: int = number(0, rule=ValueRule(least=0, most=2**24))

    def __post_init__(self) -> None:
        check_fields(self, TABLE)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> RandomFeaturesConfig:
        """Return the config with these settings; an unknown one is an error."""
        known = tuple(field.name for field in dataclasses.fields(cls))
        for name in settings:
            if name not in known:
                raise SettingError(f"{TABLE}.{name}", unknown_name(f"setting of {TABLE}", name, known))
        return cls(**settings)

    def to_flat(self) -> dict[str, Any]:
        """Return the settings under their flat names, as config.json has them."""
        flat = {flat: getattr(self, name) for flat, name in FLAT_NAMES.items()}
        if self.sigma == 1:  # it came after the first version of the model folder
            del flat["feature_sigma"]
        return flat


DEFAULTS = RandomFeaturesConfig()


def nest_settings(settings: Mapping[str, Any], *, warn: bool, stacklevel: int = 3) -> dict[str, Any]:
    """Return settings of a model with flat names of random features moved into their table.

    The table is a dict, or a RandomFeaturesConfig where one was given; a flat name overrides it.
    """
    flat = {FLAT_NAMES[name]: value for name, value in settings.items() if name in FLAT_NAMES}
    if not flat:
        return dict(settings)
    if warn:
        names = ", ".join(f"{name} is {TABLE}.{FLAT_NAMES[name]}" for name in settings if name in FLAT_NAMES)
        warnings.warn(f"the settings of random features have a table: {names}", DeprecationWarning, stacklevel)
    nested = {name: value for name, value in settings.items() if name not in FLAT_NAMES}
    table = nested.get(TABLE, {})
    if isinstance(table, RandomFeaturesConfig):
        nested[TABLE] = dataclasses.replace(table, **flat)
    else:
        nested[TABLE] = {**table, **flat} if isinstance(table, Mapping) else table
    return nested


def flatten_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a model with the table of random features under its flat names, as config.json has them."""
    flat_names = {name: flat for flat, name in FLAT_NAMES.items()}
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= {flat_names[key]: part for key, part in value.items()} if name == TABLE else {name: value}
    return flat
