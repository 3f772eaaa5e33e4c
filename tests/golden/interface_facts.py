"""What regard offers: public names with their signatures, and the help text of every command."""

from __future__ import annotations

import inspect
import io
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cached_property
from types import ModuleType
from typing import Any

from torch import nn

import regard
from regard.cli import main

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
MODULE = re.compile(r"\bregard(\.\w+)*\.(?=\w)")  # where a class of a default value is defined
COMMAND = re.compile(r"│ ([a-z][\w-]*) ")


def name_facts() -> dict[str, Any]:
    modules = {"regard": regard, "regard.look": regard.look, "regard.positions": regard.positions}
    modules["regard.masks"] = regard.masks
    facts: dict[str, Any] = {}
    for path, module in modules.items():
        for name in public_names(module):
            facts[f"{path}.{name}"] = described(getattr(module, name))
    return facts


def public_names(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    return sorted(listed if listed is not None else (name for name in dir(module) if not name.startswith("_")))


def described(value: Any) -> Any:
    """The signature of a function; of a class the public methods too; of anything else its value."""
    if isinstance(value, ModuleType):
        return "module"
    if inspect.isclass(value):
        return {"class": signature(value), **dict(methods(value))}
    if callable(value):
        return signature(value)
    return "version" if value is regard.__version__ else repr(value)


def methods(cls: type) -> Iterator[tuple[str, str]]:
    """The public methods and properties that regard, and not PyTorch, gives a class."""
    for name, member in sorted(inspect.getmembers_static(cls)):
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)
        if name.startswith("_") and name != "__call__":
            continue
        if not owner.__module__.startswith("regard") or (hasattr(nn.Module, name) and name != "forward"):
            continue
        if isinstance(member, staticmethod | classmethod) or inspect.isfunction(member):
            yield f".{name}", signature(getattr(cls, name))
        elif isinstance(member, property | cached_property):
            yield f".{name}", "property"


def signature(function: Any) -> str:
    """Parameters and defaults without annotations, which name internal types."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "no signature"
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found.parameters.values()]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return MODULE.sub("", ADDRESS.sub("", text))


def help_facts() -> dict[str, Any]:
    """The help of `regard`, of its commands, and of theirs: each names those below it."""
    facts: dict[str, Any] = {}
    waiting = [("regard",)]
    while waiting:
        command = waiting.pop(0)
        text = help_of(command)
        facts[" ".join([*command, "--help"])] = [line.rstrip() for line in text.strip("\n").split("\n")]
        waiting += [(*command, name) for name in commands_in(text)]
    return facts


def help_of(command: tuple[str, ...]) -> str:
    """What `regard COMMAND --help` prints, in this process."""
    output, arguments = io.StringIO(), sys.argv
    sys.argv = [*command, "--help"]
    try:
        with redirect_stdout(output):
            main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{' '.join(command)} --help ended with exit code {end.code}") from end
    finally:
        sys.argv = arguments
    return output.getvalue()


def commands_in(text: str) -> list[str]:
    """The names in the panel of commands."""
    _, _, panel = text.partition("╭─ Commands")
    lines = panel.partition("╰")[0].splitlines()
    return [match[1] for line in lines if (match := COMMAND.match(line))]
