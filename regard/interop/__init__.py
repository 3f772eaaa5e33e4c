"""Other people's models: read them, and write them as model folders of regard.

importing      from a source to a model folder
families/      llama, gpt2, bert, marian: a family each, with its settings and its table;
               sentence_transformers: what stands around an encoder, its pooling and the longest text
files/         hub_folder: a folder in the format of Hugging Face, whose content is not trusted;
               marian_file, flat_yaml: the files of Marian;
               settings_file: takes every key of a foreign settings file, or refuses it by name;
               torch_file: pytorch_model.bin, read without unpickling; torch_opcodes has the interpreter
               gguf_file, ctranslate2_file: the files of llama.cpp and CTranslate2
single_files/  gguf, llama2c, nanogpt: models in one file, with what lies beside it
word_vectors_import  text files of word2vec and GloVe
translators    models that translate: their tokenizers, the tokens around a text, the codes of languages;
               translator_tokens: the special tokens and the usual search; marian_tokenizers: sentencepiece models;
               marian_folder: a model of Marian itself, and what lies beside it
weight_table   maps weights by a table, in both directions
chat_template  the form of chat prompts, by the markers in a template
card           the model card
exports/       other tools' formats: one module each
comparison     the same texts through transformers and through the import
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.interop.exports.exporting import export_model
    from regard.interop.importing import Imported, import_model, read

_WHERE = {  # imported on first use
    "Imported": "importing",
    "export_model": "exports.exporting",
    "import_model": "importing",
    "read": "importing",
}

__all__ = ["Imported", "export_model", "import_model", "read"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
