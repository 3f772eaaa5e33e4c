"""`regard.load`: from a name or a folder to a model that is ready to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from regard.api.model_names import find_model
from regard.api.translator import Translator
from regard.decoding.cpu import folder_model
from regard.decoding.cpu.folder_model import FolderModel
from regard.errors import ModelError, UsageError, unknown_name
from regard.machine import find_device, one_thread
from regard.machine.lazy_torch import torch
from regard.tasks import task_for
from regard.text.tokenizers.characters import CharacterTokenizer
from regard.text.tokenizers.special_tokens import DEFAULT, PAD
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer, read_tokenizers

if TYPE_CHECKING:
    from torch import nn

    from regard.api.arrays.captioner import Captioner
    from regard.api.arrays.forecaster import Forecaster
    from regard.api.arrays.image_classifier import ImageClassifier
    from regard.api.arrays.transcriber import Transcriber
    from regard.api.classifier import Classifier
    from regard.api.copying.answerer import Answerer
    from regard.api.copying.summarizer import Summarizer
    from regard.api.embedder import Embedder
    from regard.api.word_vectors import WordVectors
    from regard.api.writer import Writer

    Face: TypeAlias = (
        Translator
        | Writer
        | Embedder
        | Classifier
        | Summarizer
        | Answerer
        | WordVectors
        | ImageClassifier
        | Captioner
        | Forecaster
        | Transcriber
    )

DTYPES = ("float32", "bfloat16", "float16", "float64")
ROUNDED = ("int8", "int4")  # weights, on a CPU

PAD_IS_ZERO = (SubwordTokenizer, CharacterTokenizer)  # regard's own; imported ones have special tokens anywhere


def load(name_or_folder: str | Path, *, device: str | torch.device = "auto", dtype: str | torch.dtype = "auto") -> Face:
    """Load the model in a folder, or the shipped model with that name, ready to use.

    The kind of model determines the result: a Translator, a Writer (language models), an Embedder (sentence
    encoders), a Classifier (text classifiers), a Summarizer, an Answerer, WordVectors, an ImageClassifier, a
    Captioner, a Forecaster or a Transcriber.
    `device` "auto" is the first of CUDA, MPS and CPU that this machine has. `dtype` "auto" is float32; "int8" and
    "int4" round the weights, which a CPU reads faster (decoding/cpu/quantize.py).

    In float32 on a CPU the model decodes with a packed copy of its matrices (decoding/cpu/packed_copy.py), as the
    command line does. `.model` is the plain module. In a process that has not imported torch, a Transformer that
    translates is read without it, and `.model` is made on first use (decoding/cpu/folder_model.py).

    >>> import regard
    >>> regard.load("fr-en", device="cpu").translate("Je t'aime.").text
    'I love you.'
    """
    folder = find_model(name_or_folder)
    model: Any
    if folder_model.why_not(folder, device=device, dtype=dtype) is None:
        model = FolderModel(folder)
        info, wrap = model.info, Translator
    else:
        model, info = load_modules(folder, device, dtype)
        wrap = wrap_model  # type: ignore[assignment]  # also a function of a model and its tokenizers
    try:
        sizes = model.config.vocabularies
        tokenizers = read_tokenizers(folder, max_tokens=max(sizes, default=0), expected=bool(sizes))
        return wrap(model, *tokenizers, info=info, pack=True)
    except ModelError as error:
        raise error if str(folder) in str(error) else ModelError(f"{folder}: {error}") from error


def load_modules(
    folder: Path, device: str | torch.device, dtype: str | torch.dtype
) -> tuple[nn.Module, dict[str, Any]]:
    """Load the model of a folder as modules, and its config.json; device and dtype as in `load`."""
    from regard.decoding.cpu.quantize import form_of_dtype, pack_weights
    from regard.kernels import fuse
    from regard.models.folder import load_with_config

    if dtype in ROUNDED:
        device, number = "cpu" if device == "auto" else device, torch.float32
    else:
        number = find_dtype(dtype)
    with one_thread():
        model, info = load_with_config(folder, device=find_device(device), dtype=number)
        return fuse(pack_weights(model, form_of_dtype(model, str(dtype))) if dtype in ROUNDED else model), info


def wrap_model(
    model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
) -> Face:
    """Return what `regard.load` returns for a model in memory; for `pack` see the Translator and the Writer."""
    from regard.models.protocols import config_of

    config = config_of(model)
    task = task_for(config.kind)
    if config.pad_id != PAD and any(isinstance(tokenizer, PAD_IS_ZERO) for tokenizer in (source, target)):
        raise ModelError(f"the model uses token {config.pad_id} for padding, but the tokenizers use {PAD}")
    if not task.own_special_tokens and config.special_tokens != DEFAULT:
        raise ModelError(f"a model of kind {config.kind!r} with special tokens of its own cannot be used yet")
    return task.wrap(model, source, target, info=info, pack=pack)


def one_tokenizer(model: nn.Module, source: Tokenizer, target: Tokenizer) -> Tokenizer:
    """Return the tokenizer of a model with one vocabulary; ModelError if there are two."""
    from regard.models.protocols import config_of

    if source is not target:
        raise ModelError(f"there are two tokenizers, but a model of kind {config_of(model).kind!r} has one vocabulary")
    return source


def find_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the dtype of that name; "auto" is float32 on every device."""
    if isinstance(dtype, torch.dtype):
        if str(dtype).removeprefix("torch.") not in DTYPES:
            raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype}")
        return dtype
    if dtype == "auto":
        return torch.float32
    if dtype not in DTYPES:
        raise UsageError(unknown_name("dtype", dtype, ("auto", *DTYPES, *ROUNDED)))
    return getattr(torch, dtype)
