"""Comparison of recorded with computed facts, exactly or with a tolerance."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

RELATIVE, ABSOLUTE = 1e-4, 1e-5
# Facts that are compared more loosely in another environment, by a part of their name.
LOOSE = {"transformer-bf16": 1e-2, "int8": 1e-1}  # a last bit may change how a number is rounded
# Facts that are compared in the same environment only: the choices of models that have hardly learnt anything.
ONLY_EXACT = ("chosen head", "bleu", "chrf")
# Facts that are never compared to the last bit: decoding may lay the weights out anew, and commands round.
ROUNDED = ("regard.load", "command line")
ROUNDING = 2e-4
NUMBER = re.compile(r"-?0x[01](\.[0-9a-f]+)?p[+-]\d+|-?inf|nan")
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
CHECKSUM = "sha256:"


def exact(number: float | Tensor) -> str:
    """A number to its last bit."""
    return float(number.detach() if isinstance(number, Tensor) else number).hex()


def with_exact_numbers(value: Any) -> Any:
    """The same JSON with each fraction to its last bit."""
    if isinstance(value, dict):
        return {name: with_exact_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_exact_numbers(part) for part in value]
    return exact(value) if isinstance(value, float) else value


def checksum(*contents: bytes) -> str:
    """A checksum of bytes, marked as one."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(len(content).to_bytes(8, "little") + content)
    return CHECKSUM + digest.hexdigest()[:24]


def tensor_checksum(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of named tensors: names, types, shapes and bytes."""
    parts = []
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.detach().cpu().contiguous()
        data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        parts += [f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), data]
    return checksum(*parts)


def compare(name: str, recorded: Any, computed: Any, *, exact: bool) -> list[str]:
    """A line for each difference: the fact's name and both values."""
    if name.startswith("help"):
        return list(_compare_help(name, recorded, computed, exact=exact))
    return list(_compare(name, recorded, computed, exact=exact))


def count_facts(facts: Any) -> int:
    """How many values there are."""
    children = facts.values() if isinstance(facts, dict) else facts if isinstance(facts, list) else None
    return 1 if children is None else sum(map(count_facts, children))


def _compare(name: str, recorded: Any, computed: Any, *, exact: bool) -> Iterator[str]:
    if not exact and name.endswith(ONLY_EXACT):
        return
    if isinstance(recorded, dict) and isinstance(computed, dict):
        yield from _compare_keys(name, recorded, computed)
        for key in recorded:
            if key in computed:
                yield from _compare(f"{name} > {key}", recorded[key], computed[key], exact=exact)
    elif isinstance(recorded, list) and isinstance(computed, list) and len(recorded) == len(computed):
        for place, (before, now) in enumerate(zip(recorded, computed, strict=True), start=1):
            yield from _compare(f"{name} > {place}", before, now, exact=exact)
    elif _is_number(recorded) and _is_number(computed):
        yield from _compare_numbers(name, float.fromhex(recorded), float.fromhex(computed), exact=exact)
    elif isinstance(recorded, str) and recorded.startswith(CHECKSUM) and not exact:
        return
    elif recorded != computed:
        yield f"{name}: recorded {recorded!r}, now {computed!r}"


def _compare_keys(name: str, recorded: Iterable[str], computed: Iterable[str]) -> Iterator[str]:
    recorded, computed = list(recorded), list(computed)
    yield from (f"{name} > {key}: recorded, now missing" for key in recorded if key not in computed)
    yield from (f"{name} > {key}: new, not recorded" for key in computed if key not in recorded)


def _compare_numbers(name: str, recorded: float, computed: float, *, exact: bool) -> Iterator[str]:
    rounded = any(part in name for part in ROUNDED)
    if exact and not rounded:
        same, how = recorded.hex() == computed.hex(), "to the last bit"
    else:
        loose = (tolerance for part, tolerance in LOOSE.items() if part in name and not exact)
        relative = next(loose, RELATIVE)
        absolute = ROUNDING if rounded else ABSOLUTE
        same = math.isclose(recorded, computed, rel_tol=relative, abs_tol=absolute) or recorded.hex() == computed.hex()
        how = f"within {relative:g}"
    if not same:
        yield (
            f"{name}: recorded {recorded!r} ({recorded.hex()}), now {computed!r} ({computed.hex()}), not equal {how}"
        )


def _compare_help(
    name: str, recorded: dict[str, list[str]], computed: dict[str, list[str]], *, exact: bool
) -> Iterator[str]:
    yield from _compare_keys(name, recorded, computed)
    for command in recorded:
        if command not in computed:
            continue
        before, now = recorded[command], computed[command]
        if not exact:  # another version of Typer lays the text out differently
            before, now = (sorted(set(OPTION.findall("\n".join(text)))) for text in (before, now))
        if before != now:
            yield f"{name} > {command}:"
            yield from (f"    - {line}" for line in before if line not in now)
            yield from (f"    + {line}" for line in now if line not in before)
            if sorted(before) == sorted(now):
                yield "    the same lines in another order"


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and NUMBER.fullmatch(value) is not None
