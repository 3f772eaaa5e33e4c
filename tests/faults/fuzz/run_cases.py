"""The cases of the fuzz for run folders: a training that stopped, and what is done to what it kept, by number."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import mutations as spoil
import protobuf_mutations
from harness import write_recipe

Files = dict[str, bytes]  # by path inside the run's folder
STEPS = 4  # of the run; a resumed one has one more to do

TOML = [
    "-1", "0", "1.5", "nan", "inf", "1e999", "9" * 5000, "true", '""', '"x"', '"\\ud800"', '"\\u001b[31m"', "[]", "{}",
    '["a"]', "[[1]]", "{a = 1}", "1979-05-27", "[" * 500 + "]" * 500, "[" * 100_000, "'", '"""', "\x00", "é", "10" * 12,
]  # fmt: skip


def make_run(folder: Path) -> None:
    """A run of a few steps, and beside it the recipe that it was begun with."""
    from regard.training.run.training_run import train

    recipe = write_recipe(
        folder, pairs=40, changes={"steps = 12": f"steps = {STEPS}", "save_every = 3": "save_every = 2"}
    )
    train(recipe, out=folder / "run", quiet=True)


def go_on(folder: Path, recipe: Path) -> None:
    """One step more of the run in that folder."""
    from regard.training.run.training_run import train

    train(recipe, out=folder, overrides={"training.steps": STEPS + 1}, quiet=True)


def state(files: Files, dice: random.Random, place: str) -> None:
    """What the checkpoint says of the training: of any JSON, or of this one with something changed in it."""
    name = f"{place}/state.json"
    match dice.randrange(5):
        case 0:
            files[name] = dice.choice([b"[]", b"3", b"null", b"{}", b'"x"', b"[" * spoil.DEEP, b'{"progress": {}}'])
        case 1:
            files[name] = spoil.change_bytes(files[name], dice)
        case 2:
            files[name] = spoil.change_json(files[name], dice)
        case _:
            files[name] = spoil.change_json(files[name], dice, at=("progress",))


def tensors(files: Files, dice: random.Random, place: str) -> None:
    name = f"{place}/{dice.choice(['weights', 'optimizer'])}.safetensors"
    files[name] = dice.choice([spoil.change_header, spoil.change_header, spoil.change_bytes])(files[name], dice)


def checkpoint_manifest(files: Files, dice: random.Random, place: str) -> None:
    name = f"{place}/manifest.json"
    files[name] = dice.choice([spoil.change_json, spoil.change_bytes])(files[name], dice)


def checkpoint_files(files: Files, dice: random.Random, place: str) -> None:
    """A file of a checkpoint gone, empty, or in another's place."""
    inside = [name for name in files if name.startswith(place)]
    name, other = dice.sample(inside, 2)
    match dice.randrange(3):
        case 0:
            del files[name]
        case 1:
            files[name] = b""
        case 2:
            files[name] = files[other]


def recipe(files: Files, dice: random.Random) -> None:
    name = "training/recipe.toml"
    lines = files[name].decode().splitlines()
    place = dice.randrange(len(lines))
    match dice.randrange(5):
        case 0:
            files[name] = spoil.change_bytes(files[name], dice)
            return
        case 1:
            del lines[place]
        case 2:
            lines.insert(dice.randrange(len(lines)), lines[place])
        case _:
            lines[place] = re.sub(r"= .*", lambda found: f"= {dice.choice(TOML)}", lines[place])
    files[name] = "\n".join(lines).encode()


def data(files: Files, dice: random.Random) -> None:
    name = "training/data.json"
    odd = [b"[]", b"3", b"{}", b"[" * spoil.DEEP, b'{"train": "x", "validation": {}, "fingerprint": 3}']
    files[name] = dice.choice([lambda: dice.choice(odd), lambda: spoil.change_json(files[name], dice),
                               lambda: spoil.change_bytes(files[name], dice)])()  # fmt: skip


def tokenizer(files: Files, dice: random.Random) -> None:
    name = "training/tokenizer.model"
    files[name] = dice.choice([protobuf_mutations.change_model, spoil.change_bytes])(files[name], dice)


def other_files(files: Files, dice: random.Random) -> None:
    """Files of training/ gone, empty or strange, and the pointer to the newest checkpoint."""
    match dice.randrange(4):
        case 0:
            del files[dice.choice([name for name in files if name.startswith("training/")])]
        case 1:
            files[dice.choice([name for name in files if name.startswith("training/")])] = b""
        case 2:
            files["training/latest"] = dice.choice([b"", b"step-99999999", b"../..", b"\xff", b"step-00000002\n"])
        case 3:
            odd = ["step-99999999/x", "step-00000009/manifest.json", "step-000000000000000000009/x", "step-٠٠٠٠٠٠٠٩/x"]
            files[f"training/{dice.choice(odd)}"] = b"{}"


def model_files(files: Files, dice: random.Random) -> None:
    """The model that the run has left so far."""
    name = dice.choice(["config.json", "manifest.json", "model.safetensors", "README.md", "tokenizer.model"])
    files[name] = spoil.change_bytes(files[name], dice)


CHECKPOINT: list[Callable[[Files, random.Random, str], None]] = [
    state,
    state,
    tensors,
    checkpoint_manifest,
    checkpoint_files,
]
OTHERS: list[Callable[[Files, random.Random], None]] = [recipe, recipe, data, tokenizer, other_files, model_files]


def make_run_case(folder: Path, number: int, seed: int) -> tuple[str, Files, random.Random]:
    """The files of a spoilt run folder, and in words what was done to it."""
    dice = random.Random(f"{seed} {number}")
    base = folder / "run"
    files = {str(path.relative_to(base)): path.read_bytes() for path in sorted(base.rglob("*")) if path.is_file()}
    if dice.random() < 0.4:
        change = dice.choice(OTHERS)
        change(files, dice)
        return change.__name__, files, dice
    places = sorted({name.rpartition("/")[0] for name in files if name.startswith("training/step-")})
    spoilt = places if dice.random() < 0.5 else places[-1:]  # then there is one to go back to
    seen = dice.random()
    spoil_checkpoint = dice.choice(CHECKPOINT)
    for place in spoilt:
        spoil_checkpoint(files, random.Random(seen), place)
        if spoil_checkpoint in (state, tensors):
            sign(files, place)
    how = "all" if len(spoilt) > 1 else "newest"
    return f"{spoil_checkpoint.__name__}-of-{how}", files, dice


def sign(files: Files, place: str) -> None:
    """Checksums that fit, as if the training itself had written this."""
    manifest = json.loads(files[f"{place}/manifest.json"])
    for name in manifest["files"]:
        content = files[f"{place}/{name}"]
        manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    files[f"{place}/manifest.json"] = json.dumps(manifest).encode()
