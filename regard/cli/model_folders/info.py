"""`regard info`: what a model folder contains, whether its files are intact, and which commands use it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

# The commands that use a kind of model.
USES = {
    "transformer": ("translate", "score", "evaluate"),
    "rnn-attention": ("translate", "score", "evaluate"),
    "rnn-seq2seq": ("translate", "score", "evaluate"),
    "transformer-lm": ("generate", "score", "evaluate"),
    "rnn-lm": ("generate", "score", "evaluate"),
    "encoder": ("embed",),
    "classifier": ("classify",),
    "summarizer": ("summarize",),
    "answerer": ("answer",),
    "word-vectors": ("words nearest", "words analogy", "plot words"),
    "image-classifier": ("classify", "plot image"),
    "captioner": ("caption", "plot caption"),
    "rnn-captioner": ("caption", "plot caption"),
    "forecaster": ("forecast", "plot forecast"),
    "dlinear": ("forecast", "plot forecast"),
    "speech-recognizer": ("transcribe", "plot speech"),
    "listen-attend-spell": ("transcribe", "plot speech"),
    "speech-ctc": ("transcribe",),
}
# The settings in which models differ most; --json prints all.
SETTINGS = (
    "layers", "decoder_layers", "dim", "heads", "kv_heads", "hidden", "embedding", "position", "order", "cell",
    "attention", "style", "bidirectional", "pooling", "method", "window",
    "frames", "height", "width", "channels", "patch", "convolution", "lookback", "horizon", "stride", "rate", "mels",
    "subsampling", "ctc",
)  # fmt: skip


def show_info(
    model: Annotated[str, typer.Argument(help="Model folder, or the name of a shipped model.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with all of config.json.")] = False,
) -> None:
    """Describe a model and verify the checksums of its files.

    Example: regard info runs/mine
    """
    description = describe(model)
    if as_json:
        typer.echo(json.dumps(description, ensure_ascii=False))
        return
    for name, value in lines_of(description):
        typer.echo(f"{name:<12}{value}")


def describe(model: str) -> dict[str, Any]:
    """Return everything known about a model; ModelError if the folder is damaged."""
    from regard.api.model_names import find_model
    from regard.models.folder import verify_folder
    from regard.tasks.loading import load
    from regard.text.tokenizers.tokenizer import NO_TOKENIZER

    folder = find_model(model)
    face = load(folder, device="cpu")
    files = {name: (folder / name).stat().st_size for name in verify_folder(folder)}
    config = face.info
    source = getattr(face, "tokenizer", getattr(face, "label_tokenizer", NO_TOKENIZER))
    target = getattr(face, "target_tokenizer", source)
    kind = str(config["kind"])
    return {
        "folder": str(folder),
        "kind": kind,
        "parameters": sum(parameter.numel() for parameter in face.model.parameters()),
        "storage": config.get("storage"),
        "vocabulary": {"source": source.size, "target": target.size, "shared": source is target},
        "tokenizer": {"source": type(source).__name__, "target": type(target).__name__},
        "files": files,
        "bytes": sum(files.values()),
        "trainable": (folder / "training").is_dir(),
        "uses": [f"regard {command}" for command in USES[kind]],
        "config": config,
    }


def lines_of(description: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the description as pairs of a name and a value."""
    config, vocabulary = description["config"], description["vocabulary"]
    sizes = {name: value for name, value in config["model"].items() if name in SETTINGS and value is not None}
    settings = ", ".join(f"{name} {value}" for name, value in sizes.items())
    lines = [
        ("folder", description["folder"]),
        ("kind", description["kind"]),
        ("parameters", f"{description['parameters']:,}, stored as {description['storage']}"),
        ("settings", settings),
        ("vocabulary", vocabulary_line(vocabulary, description["tokenizer"])),
    ]
    if languages := config.get("languages"):
        lines.append(("languages", " to ".join(str(language) for language in languages.values())))
    lines += [("scores", text) for text in score_lines(config.get("scores") or {})]
    lines += [("data", text) for text in data_lines((config.get("recipe") or {}).get("data") or {})]
    if context := config.get("context"):
        lines.append(("context", f"{context} tokens"))
    if config.get("alignment"):
        from regard.api.translation.alignment.alignment_head import chosen_heads

        lines += [("alignment", str(head)) for head in chosen_heads(config, None)]
    lines.append(("versions", ", ".join(f"{name} {number}" for name, number in (config.get("versions") or {}).items())))
    lines += [("file", f"{name}, {size_text(size)}") for name, size in description["files"].items()]
    lines.append(
        ("checksums", f"all {len(description['files'])} files match the manifest, {size_text(description['bytes'])}")
    )
    if description["trainable"]:
        lines.append(("training", "`regard train` can resume this run"))
    lines.append(
        (
            "use",
            ", ".join(f"{use} -m {description['folder']}" for use in description["uses"][:1])
            + other_uses(description["uses"]),
        )
    )
    # A model may come from anywhere: never print its control characters to a terminal.
    return [(name, value if value.isprintable() else repr(value)[1:-1]) for name, value in lines]


def vocabulary_line(sizes: dict[str, Any], tokenizers: dict[str, str]) -> str:
    names = {
        "SubwordTokenizer": "subwords",
        "CharacterTokenizer": "characters",
        "WordTokenizer": "words",
        "LabelTokenizer": "labels with special tokens",
    }
    if not sizes["target"]:
        return "none, because the model reads no text"
    if sizes["shared"]:
        return f"{sizes['source']:,} {names.get(tokenizers['source'], 'tokens')}"
    sides = (f"{side} {sizes[side]:,} {names.get(tokenizers[side], 'tokens')}" for side in ("source", "target"))
    return ", ".join(sides)


def score_lines(scores: dict[str, Any]) -> list[str]:
    """Format the scores: BLEU and chrF with their signatures, others as numbers; without `test_` on validation data."""
    lines = []
    for name, value in scores.items():
        split = "on the test set, " if name.startswith("test_") else ""
        if isinstance(value, dict) and isinstance(value.get("value"), int | float):
            signature = value.get("signature", "no signature")
            lines.append(f"{value.get('name', name)} {value['value']:.1f} ({split}{signature})")
        elif isinstance(value, int | float):
            lines.append(f"{name} {value:.4g}")
    return lines


def data_lines(data: dict[str, Any]) -> list[str]:
    """List the files of the training data."""
    return [
        f"{name}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in data.items()
        if value and name in ("source", "target", "pairs", "text", "images", "series", "speech", "demo")
    ]


def size_text(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def other_uses(uses: list[str]) -> str:
    return f" (also {', '.join(uses[1:])})" if len(uses) > 1 else ""
