"""Make the scenes of the Lecture tab: record their traces and write them beside the page.

    python scripts/make_scenes.py

web/scenes.toml contains the scenes, web/lectures.toml their order in five lectures. The traces are recorded with the
shipped models. Run it when one of these changes. The texts contain no typed results: a name in braces, such as
{weight_of_k1}, is a number computed here from what the scene shows: from its matrices, its trace, or the measured
lengths in benchmarks/results.
"""

from __future__ import annotations

import json
import math
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import torch

from regard.api.model_names import shipped_models
from regard.attention.dispatch import attend
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.look.inside.random_features import exact_weights, jane_head, limit_weights, relative_error
from regard.look.lecture_examples import jane_flow
from regard.look.pictures.concepts.normalization import state_changes
from regard.look.pictures.concepts.three_heads import search_weights, three_heads_weights
from regard.look.trace.trace import Trace
from regard.look.trace.tracing import trace_text
from regard.positions.sinusoids import distance_variance
from regard.tasks.loading import load

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "web" / "scenes.toml"
TARGET = ROOT / "regard" / "look" / "page" / "static" / "scenes"
LECTURES = ROOT / "web" / "lectures.toml"
TABS = (
    "alignment", "heads", "inside", "decode", "compare", "embeddings", "recurrent", "lab", "positions", "features",
)  # fmt: skip
FIELDS = (
    "id", "tag", "title", "question", "choices", "right", "wrong", "answer", "state", "answer_state", "before", "show",
    "trace", "notes", "curves",
)  # fmt: skip
DRAWN_STEP = 7  # of E10: the first letter after the line break, where any letter may come
LENGTHS = ROOT / "benchmarks" / "results" / "quality" / "2026-11-18-length-curves-h200.json"


