"""Zero configuration: choose what a recipe leaves open from the data and the machine, with a reason for each choice.

    recipe, choices = complete(recipe, facts_of(corpus), this_machine())

The numbers are rules of thumb, gathered in SIZES and the constants below it; a recipe overrides every one. What
depends on the task, its file in regard/tasks knows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from regard.errors import UsageError
from regard.machine import Machine, this_machine
from regard.models.config import RecurrentConfig, StackConfig
from regard.models.presets import MODELS, make_model
from regard.positions import SCHEMES
from regard.recipes.facts import Choice, DataFacts, facts_of
from regard.recipes.model_table import model_config, whole_model
from regard.recipes.tables import CAPTURED_OPTIMIZERS
from regard.training.recipe.from_files import recipe_for_files
from regard.training.recipe.schema import Recipe, recipe_from, why_not_captured

__all__ = ["Choice", "DataFacts", "Machine", "complete", "facts_of", "recipe_for_files", "this_machine"]


class Size(NamedTuple):
    """A model that suits so much data."""

    tokens: float  # of one pass over the data, at most
    layers: int
    dim: int
    heads: int
    hidden: int
    dropout: float  # the less data, the more
    passes: int  # the less data, the more


SIZES = (
    Size(350_000, 2, 128, 4, 512, 0.3, 40),  # up to 20,000 short sentences
    Size(1_000_000, 4, 128, 4, 512, 0.3, 30),  # as Multi30k; the transformer-tiny of Wu et al. 2021
    Size(8_000_000, 4, 256, 4, 1024, 0.2, 20),  # as IWSLT or Tatoeba, some 160,000 pairs
    Size(40_000_000, 6, 512, 8, 1024, 0.2, 12),  # about a million pairs
    Size(math.inf, 6, 512, 8, 2048, 0.1, 8),  # millions: the base model of Vaswani et al. 2017
)
CPU_LARGEST = 1  # the largest of them, counted from 0, that a CPU trains in a bearable time
PIECES_PER_WORD = 1.4  # subwords; an average over European languages
CHARACTERS_PER_PIECE = 5  # at most, where words have no spaces between them
BATCH_TOKENS = {"cpu": 2048, "mps": 4096, "cuda": 16384}
BATCHES_A_PASS = 50  # at least, or the gradient steps of small data are too few
FILLED = 0.9  # of a batch; the rest is padding
CPU_SECONDS = 3600  # that a training run on a CPU may last by default
FLOPS_A_CORE = 40e9  # per second, of a core at our models; 6 per parameter and token (Kaplan et al. 2020)
FINE_TUNING_RATE, FINE_TUNING_PASSES = 5e-5, 3  # of an imported model, as in transformers' Trainer
MIN_STEPS, MIN_FINE_TUNING_STEPS = 300, 20
CAPTURED = 10**13  # parameters times tokens of a step, up to which Python is slower than a GPU
SHORT = 20_000  # steps of a run whose end is near enough to plan for it
MOST_STEPS_BETWEEN = 2500  # two validations, or two saves
VALIDATION_SHARE = 0.2  # of the time of the steps between two validations that the second of them may take
READ_COST, DECODE_COST = 1 / 3, 1  # of a token in a validation, in units of a token that is trained on
GPU_VALIDATION_STEPS = 50  # that a validation costs at least on a GPU: it decodes token by token and draws a picture


class Chooser:
    """A recipe that is being completed: `take` fills in a setting that is open and notes the reason."""

    def __init__(self, recipe: Recipe, facts: DataFacts, machine: Machine, *, fine_tuning: bool) -> None:
        self.fine_tuning = fine_tuning
        self.kind, self.task, self.facts, self.machine = recipe.kind, recipe.task, facts, machine
        self.schema = MODELS[recipe.kind][0]
        self.tables = dataclasses.asdict(recipe)
        self.choices: list[Choice] = []

    def take(self, key: str, value: Any, why: str) -> Any:
        """Return the recipe's value of a setting, this one where it has none."""
        table, _, name = key.partition(".")
        settings = self.tables[table]
        if settings.get(name) is None:
            settings[name] = value
            self.choices.append(Choice(key, value, why))
        return settings[name]

    def take_all(self, defaults: Iterable[Choice]) -> None:
        for choice in defaults:
            self.take(choice.key, choice.value, choice.why)

    @property
    def tokens(self) -> int:
        """Tokens of one pass over the data, estimated from its words where it is text."""
        facts = self.facts
        if facts.tokens is not None:
            return facts.tokens
        if self.tables["tokenizer"]["kind"] == "characters" and not self.fine_tuning:
            return facts.characters + facts.samples
        return int(max(PIECES_PER_WORD * facts.words, facts.characters / CHARACTERS_PER_PIECE)) + facts.samples

    def size(self) -> Size:
        """The row of SIZES that the data asks for."""
        return next(size for size in SIZES if self.tokens <= size.tokens)


