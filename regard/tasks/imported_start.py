"""What a training run keeps of the imported model that it starts from: its special tokens, and how it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.models.folder import read_config
from regard.models.presets import MODELS
from regard.recipes.tables import RecipeTables
from regard.text.batches.pair_frame import PairFrame
from regard.text.text_frame import TextFrame
from regard.text.tokenizers.special_tokens import DEFAULT, LANGUAGE_CODE, SpecialTokens

# Entries of config.json that stay true however long a model is trained on.
KEPT = ("frame", "language_codes", "search", "chat", "prompts", "max_tokens", "context", "languages", "imported")
LICENSE = "## License\n\n"  # the last section of a model card


@dataclass(frozen=True)
class ImportedStart:
    """An imported model, before it is trained on. `info` are the entries of its config.json that are kept."""

    name: str
    special: SpecialTokens
    info: Mapping[str, Any]
    source_start: bool = False
    license: str = ""  # the section of the model card

    @classmethod
    def of_folder(cls, folder: Path) -> ImportedStart | None:
        """Return what a model folder says; None if regard has trained its model from the beginning."""
        settings = read_config(folder)
        config: Any = MODELS[settings["kind"]][0].from_dict(settings["model"])
        special: SpecialTokens = config.special_tokens
        if "imported" not in settings and special == DEFAULT:
            return None
        info = {key: settings[key] for key in KEPT if key in settings}
        card = folder / "README.md"
        text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
        license = text.partition(LICENSE)[2].strip()
        return cls(folder.name, special, info, getattr(config, "source_start", False), license)

    def between(self, recipe: RecipeTables) -> ImportedStart:
        """Return the same for a model with codes of languages, with those of a recipe as its languages.

        UsageError if the recipe asks for what needs a tokenizer of regard.
        """
        if recipe.data.placeholders:
            raise UsageError(f"--init {self.name}: data.placeholders needs regard's own tokenizers")
        codes = self.info.get("language_codes")
        if not codes:
            return self
        frame = self.text_frame
        given = (recipe.data.source_language, recipe.data.target_language)
        chosen = [name if place else None for name, place in zip(given, frame.code_places, strict=True)]
        source, target = frame.between(*chosen).chosen
        defaults = {"default_source": source, "default_target": target}
        known = {key: language for key, language in defaults.items() if language is not None}
        return dataclasses.replace(self, info={**self.info, "language_codes": {**codes, **known}})

    @property
    def text_frame(self) -> TextFrame:
        """The tokens around the texts of a translation model or a sentence encoder."""
        return TextFrame.from_info(self.info, self.special, source_start=self.source_start)

    def translation_frame(self, sources: Sequence[str]) -> PairFrame:
        """Return the frame of pairs with these sources, which may all begin with the code of a language."""
        coded = bool(sources) and all(map(LANGUAGE_CODE.match, sources))
        try:
            return PairFrame.of_translator(self.text_frame, self.special, coded=coded)
        except UsageError as error:
            raise UsageError(
                f"--init {self.name}: {error}; in a recipe or with --set, they are data.source_language and "
                "data.target_language"
            ) from error

    @property
    def encoder_frame(self) -> PairFrame:
        """The frame of both sides of a pair for a sentence encoder."""
        return PairFrame.of_encoder(self.text_frame, self.special)

    def final_info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of config.json after training, from those that the run has found.

        A run reads shorter texts than the import was made for, which does not shorten what the model can read.
        """
        unseen = ("unseen_pieces", "known_names")  # in this run; the authors' training has seen them
        found = {key: value for key, value in info.items() if key not in unseen}
        longest = [size for size in (info.get("context"), self.info.get("context")) if size is not None]
        return {**found, **self.info, **({"context": max(longest)} if longest else {})}
