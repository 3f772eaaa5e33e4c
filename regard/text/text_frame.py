"""What stands around the texts of an imported translation model: its end tokens and the codes of languages.

Models for several languages read the code of a language before the source (Marian's ">>deu<<"), or write it first
(NLLB, M2M100, mBART).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regard.errors import UsageError
from regard.text.language_names import find_language
from regard.text.tokenizers.special_tokens import SpecialTokens

SHOWN_CODES = 12


@dataclass(frozen=True)
class TextFrame:
    """The tokens before and after a source, those that a target begins with, and the codes of languages.

    `source_code` and `target_code` say where the codes of the two languages stand: "before" or "after" the source, or
    before the "target"; None: nowhere.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    target_before: tuple[int, ...] = ()
    codes: Mapping[str, int] = field(default_factory=dict)
    source_code: str | None = None
    target_code: str | None = None
    chosen: tuple[str | None, str | None] = (None, None)  # the languages of source and target

    @classmethod
    def from_info(cls, info: Mapping[str, Any], special: SpecialTokens, *, source_start: bool = False) -> TextFrame:
        """Return the frame in config.json; the default is that of regard's own models, with an end token."""
        sides = info.get("frame") or {}
        source, target = sides.get("source") or {}, sides.get("target") or {}
        languages = info.get("language_codes") or {}
        return cls(
            tuple(source.get("before", [special.start] if source_start else [])),
            tuple(source.get("after", [special.end])),
            tuple(target.get("before", [])),
            languages.get("tokens", {}),
            languages.get("source"),
            languages.get("target"),
            (languages.get("default_source"), languages.get("default_target")),
        )

    def between(self, source: str | None, target: str | None) -> TextFrame:
        """Return the frame for two languages, such as "fr" or the model's own "fra_Latn"; None keeps what is set."""
        languages = [source, target]
        for i, (role, place) in enumerate((("source", self.source_code), ("target", self.target_code))):
            language = languages[i]
            if language is None:
                continue
            if place is None:
                raise UsageError(f"this model has no codes for the {role} language: leave out {role}={language!r}")
            languages[i] = find_language(language, self.codes)
        return replace(self, chosen=(languages[0] or self.chosen[0], languages[1] or self.chosen[1]))

    def around_source(self, *, coded: bool = False) -> tuple[list[int], list[int]]:
        """Return the tokens before and after a source; a `coded` one begins with the code of the target language."""
        codes = {"before": list(self.before), "after": list(self.after)}
        for role, place, language in self._places():
            if place in codes and not (coded and role == "target"):
                codes[place].append(self._code(role, language))
        return codes["before"], codes["after"]

    def before_target(self) -> list[int]:
        """Return the tokens that a target begins with, after the start token."""
        code = [self._code("target", self.chosen[1])] if self.target_code == "target" else []
        return [*self.target_before, *code]

    @property
    def code_places(self) -> tuple[str | None, str | None]:
        """Where the codes of the source and of the target language stand."""
        return self.source_code, self.target_code

    def _places(self) -> Sequence[tuple[str, str | None, str | None]]:
        return ("source", self.source_code, self.chosen[0]), ("target", self.target_code, self.chosen[1])

    def _code(self, role: str, language: str | None) -> int:
        if language is None:
            raise UsageError(
                f"this model translates between several languages: give the {role} language as {role}=…, one of "
                f"{listed(self.codes)}"
            )
        return self.codes[find_language(language, self.codes)]


def listed(codes: Mapping[str, int]) -> str:
    """Return the names of languages as a short list."""
    names = sorted(codes)
    more = f" and {len(names) - SHOWN_CODES} more" if len(names) > SHOWN_CODES else ""
    return ", ".join(names[:SHOWN_CODES]) + more
