"""The recipes of small models."""

from ..small_recipes import make_recipe as make_recipe
