"""What benchmarks/quality/quality.py measures: systems, directions, seeds, and the numbers that others published."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "regard" / "recipes"
LAST_CHARACTERS = 111_540  # of tinyshakespeare: its last tenth


@dataclass(frozen=True)
class Files:
    """One form of a data set. In the names {} is the language, in those for recipes {source} and {target} are."""

    validation: str
    test: str
    tokenize: str = "13a"  # how sacreBLEU splits it
    settings: tuple[str, ...] = ()  # that lead a recipe to these files, where it names others

    def named(self, part: str, direction: str) -> list[str]:
        """The source and the reference file of a part."""
        return [getattr(self, part).format(language) for language in direction.split("-")]


def _raw_multi30k() -> tuple[str, ...]:
    parts = (("", "train"), ("validation_", "val"))
    files = (
        f"data.{prefix}{side}=data/multi30k/{part}.{{{side}}}.gz"
        for prefix, part in parts
        for side in ("source", "target")
    )
    return (*files, "tokenizer.tokenised=false")


DATA: dict[str, dict[str, Files]] = {
    "multi30k": {
        "tokenised": Files(
            "data/multi30k/tok/val.lc.norm.tok.{}.gz",
            "data/multi30k/tok/test_2016_flickr.lc.norm.tok.{}.gz",
            tokenize="none",
        ),
        "raw": Files("data/multi30k/val.{}.gz", "data/multi30k/test_2016_flickr.{}.gz", settings=_raw_multi30k()),
    },
    "tatoeba": {"raw": Files("data/tatoeba-fr-en/val.{}.gz", "data/tatoeba-fr-en/test.{}.gz")},
    "tinyshakespeare": {"raw": Files("data/tinyshakespeare/input.txt", "data/tinyshakespeare/input.txt")},
}


@dataclass(frozen=True)
class Goal:
    """What others published, and what ours shall reach; of nats, stay below."""

    published: float | None = None
    required: float | None = None
    seeds: int = 1


@dataclass(frozen=True)
class System:
    """A recipe, and how its models are judged in each direction."""

    name: str
    recipe: str
    others: str  # whose number is published
    data: str = "multi30k"
    goals: Mapping[str, Goal] = field(default_factory=dict)  # by direction; a language model has the one called ""
    search: tuple[str, ...] = ("--beam", "5")  # options of regard evaluate
    alone: bool = False  # its time counts, so it is run only when it is named
    settings: tuple[str, ...] = ()  # laid over the recipe
    change: str = ""  # what they change, where the table names the recipe
    forms: tuple[str, ...] = ("tokenised", "raw")
    features: str = ""  # what it is called in the tables of random features, where it stands then


@dataclass(frozen=True)
class Run:
    """One training and its evaluation."""

    system: System
    direction: str
    form: str
    seed: int
    more: tuple[str, ...] = ()  # settings laid over the recipe, to try something

    @property
    def names(self) -> list[str]:
        """What it is called, from tiny-en-de to tiny-en-de-raw-1."""
        parts = list(filter(None, (self.system.name, self.direction, self.form, str(self.seed))))
        return ["-".join(parts[:end]) for end in range(len(parts) - 2, len(parts) + 1) if end]

    @property
    def name(self) -> str:
        return self.names[-1]

    @property
    def files(self) -> Files:
        return DATA[self.system.data][self.form]

    @property
    def settings(self) -> list[str]:
        """All that is said beside the recipe's name."""
        languages = (
            [
                f"data.{side}_language={language}"
                for side, language in zip(("source", "target"), self.direction.split("-"), strict=True)
            ]
            if self.direction
            else []
        )
        return [*languages, *self.files.settings, *self.system.settings, f"training.seed={self.seed}", *self.more]

    @property
    def key(self) -> str:
        """Changes with the recipe and with how it is used: a number belongs to what was measured, not to a name."""
        recipe = tomllib.loads(next(RECIPES.rglob(f"{self.system.recipe}.toml")).read_text(encoding="utf-8"))
        definition = json.dumps([recipe, self.settings, self.system.search, self.files.tokenize], sort_keys=True)
        return hashlib.sha256(definition.encode()).hexdigest()[:10]


