"""Make the scenes of the Lecture tab: record their traces and write them beside the page.

    python scripts/make_scenes.py

web/scenes.toml contains the scenes; the traces are recorded with the shipped models. Run it when either changes.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from regard.api.model_names import shipped_models
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.look.trace.trace import Trace
from regard.look.trace.tracing import trace_text
from regard.tasks.loading import load

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "web" / "scenes.toml"
TARGET = ROOT / "regard" / "look" / "page" / "static" / "scenes"
TABS = ("alignment", "heads", "inside", "decode", "compare", "lab", "positions", "features")
FIELDS = ("tag", "title", "question", "choices", "answer", "state", "trace", "notes")


def read_scenes(path: Path = SOURCE) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Read the scenes in the format of the page, and the traces that they need."""
    content = tomllib.loads(path.read_text("utf-8"))
    traces = content["traces"]
    scenes = [make_scene(scene, traces) for scene in content["scenes"]]
    ids = [scene["id"] for scene in scenes]
    if len(set(ids)) < len(ids):
        raise SystemExit(f"{path}: two scenes have the same tag")
    return scenes, traces


def make_scene(scene: dict[str, Any], traces: dict[str, Any]) -> dict[str, Any]:
    """Return a scene in the format of the page."""
    if unknown := scene.keys() - set(FIELDS):
        raise SystemExit(f"scene {scene.get('tag')}: unknown {', '.join(unknown)}")
    tab = dict(parse_qsl(scene["state"], strict_parsing=True))["tab"]
    if tab not in TABS:
        raise SystemExit(f"scene {scene['tag']}: there is no tab {tab!r}")
    trace = scene.get("trace")
    if trace is not None and trace not in traces:
        raise SystemExit(f"scene {scene['tag']}: no trace {trace!r} is recorded")
    name = scene["tag"].lower().replace(", ", "-")
    file = None if trace is None else f"{trace}.json"
    return {"id": name, **scene, "trace": file, "notes": scene.get("notes", "")}


def record_trace(wanted: dict[str, Any]) -> Trace | None:
    """Record a trace with the first available model, shipped or a folder; None if there is none."""
    name = next((model for model in wanted["models"] if model in shipped_models() or Path(model).is_dir()), None)
    if name is None:
        return None
    if "target" in wanted:
        return trace_text(load(name), wanted["text"], target=wanted["target"], name=Path(name).name)
    search: Any = Sample(seed=wanted["sample"]) if "sample" in wanted else Greedy()
    if wanted.get("beam", 1) > 1:
        search = Beam(wanted["beam"])
    return trace_text(
        load(name), wanted["text"], search=search, max_tokens=wanted.get("max_tokens"), name=Path(name).name
    )


def main(folder: Path = TARGET) -> None:
    scenes, wanted = read_scenes()
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.json"):
        if file.stem not in wanted:
            file.unlink()
    for name, how in wanted.items():
        trace = record_trace(how)
        if trace is None:
            sys.stdout.write(f"{name}: unchanged, because none of {', '.join(how['models'])} is available\n")
            continue
        trace.save(folder / f"{name}.json")
        sys.stdout.write(f"{name}: {trace.output!r}\n")
    index = json.dumps(scenes, ensure_ascii=False, indent=1)
    (folder / "index.json").write_text(index + "\n", "utf-8")
    sys.stdout.write(f"{len(scenes)} scenes, {len(wanted)} traces\n")


if __name__ == "__main__":
    main()