def complete(
    recipe: Recipe, facts: DataFacts, machine: Machine, *, fine_tuning: bool = False
) -> tuple[Recipe, list[Choice]]:
    """Return the recipe with everything chosen that it leaves open, and the choices.

    With `fine_tuning`, an imported model is trained on: it needs small steps, and few.

    Some settings stay None: tokenizer.size and decoding.max_tokens, which tokenizer and decoder choose, and languages.
    """
    if recipe.training.device not in (None, "auto"):
        machine = dataclasses.replace(machine, device=str(recipe.training.device))
    elif recipe.task.device is not None:
        machine = dataclasses.replace(machine, device=recipe.task.device)
    chooser = Chooser(recipe, facts, machine, fine_tuning=fine_tuning)
    _choose_device(chooser)
    chooser.take_all(chooser.task.tokenizer_defaults(chooser.tables, facts))
    _choose_model(chooser)
    chooser.take_all(chooser.task.training_defaults(chooser.tables, facts))
    _choose_length(chooser)
    _choose_schedule(chooser)
    on_cpu = machine.type == "cpu"
    if fine_tuning:
        _choose_positions(chooser)
    chooser.take_all(chooser.task.data_defaults(chooser.tables, facts, on_cpu=on_cpu))
    return recipe_from(chooser.tables), chooser.choices


def _choose_device(c: Chooser) -> None:
    training, machine = c.tables["training"], c.machine
    if training["device"] == "auto":
        training["device"] = None
    fastest = "the fastest device of this machine" if c.task.device is None else "its steps are too small for a GPU"
    device = c.take("training.device", machine.device, fastest)
    if device.startswith("cuda") and c.task.device is None:
        why = "the GPU has it, and it needs no loss scaling" if machine.bf16 else "this GPU has no bfloat16"
        c.take("training.precision", "bf16" if machine.bf16 else "fp16", why)
    elif c.task.device is None:
        c.take("training.precision", "fp32", f"half precision pays off on {machine.type} for wide models only")
    else:
        c.take("training.precision", "fp32", "small steps gain nothing from half precision")


def _choose_model(c: Chooser) -> None:
    """Choose sizes from the data; on a CPU one size smaller, and none of the large ones, so that training ends."""
    c.take("model.kind", c.kind, c.task.default_model)
    c.take_all(c.task.input_defaults(c.tables, c.facts))
    wanted = c.size()
    on_cpu = c.machine.type == "cpu"
    size = SIZES[min(CPU_LARGEST, max(0, SIZES.index(wanted) - 1))] if on_cpu else wanted
    amount = f"about {_rounded(c.tokens):,} tokens to learn from" + ("; small, for a CPU" if on_cpu else "")
    if issubclass(c.schema, RecurrentConfig):
        _choose_cells(c, size, amount)
    elif issubclass(c.schema, StackConfig):
        _choose_blocks(c, size, amount)
    dropout = max(0.1, round(wanted.dropout - 0.1 * on_cpu, 1))
    c.take_all(c.task.model_defaults(c.tables))
    c.take("model.dropout", dropout, "the less data, the more" + (", less for a small model" if on_cpu else ""))
    c.tables["model"] = whole_model(c.kind, c.tables["model"])