def read_traces(path: Path = SOURCE) -> dict[str, dict[str, Any]]:
    """Read which traces the scenes need."""
    wanted: dict[str, dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["traces"]
    return wanted


def read_scenes(path: Path = SOURCE, folder: Path = TARGET) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Read the scenes in the format of the page, and the traces that they need, which are in the folder."""
    content = tomllib.loads(path.read_text("utf-8"))
    traces, numbers = content["traces"], scene_numbers() | trace_numbers(folder)
    scenes = [make_scene(scene, traces, numbers) for scene in content["scenes"]]
    ids = [scene["id"] for scene in scenes]
    if len(set(ids)) < len(ids):
        raise SystemExit(f"{path}: two scenes have the same id: give the second one of a tag an id")
    return scenes, traces


def make_scene(scene: dict[str, Any], traces: dict[str, Any], numbers: dict[str, str]) -> dict[str, Any]:
    """Return a scene in the format of the page, with the computed numbers in its texts."""
    if unknown := scene.keys() - set(FIELDS):
        raise SystemExit(f"scene {scene.get('tag')}: unknown {', '.join(unknown)}")
    state = scene["state"].format_map(numbers)
    tab = dict(parse_qsl(state, strict_parsing=True))["tab"]
    if tab not in TABS:
        raise SystemExit(f"scene {scene['tag']}: there is no tab {tab!r}")
    trace = scene.get("trace")
    if trace is not None and trace not in traces:
        raise SystemExit(f"scene {scene['tag']}: no trace {trace!r} is recorded")
    right, reasons = mark_choices(scene, numbers)
    texts = {field: scene.get(field, "").format_map(numbers) for field in ("question", "answer", "notes")}
    made = {
        "id": scene.get("id") or scene["tag"].lower().replace(", ", "-"),
        "tag": scene["tag"],
        "title": scene["title"],
        **texts,
        "choices": scene["choices"],
        "right": right,
        "reasons": reasons,
        "state": state,
        "answer_state": scene.get("answer_state", "").format_map(numbers),
        "before": scene.get("before"),
        "show": scene["show"],
        "trace": None if trace is None else f"{trace}.json",
    }
    return made | ({"curves": measured_curves()} if "curves" in scene else {})


def mark_choices(scene: dict[str, Any], numbers: dict[str, str]) -> tuple[int, list[str]]:
    """Return the index of the right choice, and for each choice why it is wrong (empty for the right one)."""
    choices, wrong = scene["choices"], [text.format_map(numbers) for text in scene["wrong"]]
    if scene["right"] not in choices:
        raise SystemExit(f"scene {scene['tag']}: {scene['right']!r} is not one of its choices")
    right = choices.index(scene["right"])
    if len(wrong) != len(choices) - 1:
        raise SystemExit(
            f"scene {scene['tag']}: {len(choices) - 1} wrong choices need as many reasons, got {len(wrong)}"
        )
    return right, [*wrong[:right], "", *wrong[right:]]


def read_lectures(scenes: list[dict[str, Any]], path: Path = LECTURES) -> list[dict[str, Any]]:
    """Read the orders of scenes with minutes, one for each lecture."""
    known = {scene["id"] for scene in scenes}
    lectures = []
    for lecture in tomllib.loads(path.read_text("utf-8"))["lectures"]:
        lines = [line.split() for line in lecture.pop("plan").strip().splitlines()]
        if unknown := {name for name, _ in lines} - known:
            raise SystemExit(f"{path}: lecture {lecture['id']} names unknown scenes: {', '.join(sorted(unknown))}")
        lectures.append(lecture | {"scenes": [{"id": name, "minutes": int(minutes)} for name, minutes in lines]})
    return lectures


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


def scene_numbers() -> dict[str, str]:
    """Return the text of each number, by its name."""
    examples = (
        worked_example, search, three_heads, self_attention, position_variance, norms, missing_factor, lengths,
    )  # fmt: skip
    return {name: text for example in examples for name, text in example().items()}


def worked_example() -> dict[str, str]:
    """D6 and D9: scores, weights and output of the first query, and its largest weight by other scores."""
    Q, K = torch.tensor([[2.0, -1, 0]]), torch.tensor([[2.0, 1, -1], [0, 3, -1], [1, 1, 3]])
    V = torch.tensor([[2.0, 3, 1], [2, -1, 0], [0, 5, 1]])
    y, weights = attend(Q, K, V, score="dot", return_weights=True)
    _, scaled = attend(Q, K, V, score="scaled", return_weights=True)
    additive = (Q + K).tanh().sum(-1).softmax(-1)  # with W_q = W_k = I and w = 1, as in the Lab
    first, *others = (f"{score:.0f}".replace("-", "−") for score in (Q @ K.T)[0].tolist())
    return {
        "score_of_k1": first,
        "scores_of_others": " and ".join(others),
        "weight_of_k1": f"{weights[0, 0]:.3f}",
        "scaled_weight_of_k1": f"{scaled[0, 0]:.3f}",
        "additive_weight_of_k1": f"{additive[0]:.3f}",
        "output_of_q1": ", ".join(f"{value:.3f}" for value in y[0].tolist()),
    }


def search() -> dict[str, str]:
    """D4: the weights of the videos."""
    _, weights = search_weights()
    *first, last = (f"{weight:.2f}" for weight in weights.tolist())
    return {"search_weights": f"{', '.join(first)} and {last}"}


def three_heads() -> dict[str, str]:
    """D11: the word that each head of “l'Afrique” attends to most, with its weight."""
    names = ("what_word", "when_word", "who_word")
    return {
        name: f"“{jane_flow().words[int(row.argmax())]}” with a weight of {row.max():.2f}"
        for name, row in zip(names, three_heads_weights(), strict=True)
    }


def norms() -> dict[str, str]:
    """E1: by how much the other sentences of a batch change the last state of one, with either norm."""
    changes = {name: values[-1] for name, values in state_changes().items()}
    return {f"{name.replace(' ', '_')}_change": f"{change:.2f}" for name, change in changes.items()}


def self_attention() -> dict[str, str]:
    """D7: in how many rows a word attends most to itself, and the row of “en”, where it does not."""
    flow = jane_flow()
    _, weights = attend(flow.x, flow.x, flow.x, score="dot", return_weights=True)
    to_itself = sum(int(row.argmax()) == i for i, row in enumerate(weights))
    row = dict(zip(flow.words, weights[flow.words.index("en")].tolist(), strict=True))
    best = sorted(row, key=row.__getitem__, reverse=True)[:3]
    return {
        "rows_of_own_word": f"{to_itself} of {len(flow.words)}",
        "row_of_en": ", ".join(f"“{word}” {row[word]:.3f}" for word in best),
    }


def position_variance() -> dict[str, str]:
    """B4: the share of the variance in the first 50 dimensions, and the dimensions at which 95 % is passed."""
    variance = distance_variance(128, 50)
    share = variance / variance[-1]  # of the first 2, 4, …, 128 dimensions
    passed = int((share > 0.95).nonzero()[0])
    return {
        "share_of_10": f"{share[4]:.0%}".replace("%", " %"),
        "share_of_50": f"{share[24]:.0%}".replace("%", " %"),
        "dimensions_of_95": str(2 * (passed + 1)),
        "share_there": f"{share[passed]:.1%}".replace("%", " %"),
    }


def missing_factor() -> dict[str, str]:
    """F3: the error that remains without the factor of the keys."""
    head = jane_head()
    error = relative_error(limit_weights(head, normalize=False), exact_weights(head, normalize=False))
    return {"error_without_factor": f"{error:.2f}"}


def lengths() -> dict[str, str]:
    """D17: BLEU at the shortest and the longest texts, and with attention at the lengths of its training and beyond."""
    scores = {
        system["name"]: [bucket["bleu"]["value"] for bucket in system["buckets"]] for system in measured_lengths()
    }
    limits = {system["name"]: system["limit"] for system in measured_lengths()}
    values = {
        "without_short": scores["RNNenc-50"][0],
        "without_long": scores["RNNenc-50"][-1],
        "with_least": min(scores["RNNsearch-50"]),
        "with_most": max(scores["RNNsearch-50"]),
        "shorter_short": scores["RNNsearch-30"][0],
        "shorter_long": scores["RNNsearch-30"][-1],
    }
    return {name: f"{value:.1f}" for name, value in values.items()} | {
        "longest_trained": str(limits["RNNsearch-50"]),
        "shorter_trained": str(limits["RNNsearch-30"]),
    }


def measured_lengths() -> list[dict[str, Any]]:
    """Return the systems of benchmarks/quality/length_curves.py with their scores by length."""
    systems: list[dict[str, Any]] = json.loads(LENGTHS.read_text("utf-8"))["systems"]
    return systems


def measured_curves() -> dict[str, Any]:
    """D17: BLEU by length in the format of the page."""
    systems = measured_lengths()
    buckets = systems[0]["buckets"]
    return {
        "title": "BLEU by sentence length, with and without attention",
        "note": "GRU encoder-decoders with Bahdanau's attention and without attention, each trained on texts of at "
        "most 50 and of at most 30 words (`benchmarks/quality/length_curves.py`). Bands: 95% intervals.",
        "lengths": [f"{bucket['low']} to {bucket['high']}" for bucket in buckets],
        "words": [(bucket["low"] + bucket["high"]) / 2 for bucket in buckets],
        "systems": [
            {
                "name": f"{'' if system['name'].startswith('RNNsearch') else 'no '}attention, {system['limit']} words",
                "bleu": [round(bucket["bleu"]["value"], 1) for bucket in system["buckets"]],
                "low": [round(bucket["bleu"]["interval"][0], 1) for bucket in system["buckets"]],
                "high": [round(bucket["bleu"]["interval"][1], 1) for bucket in system["buckets"]],
            }
            for system in systems
        ],
    }


def trace_numbers(folder: Path) -> dict[str, str]:
    """D13, E8 and E10: the tokens on both axes of the question, the last step, and the token that E10 shows drawn."""
    question, story, car = (Trace.load(folder / f"{name}.json") for name in ("question", "story", "red-car"))
    step = story.steps[DRAWN_STEP]
    drawn = next(candidate for candidate in step.candidates if candidate.token == step.chosen)
    return {
        "source_tokens": str(len(question.axes["source"].tokens)),
        "target_tokens": str(len(question.axes["target"].tokens)),
        "end_step": str(len(car.steps) - 1),
        "drawn_step": str(DRAWN_STEP),
        "drawn_token": drawn.text,
        "drawn_probability": f"{100 * math.exp(drawn.logp):.1f}\u00a0%",
    }


def main(folder: Path = TARGET) -> None:
    wanted = read_traces()
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
    scenes, _ = read_scenes(folder=folder)
    lectures = read_lectures(scenes)
    for name, content in (("index.json", scenes), ("lectures.json", lectures)):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8")
    sys.stdout.write(f"{len(scenes)} scenes, {len(wanted)} traces, {len(lectures)} lectures\n")


if __name__ == "__main__":
    main()
