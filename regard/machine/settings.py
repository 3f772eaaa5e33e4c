"""regard's own environment variables: which ones there are, what they mean, and what they are set to."""

from __future__ import annotations

import os
from dataclasses import dataclass

from regard.errors import UsageError, unknown_name

PREFIX = "REGARD_"


@dataclass(frozen=True)
class Setting:
    """An environment variable; `values` lists what it may be set to, and is empty where anything goes."""

    meaning: str
    values: tuple[str, ...] = ()
    default: str | None = None


SETTINGS = {
    "REGARD_GRAPHS": Setting(
        "0 decodes on a GPU step by step with modules, without the GPU decoder's kernels and without captured CUDA "
        "graphs. Use it for comparison if you suspect an error there. `regard.kernels.unfuse(model)` also replaces "
        "fused layers by plain ones.",
        values=("0", "1"),
        default="1",
    ),
    "REGARD_NATIVE": Setting(
        "0 turns the C kernels for the CPU off, as if there were no C compiler. This is slower; the text is the same.",
        values=("0", "1"),
        default="1",
    ),
    "REGARD_MEETING": Setting(
        "The file through which the processes of `regard train --nproc` find each other. The launcher sets it for the "
        "processes it starts; do not set it yourself."
    ),
    "REGARD_JOB_WORKER": Setting(
        "The number of a worker process of `regard translate --workers N`. The job sets it for the processes it "
        "starts; do not set it yourself."
    ),
}


def setting(name: str) -> str | None:
    """Return the value of one of regard's environment variables, or its default; UsageError for a wrong value."""
    if name not in SETTINGS:
        raise UsageError(unknown_name("environment variable", name, tuple(SETTINGS)))
    known = SETTINGS[name]
    value = os.environ.get(name, known.default)
    if known.values and value not in known.values:
        raise UsageError(unknown_name(f"value of the environment variable {name}:", value, known.values))
    return value


def check_environment() -> None:
    """Check every variable of the environment whose name starts with REGARD_; UsageError for an unknown one."""
    for name in os.environ:
        if name.startswith(PREFIX):
            setting(name)


def launched_by_torchrun() -> bool:
    """Whether this is one of several processes, which torchrun or `regard train --nproc` has started."""
    return "RANK" in os.environ