def _choose_blocks(c: Chooser, size: Size, amount: str) -> None:
    model = c.tables["model"]
    c.take("model.layers", size.layers, amount)
    heads = model.get("heads") or model.get("kv_heads") or size.heads
    dim = c.take("model.dim", -(-size.dim // heads) * heads, amount)  # rounded up to whole heads
    groups = model.get("kv_heads") or 1
    fitting = [n for n in (8, 4, 2) if dim % n == 0 and n % groups == 0 and dim // n >= 32]
    c.take("model.heads", fitting[0] if fitting else groups, "as many as leave 32 numbers to each, up to 8")
    c.take("model.hidden", size.hidden * dim // size.dim, amount)
    c.take("model.order", "pre", "trains without care for the warm-up (Xiong et al. 2020)")


def _choose_cells(c: Chooser, size: Size, amount: str) -> None:
    model = c.tables["model"]
    if model.get("tie_output"):
        width = c.take("model.hidden", model.get("embedding") or 2 * size.dim, amount)
        c.take("model.embedding", width, "as wide as the cells, for tie_output")
    else:
        c.take("model.hidden", 2 * size.dim, amount)
        c.take("model.embedding", size.dim, amount)
    c.take("model.layers", c.task.recurrent_layers, "as the lectures have it")


def _choose_length(c: Chooser) -> None:
    """Choose batches that suit the device and the data, and steps for some passes; on a CPU for an hour at most.

    regard.training.budget.fit checks later, once there is a model, whether such a batch fits into memory.
    """
    kind = c.machine.type
    allowed = 2 ** int(math.log2(max(c.tokens / BATCHES_A_PASS, 512)))
    why = f"fits {kind} well" if BATCH_TOKENS[kind] <= allowed else f"at least {BATCHES_A_PASS} batches per epoch"
    batch = c.take("training.batch_tokens", min(BATCH_TOKENS[kind], allowed), why)
    tokens_a_step = batch * c.take("training.accumulate", 1, "a step learns from one batch") * FILLED
    passes = FINE_TUNING_PASSES if c.fine_tuning else c.size().passes
    steps = max(MIN_FINE_TUNING_STEPS if c.fine_tuning else MIN_STEPS, c.tokens * passes / tokens_a_step)
    why = f"about {passes} epochs"
    if kind == "cpu":
        speed = FLOPS_A_CORE * c.machine.cores / (6 * _parameters(c))  # tokens a second
        most = CPU_SECONDS * speed / tokens_a_step
        if steps > most:
            steps = most
            share = f"{steps * tokens_a_step / c.tokens:.1f} epochs"
            why = f"about an hour on {c.machine.cores} cores: {share}, and more would be better"
    c.take("training.steps", _rounded(steps), why)
    training = c.tables["training"]
    if kind != "cuda" and training["capture"]:
        raise UsageError(f"training.capture captures steps as CUDA graphs, but training.device is {kind}")
    can_capture = why_not_captured(c.kind, c.tables["model"]) is None and training["precision"] != "fp16"
    if kind == "cuda" and can_capture and training["optimizer"] in CAPTURED_OPTIMIZERS:
        small = _parameters(c) * batch <= CAPTURED
        why = "the GPU would wait for Python" if small else "a step keeps the GPU busy, and capturing it takes memory"
        c.take("training.capture", small, why)


def _choose_positions(c: Chooser) -> None:
    """Leave out what is longer than the positions that an imported model has learned."""
    model = c.tables["model"]
    if SCHEMES[model.get("position", "none")].limited:
        room = model["max_length"] - (c.task.length_key == "data.max_length")  # the start token has a position, too
        usual = next(choice for choice in c.task.data_defaults(c.tables, c.facts, on_cpu=c.machine.type == "cpu"))
        if usual.key == c.task.length_key and usual.value > room:
            c.take(usual.key, room, "the model has no more positions")


def _choose_schedule(c: Chooser) -> None:
    training, model = c.tables["training"], c.tables["model"]
    steps = training["steps"]
    short = steps <= SHORT
    why = "the run is short, and its end is known" if short else "a long run may be stopped early or extended"
    c.take("training.optimizer", "adamw", "usual for attention, and for recurrent nets")
    schedule = c.take("training.schedule", "cosine" if short else "inverse-sqrt", why)
    c.take("training.warmup", max(1, min(4000, steps // 10)), "a tenth of the steps, 4000 at most")
    if c.fine_tuning:
        c.take("training.lr", FINE_TUNING_RATE, "small steps: an imported model is trained already")
    if schedule == "noam":
        c.take("training.lr", 1.0, "the factor before the paper's formula")
    elif issubclass(c.schema, RecurrentConfig):
        c.take("training.lr", 1e-3, "usual for recurrent nets with Adam")
    elif not issubclass(c.schema, StackConfig):
        c.take("training.lr", 1e-3, "usual with Adam")
    else:
        post, width = model["order"] == "post", model["dim"]
        rate = 7e-4 * math.sqrt(512 / width) / (2 if post else 1)
        c.take("training.lr", _rounded(rate), f"for width {width}" + (", halved for post-norm" if post else ""))
    c.take("training.label_smoothing", *c.task.label_smoothing)
    validate_every = c.take("training.validate_every", *_validation_interval(c))
    if validate_every <= MOST_STEPS_BETWEEN:
        c.take("training.save_every", validate_every, "with each validation")
    else:
        c.take("training.save_every", MOST_STEPS_BETWEEN, "a crash costs no more steps")


def _validation_interval(c: Chooser) -> tuple[int, str]:
    """Return the steps between two validations, and the reason.

    The cost of a validation is estimated from its tokens, not measured, so that equal data gives equal recipes.
    """
    training, facts = c.tables["training"], c.facts
    tokens = c.tokens * facts.validation_characters / max(facts.characters, 1)
    decoding = c.tables["decoding"]
    sentences = decoding["sentences"] if c.task.decodes_validation else 0
    decoded = tokens * decoding["beam"] * min(1.0, sentences / max(facts.validation_samples, 1))
    cost = (READ_COST * tokens + DECODE_COST * decoded) / (training["batch_tokens"] * training["accumulate"] * FILLED)
    if c.machine.type == "cuda":
        cost = max(cost, GPU_VALIDATION_STEPS)
    steps, usual = training["steps"], min(MOST_STEPS_BETWEEN, training["steps"] // 10)
    shortest = math.ceil(cost / VALIDATION_SHARE)
    if shortest <= max(usual, 1):
        return max(usual, 1), f"ten times a run, or every {MOST_STEPS_BETWEEN} steps"
    why = (
        f"a validation costs about as much as {math.ceil(cost)} steps, and takes at most {VALIDATION_SHARE:.0%} of them"
    )
    return min(steps, shortest), why if shortest < steps else "at the end of so short a run"


def _parameters(c: Chooser) -> int:
    """Return the parameters of the model with a vocabulary as large as the data has frequent words."""
    size = c.tables["tokenizer"]["size"] or min(32_000, 300 + c.facts.distinct_words // 3)
    if c.tables["tokenizer"]["kind"] == "characters":
        size = 100
    with torch.device("meta"):  # shapes without memory
        model = make_model(model_config(c.kind, c.tables["model"], source_vocabulary=size, target_vocabulary=size))
    return sum(parameter.numel() for parameter in model.parameters())


def _rounded(number: float) -> Any:
    """Round to two digits, enough for a rule of thumb; whole numbers stay whole."""
    places = 1 - math.floor(math.log10(number))
    return round(number, places) if number < 1 else round(round(number), places)