THREE = {"seeds": 3}
GREEDY_BY_LENGTH = ("--beam", "1", "--lengths", "8,10,12,14,17")  # at least 89 of the 1,000 German test sentences each
# The Transformer as on the slides, with a lower peak rate and a longer warm-up than the pre-norm recipe.
POST_NORM = ("model.order=post", "model.position=sinusoidal", "training.lr=2e-3", "training.warmup=2000")
# As the model ships: python scripts/make_fact_pairs.py 15000 data/demo.fr data/demo.en --corpus demo
WITH_DEMO_PAIRS = tuple(
    f'data.{side}=["data/tatoeba-fr-en/train.{language}.gz", "data/demo.{language}"]'
    for side, language in (("source", "fr"), ("target", "en"))
)
SYSTEMS = (
    System(
        "tiny",
        "multi30k-tiny",
        "Wu et al. 2021",
        goals={"en-de": Goal(41.02, 41.0, **THREE), "en-fr": Goal(61.80, 61.8, **THREE)},
    ),
    System(
        "tiny-post",
        "multi30k-tiny",
        "",
        goals={"en-de": Goal(**THREE)},
        settings=POST_NORM,
        change="post-norm, sinusoidal",
        forms=("tokenised",),
    ),
    System(
        "transformer",
        "multi30k-transformer",
        "Guo et al. 2023, with images",
        goals={
            "en-de": Goal(42.50, 42.5, **THREE),
            "en-fr": Goal(63.71, 63.7, **THREE),
            "de-en": Goal(),
            "fr-en": Goal(),
        },
    ),
    System(
        "rnn",
        "multi30k-rnn",
        "Lample et al. 2018",
        goals={
            "en-de": Goal(35.16, 35.16, **THREE),
            "en-fr": Goal(56.83, 56.83, **THREE),
            "de-en": Goal(38.38, 38.38),
            "fr-en": Goal(50.77, 50.77),
        },
        search=("--beam", "1"),
    ),
    System(
        "gru",
        "multi30k-gru",
        "tutorials",
        goals={"de-en": Goal(28.3, 28.3)},
        search=GREEDY_BY_LENGTH,
    ),
    System(
        "seq2seq",
        "multi30k-seq2seq",
        "",
        goals={"de-en": Goal()},
        search=GREEDY_BY_LENGTH,
    ),
    System(
        "fr-en",
        "fr-en",
        "plain torch.nn.Transformer",
        data="tatoeba",
        goals={"fr-en": Goal(56.7, 58.0)},
    ),
    System(
        "fr-en-rnn",
        "fr-en-rnn",
        "",
        data="tatoeba",
        goals={"fr-en": Goal()},
        settings=WITH_DEMO_PAIRS,
        change="with 15,000 pairs of the demo corpus",
    ),
    System(
        "shakespeare-10m",
        "shakespeare-10m",
        "nanoGPT, 3 minutes on an A100",
        data="tinyshakespeare",
        goals={"": Goal(1.4697, 1.46, **THREE)},
        search=(),
        alone=True,
    ),
    System(
        "shakespeare-best",
        "shakespeare-best",
        "",
        data="tinyshakespeare",
        goals={"": Goal(**THREE)},
        search=(),
    ),
    System(
        "shakespeare-softmax",
        "shakespeare-best",
        "",
        data="tinyshakespeare",
        goals={"": Goal(**THREE)},
        search=(),
        settings=("model.attention=softmax", "model.random_features="),
        change="softmax",
    ),
    System(
        "shakespeare-rnn",
        "shakespeare-rnn",
        "",
        data="tinyshakespeare",
        goals={"": Goal()},
        search=(),
    ),
    System(
        "shakespeare",
        "shakespeare",
        "",
        data="tinyshakespeare",
        goals={"": Goal()},
        search=(),
    ),
    System(
        "shakespeare-cpu",
        "shakespeare-cpu",
        "nanoGPT, 3 minutes on a CPU",
        data="tinyshakespeare",
        goals={"": Goal(1.88, 1.75)},
        search=(),
        alone=True,
    ),
)

# Random features in all attention of the decoder, or in all heads but one or two of four that look at the source; and,
# in a language model, one thing after another changed.
RANDOM = ("model.attention=random-features", "model.random_features.gate=true")
FEATURES = (
    *RANDOM,
    "model.random_features.exact_heads=encoder",
    "model.random_features.features=256",
    "model.random_features.cross_map=rows",
)
EXACT = 'model.random_features.exact_heads=["encoder", "decoder.*.cross:{}"]'
TRANSLATORS = {
    "features": (FEATURES, "256 random features, in cross-attention `rows`"),
    "mixed": ((*RANDOM, EXACT.format("0")), "128 random features, in cross-attention one head of four exact"),
    "half": ((*RANDOM, EXACT.format("0,1")), "128 random features, in cross-attention two heads of four exact"),
}
LETTERS = (*RANDOM, "model.random_features.features=64")
CHANGED = {
    "softmax": (),
    "64 features": LETTERS,
    "16 features": (*LETTERS, "model.random_features.features=16"),
    "32 features": (*LETTERS, "model.random_features.features=32"),
    "128 features": (*LETTERS, "model.random_features.features=128"),
    "64, without the gate": (*LETTERS, "model.random_features.gate=false"),
    "64, without the learned scale": (*LETTERS, "model.random_features.scale=false"),
    "64, rows of W independent": (*LETTERS, "model.random_features.draw=independent"),
}
SYSTEMS += (
    *(
        System(
            name,
            "multi30k-tiny",
            "",
            goals={"en-de": Goal(**THREE)},
            settings=settings,
            forms=("tokenised",),
            features=features,
        )
        for name, (settings, features) in TRANSLATORS.items()
    ),
    *(
        System(
            "letters-" + name.replace(",", "").replace(" ", "-"),
            "shakespeare-cpu",
            "",
            data="tinyshakespeare",
            goals={"": Goal(**THREE)},
            search=(),
            settings=settings,
            features=name,
        )
        for name, settings in CHANGED.items()
    ),
)


def all_runs(
    *, only: Sequence[str] = (), forms: Sequence[str] = (), seeds: Sequence[int] = (), more: Sequence[str] = ()
) -> list[Run]:
    """The runs of the plan that are wanted, one seed of everything first.

    `only` names systems or parts of them: tiny, tiny-en-de, tiny-en-de-raw, tiny-en-de-raw-1.
    """
    runs = [
        Run(system, direction, form, seed, tuple(more))
        for system in SYSTEMS
        for form in DATA[system.data]
        if form in system.forms
        for direction, goal in system.goals.items()
        for seed in range(1, goal.seeds + 1)
    ]

    def wanted(run: Run) -> bool:
        chosen = bool({run.system.name, *run.names} & set(only)) if only else not run.system.alone
        return chosen and (not forms or run.form in forms) and (not seeds or run.seed in seeds)

    order = list(DATA["multi30k"])
    return sorted(filter(wanted, runs), key=lambda run: (run.seed, order.index(run.form)))
