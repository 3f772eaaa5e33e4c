"""Write a package of Argos Translate, which LibreTranslate uses too: a CTranslate2 folder and a sentencepiece model."""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path

from regard.errors import UsageError
from regard.interop.exports import ctranslate2_folder
from regard.interop.exports.model_source import ModelSource, new_file
from regard.models.config import TransformerConfig
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.version import __version__

STORAGES = ("int8", "float32", "float16", "bfloat16")
ARGOS_VERSION = "1.9"  # the oldest one that reads the package
# Names of languages by ISO 639-1; other codes are their own name.
LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "es": "Spanish", "et": "Estonian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi",
    "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian",
    "lv": "Latvian", "nb": "Norwegian", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sv": "Swedish", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def export(source: ModelSource, out: Path, storage: str) -> None:
    """Write the package; UsageError if Argos Translate cannot use the model."""
    metadata = _metadata(source)
    name = f"translate-{metadata['from_code']}_{metadata['to_code']}"
    with tempfile.TemporaryDirectory() as place, new_file(out) as package:
        folder = Path(place) / "model"
        ctranslate2_folder.export(source, folder, storage)
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=4))
            archive.writestr(f"{name}/README.md", f"# {source.name}\n\nWritten by regard {__version__}.\n")
            archive.write(folder / "sentencepiece.model", f"{name}/sentencepiece.model")
            for path in sorted(folder.iterdir()):
                if path.name not in ("sentencepiece.model", "README.md"):
                    archive.write(path, f"{name}/model/{path.name}")


def _metadata(source: ModelSource) -> dict[str, str]:
    if not isinstance(source.config, TransformerConfig):
        raise UsageError("Argos Translate takes translators; --to ct2 takes language models too")
    tokenizers = source.tokenizers
    if tokenizers[0] is not tokenizers[1] or not isinstance(tokenizers[0], SubwordTokenizer):
        raise UsageError("Argos Translate has one sentencepiece model for both sides; --to ct2 takes other tokenizers")
    if source.around_source() not in (([], []), ([], [source.special.end])):
        raise UsageError("Argos Translate puts nothing before a text; --to ct2 can")
    languages = source.info.get("languages") or {}
    codes = [str(languages.get(side) or "") for side in ("source", "target")]
    if not all(codes):
        raise UsageError(
            "the model does not name its languages, which the package needs: set data.source_language and "
            "data.target_language in its recipe, or languages in its config.json"
        )
    return {
        "package_version": "1.0",
        "argos_version": ARGOS_VERSION,
        "from_code": codes[0],
        "from_name": LANGUAGES.get(codes[0], codes[0]),
        "to_code": codes[1],
        "to_name": LANGUAGES.get(codes[1], codes[1]),
    }
