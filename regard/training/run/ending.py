"""The end of a run: which weights were kept and why, and what to do with them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.models.folder import read_config
from regard.tasks.task import Task
from regard.tasks.validation import Measure

Scores = Mapping[str, Any]


def recorded_validations(folder: Path) -> dict[int, Scores]:
    """Return the scores of the validations in metrics.jsonl, by step; lines that cannot be read are skipped."""
    try:
        lines = (folder / "metrics.jsonl").read_bytes().splitlines()
    except OSError:
        return {}
    validations: dict[int, Scores] = {}
    for line in lines:
        try:
            record = json.loads(line)
            if record["kind"] == "validation":
                validations[int(record["step"])] = record
        except (ValueError, KeyError, TypeError):
            continue
    return validations


def recorded_rank(folder: Path, step: int, measure: Measure) -> float | None:
    """Return the rank of a recorded validation; None if there is no such record.

    A checkpoint stores the rank of the best model too, but one of an earlier version may have ranked it by BLEU.
    """
    try:
        scores = recorded_validations(folder)[step]
        return float(step) if measure.newest else measure.rank(scores)
    except (KeyError, ValueError, TypeError):
        return None


def ending_lines(folder: Path, task: Task, measure: Measure) -> list[str]:
    """Say which step is in the model folder, by which measure, and which commands use it."""
    commands = [f"  {line}" for line in task.usage.replace("FOLDER", shlex.quote(str(folder))).splitlines()]
    return [kept_line(read_config(folder).get("scores", {}), recorded_validations(folder), measure), "next:", *commands]


def kept_line(kept: Scores, validations: Mapping[int, Scores], measure: Measure) -> str:
    """Say which of the validated models was kept, with its value beside that of the last step."""
    is_kept = {step: all(scores.get(key) == kept[key] for key in kept) for step, scores in validations.items()}
    step = next((step for step in sorted(is_kept, reverse=measure.newest) if is_kept[step]), None)
    name = "the average of the last checkpoints" if step is None else f"step {step}"
    try:
        best = "lowest" if measure.lower_is_better else "highest"
        reason = f"the {best} of {len(validations) + (step is None)} validations"
        if measure.newest:
            reason = "the last one"
        elif len(validations) == 1 and step is not None:
            reason = "the only validation"
        line = f"kept: {name} with {measure.describe(kept)}, {reason}"
        last = max(validations, default=None)
        if last is not None and last != step:
            line += f"; the last step, {last}, had {measure.describe(validations[last])}"
    except (KeyError, ValueError, TypeError):  # scores of an earlier version
        return f"kept: {name}"
    return line + (f" ({measure.why})" if measure.why else "")
