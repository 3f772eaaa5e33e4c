"""Trainings that end in time: at the deadline they stop, and the best model so far counts."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import regard
from regard.errors import StoppedError
from regard.models.folder import read_config
from regard.training.run.training_run import Run


def train_until(deadline: float | None, recipe: Any, *, out: Path, **options: Any) -> tuple[Run, int]:
    """Train as `regard.train` does, until a time in seconds since 1970; return the run and the steps that it took.

    The run is that of the best model so far, so there must have been a validation before the deadline.
    """
    timer = None
    if deadline is not None:
        timer = threading.Timer(max(1.0, deadline - time.time()), os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()
    try:
        run = regard.train(recipe, out=out, **options)
    except StoppedError:
        run = Run(out, read_config(out).get("scores", {}))
    finally:
        if timer is not None:
            timer.cancel()
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return run, max((json.loads(line).get("step", 0) for line in lines), default=0)


def over(deadline: float | None) -> bool:
    """Whether the time is over."""
    return deadline is not None and time.time() >= deadline
