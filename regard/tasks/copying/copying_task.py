"""What summarization and question answering share: pairs of texts with one vocabulary, and a model that copies.

G3; See et al. 2017. Validation writes the texts of some samples and compares them with the references.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.models.config import Config
from regard.models.protocols import TextModel
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.tables import SHARES, RecipeTables, TrainingRecipe
from regard.tasks.corpora import longest_pair, numbered_tokens, train_tokenizer
from regard.tasks.losses import Objective, Together, copying_loss
from regard.tasks.task import Data, Misfit, Task, Tokenizers
from regard.tasks.translation import SENTENCES_PER_CALL, make_pairs, pair_defaults
from regard.tasks.validation import Validator
from regard.text.batches.batch import Batch
from regard.text.batches.pairs import PairData
from regard.text.files.corpus import Corpus
from regard.text.tokenizers.special_tokens import SEPARATOR, wrap

DEMO_VALIDATION = 500  # samples of the demo stories
TOKENIZED_DEMO = 3_000  # samples of the demo stories that the tokenizer is trained on: they contain every word
MAX_TOKENS = 512  # default of data.max_length
MARGIN = 8  # tokens that a validation writes at most beyond the longest reference
REHEARSED = 32  # samples that represent a validation in a trial run


class CopyingTask(Task):
    """Write a text from a longer one, whose tokens can be copied."""

    decodes_validation = True
    fixed_shapes = True
    label_smoothing = (0.0, "as in See et al. 2017")
    default_model = "it can copy words that are rare"

    def make_tokenizers(self, recipe: RecipeTables, corpus: Corpus) -> Tokenizers:
        count = TOKENIZED_DEMO if recipe.data.demo else None
        tokenizer = train_tokenizer(recipe, [*corpus.source[:count], *(corpus.target or [])[:count]])
        return tokenizer, tokenizer

    def make_data(
        self, recipe: RecipeTables, corpus: Corpus, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> PairData:
        return make_pairs(recipe, corpus, tokenizers, training=training, cache=cache, fixed_shapes=self.fixed_shapes)

    def longest_row(self, recipe: RecipeTables, corpora: Any, tokenizers: Tokenizers) -> int:
        return longest_pair(recipe, corpora, tokenizers)

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        numbers = torch.arange(rows * length, device=device).view(rows, length)  # (B, L)
        tokens = numbered_tokens(numbers, config.vocabularies[0])
        return Batch(list(range(rows)), tokens, tokens, tokens, tokens.numel())

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return partial(copying_loss, smoothing=training.label_smoothing or 0.0, pointing=training.pointing)

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        data, training = recipe.data, recipe.training
        if data.context is not None:
            yield "data.context", "reads whole texts: give max_length"
        for share in (*SHARES, "names", "placeholders"):
            if getattr(data, share):
                yield f"data.{share}", "translates nothing"
        if recipe.tokenizer.shared is False:
            yield "tokenizer.shared", "copies tokens, so it has one vocabulary"
        if training.r_drop:
            yield "training.r_drop", "has no second pass for it"
        if training.temperature != TrainingRecipe.temperature:
            yield "training.temperature", "has no use for it"

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        yield Choice("tokenizer.kind", "unigram", "subwords leave no word unknown")
        yield Choice("tokenizer.shared", True, "tokens of the source are copied")

    def model_defaults(self, tables: Mapping[str, Any]) -> Iterator[Choice]:
        yield Choice("model.share_embeddings", True, "one table for one vocabulary")

    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        yield Choice("data.max_length", min(tables["training"]["batch_tokens"], MAX_TOKENS), "longer texts cost memory")
        yield from (choice for choice in pair_defaults(tables, facts) if choice.key != "data.max_length")

    def info(self, recipe: RecipeTables, train: Data, tokenizers: Tokenizers) -> dict[str, Any]:
        """Return the number of tokens of the longest source."""
        assert isinstance(train, PairData)
        return {"longest_source": int(train.rows[0].lengths[train.samples].max()) + 1}


class CopyingValidator(Validator):
    """A validator that writes texts and scores them."""

    def more_scores(self, step: int) -> str:
        if not self.recipe.decoding.sentences:
            return ""
        sources, references, outputs = self.write(self.recipe.decoding.sentences)
        scores = self.score(outputs, references)
        self.scores |= scores
        shown = [source.replace(SEPARATOR, "|") for source in sources[: self.recipe.training.samples]]
        self.samples = list(zip(shown, references, outputs, strict=False))
        line = "".join(f"  {name} {value:.1f}" for name, value in scores.items())
        for source, _, output in self.samples[:2]:
            line += f"\n    {source}\n    → {output}"
        return line

    @abstractmethod
    def score(self, outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return the scores of the texts by name."""

    def write(self, count: int) -> tuple[Sequence[str], Sequence[str], list[str]]:
        """Return the first sources and references, and what the model writes for these sources."""
        assert self.corpus.target is not None
        decoding, (tokenizer, _) = self.recipe.decoding, self.tokenizers
        sources, references = self.corpus.source[:count], self.corpus.target[:count]
        longest = MARGIN + max(map(len, tokenizer.encode_all(references)))
        outputs: list[str] = []
        for start in range(0, len(sources), SENTENCES_PER_CALL):
            self.stop.check()
            chunk = tokenizer.encode_all(sources[start : start + SENTENCES_PER_CALL])
            hypotheses = generate_tokens(
                cast(TextModel, self.model),
                [wrap(ids, start=bool(self.recipe.model.get("source_start"))) for ids in chunk],
                search=Greedy() if decoding.beam == 1 else Beam(decoding.beam, decoding.length_penalty),
                max_tokens=decoding.max_tokens or longest,
                allow_unknown=False,
            )
            outputs += [tokenizer.decode(best.tokens) for best, *_ in hypotheses]
        return sources, references, outputs

    def rehearse(self, timed: Callable[..., float], *, seconds: float) -> tuple[float, float]:
        count = min(self.recipe.decoding.sentences, len(self.corpus))
        tried = min(count, REHEARSED)
        return (timed(self.write, tried) * count / tried if tried else 0.0), 0.0
