"""How good a model is while it trains: loss and perplexity, BLEU and chrF, some translations and where it looked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.api.translator import Translator
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.errors import RegardError
from regard.evaluation.alignment import choose_alignment_head
from regard.evaluation.bleu import corpus_bleu, corpus_chrf
from regard.text.tokenizers.special_tokens import END
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.loop.losses import Objective
from regard.training.loop.progress import Validation
from regard.training.loop.signals import StopFlag
from regard.training.loop.train_step import autocast
from regard.training.recipe.schema import LANGUAGE_MODELS, Recipe
from regard.training.run.prepare import Corpora, Data

BETWEEN_CHECKS = 256  # sentences that are translated before the next look at whether to stop
ALIGNED = 64  # validation sentences that choose the alignment head


class Validator:
    """Judges the model on the validation part. Perplexity is of the true likelihood, whatever the loss smooths."""

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        corpora: Corpora,
        data: Data,
        tokenizers: tuple[Tokenizer, Tokenizer],
        objective: Objective,
        *,
        folder: Path,
        device: torch.device,
        info: dict[str, Any],
        stop: StopFlag | None = None,
    ) -> None:
        self.stop = stop or StopFlag()  # a signal ends a validation midway
        self.model, self.recipe, self.corpus = model, recipe, corpora.validation
        self.data, self.objective, self.folder, self.device = data, objective, folder, device
        translates = recipe.kind not in (*LANGUAGE_MODELS, "encoder")
        self.translator = Translator(model, *tokenizers, info=info) if translates else None
        self.scores: dict[str, Any] = {}  # of the last validation
        self.samples: list[tuple[str, str, str]] = []

    def __call__(self, step: int) -> Validation:
        """All scores of the model as it is now; the generators of training are left as they are."""
        self.model.eval()
        with torch.inference_mode():
            self.scores = self.likelihood()
        line = f"validation: loss {self.scores['loss']:.3f}"
        if "accuracy" in self.scores:
            line += f"  right pair found {self.scores['accuracy']:.1%}"
        else:
            line += f"  perplexity {self.scores['perplexity']:.2f}"
        score = -self.scores["loss"]
        if self.translator is not None and self.recipe.decoding.sentences:
            bleu, chrf = self.translate()
            self.scores |= {"bleu": bleu.to_dict(), "chrf": chrf.to_dict()}
            line += f"  BLEU {bleu.value:.1f}  chrF {chrf.value:.1f}"
            for source, _, ours in self.samples[:2]:
                line += f"\n    {source}\n    → {ours}"
            self.draw(step)
            score = bleu.value
        return Validation(score, {**self.scores, "samples": self.samples}, line)

    def likelihood(self) -> dict[str, float]:
        """Loss a token in nats and perplexity; of a sentence encoder loss a pair and the share found."""
        nll = correct = 0.0
        tokens = 0
        for batch in self.data.batches(0):
            self.stop.check()
            with autocast(self.device, self.recipe.training.precision):
                found = self.objective(self.model, batch.to(self.device))
            nll, tokens = nll + float(found.nll), tokens + found.tokens
            correct += 0.0 if found.correct is None else float(found.correct)
        loss = nll / max(tokens, 1)
        if self.recipe.kind == "encoder":
            return {"loss": loss, "accuracy": correct / max(tokens, 1)}
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}

    def translate(self) -> Any:
        """BLEU and chrF of the first sentences; some of them are kept as samples."""
        assert self.translator is not None
        assert self.corpus.target is not None
        decoding = self.recipe.decoding
        search = Greedy() if decoding.beam == 1 else Beam(decoding.beam, length_penalty=decoding.length_penalty)
        sources, references = self.corpus.source[: decoding.sentences], self.corpus.target[: decoding.sentences]
        ours: list[str] = []
        for start in range(0, len(sources), BETWEEN_CHECKS):
            self.stop.check()
            some = sources[start : start + BETWEEN_CHECKS]
            found = self.translator.translate(some, search=search, max_tokens=decoding.max_tokens, guard=False)
            ours += [translation.text for translation in found]
        self.samples = list(zip(sources, references, ours, strict=True))[: self.recipe.training.samples]
        tokenize = "none" if self.recipe.tokenizer.tokenised else "13a"  # its words are what counts already
        return corpus_bleu(ours, references, tokenize=tokenize), corpus_chrf(ours, references)

    def draw(self, step: int) -> None:
        """A picture of where the model looked while it wrote the first sample."""
        assert self.translator is not None
        if not self.samples or self.recipe.kind == "rnn-seq2seq":
            return
        from regard.look.pictures import figures
        from regard.look.pictures.matrices import alignment_plot

        source, _, ours = self.samples[0]
        try:
            shown = self.translator.align(source, ours)
        except RegardError:  # an untrained model may write nothing at all
            return
        folder = self.folder / "alignments"
        folder.mkdir(exist_ok=True)
        figure = alignment_plot(shown.weights, shown.source, shown.target, title=f"step {step}")
        figures.save(figure, folder / f"step-{step:08d}.png")

    def alignment_head(self) -> dict[str, Any] | None:
        """The layer and head whose weights say most about the translation, for config.json; no gold is needed."""
        if self.translator is None or self.recipe.kind == "rnn-seq2seq":
            return None
        assert self.corpus.target is not None
        maps, sources, targets = [], [], []
        for source, target in zip(self.corpus.source[:ALIGNED], self.corpus.target[:ALIGNED], strict=True):
            read = self.translator.read(source).ids
            wanted = [*self.translator.target_tokenizer.encode(target), END]
            layers = self.translator.attention_of(read, wanted).layers
            maps.append({name: weights for name, weights in layers.items() if name.endswith("cross")})
            sources.append(read)
            targets.append(wanted)
        return choose_alignment_head(maps, sources, targets).to_dict()
