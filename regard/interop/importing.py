"""Import a model: read a source, and write it as a model folder that `regard.load` and every command take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from regard.errors import ModelError, UsageError, unknown_name
from regard.interop import argos_import, ctranslate2_import, marian_folder, translators
from regard.interop.card import write_card
from regard.interop.chat_template import MAX_CHARACTERS, recognize_chat
from regard.interop.families import bert, distilbert, gpt2, llama, marian_original
from regard.interop.families.family import Plan, TokenIds
from regard.interop.families.sentence_transformers import with_pooling
from regard.interop.files.hub_folder import DTYPES, HubFolder
from regard.interop.files.settings_file import SettingsFile
from regard.interop.files.weight_source import WeightSource
from regard.interop.single_files.recognize import recognize
from regard.interop.weight_table import WeightTable
from regard.interop.word_vectors_import import is_vector_file, read_word_vectors
from regard.machine.lazy_torch import torch
from regard.models.config import Config, EncoderConfig
from regard.models.folder.config_file import STORAGES, read_json, shortened
from regard.models.folder.weights_file import Storage, form_of_storage
from regard.text.chat import is_chat_format
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.tokenizer import BYTES_PER_TOKEN, EXTRA_BYTES_IMPORTED, Tokenizer, tokenizer_files

# What `model_type` in config.json may be.
FAMILIES: dict[str, Callable[[SettingsFile, TokenIds], Plan]] = {
    **dict.fromkeys(llama.ARCHITECTURES, llama.make_plan),
    "gpt2": gpt2.make_plan,
    **dict.fromkeys(bert.ARCHITECTURES, bert.make_plan),
    "distilbert": distilbert.make_plan,
}
MARIAN_TOKENS = 256  # of a text that is translated as a whole; Marian trains on at most 50 to 200
KNOWN = (*FAMILIES, *translators.FAMILIES)
# Of generation_config.json: what has no effect on a search, and what `regard generate` has options for.
GENERATION_HARMLESS = (
    *("_from_model_config", "transformers_version", "output_attentions", "output_hidden_states", "use_cache"),
    *("return_dict_in_generate", "output_scores", "output_logits", "cache_implementation", "trust_remote_code"),
)
GENERATION_OPTIONS = (
    *("do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "max_length"),
    *("max_new_tokens", "min_length", "num_beams", "length_penalty", "early_stopping", "no_repeat_ngram_size"),
    *("num_return_sequences",),
)


@dataclass(frozen=True)
class Imported:
    """A model of another library, read but not yet written: its settings as ours, and its weights one at a time."""

    config: Config
    tokenizer: Any  # of the texts that it writes, or of all texts
    info: Mapping[str, Any]  # for config.json
    storage: str  # that keeps every number
    family: str
    table: WeightTable
    folder: HubFolder | WeightSource
    notes: tuple[str, ...]
    source_tokenizer: Tokenizer | None = None  # of a translation model, if another one reads its source

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of source and target."""
        return self.source_tokenizer or self.tokenizer, self.tokenizer

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield our weights by name, in the type of the source."""
        return self.table.read(self.folder.get)

    def model(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """Return the model in memory, in float32 unless `dtype` is given."""
        from regard.models.folder.loading import fill, make_empty

        dtype = torch.float32 if dtype is None else dtype
        return fill(make_empty(self.config), {name: weight.to(dtype) for name, weight in self.weights()})


def read(
    source: str | Path, *, family: str | None = None, allow_keys: Collection[str] = (), positions: str = "hf"
) -> Imported:
    """Read a model of another library: a folder in the format of Hugging Face, or a file (GGUF, llama2.c,
    nanoGPT, or word vectors as text).

    `family` is one of FAMILIES, by default what the folder says. A key of its settings that regard does not know is an
    error; `allow_keys` are keys to accept all the same. `positions` "original" computes those of a Marian model as
    Marian does, and not as transformers does.
    """
    if family is not None and family not in KNOWN:
        raise UsageError(unknown_name("family of models", family, KNOWN))
    if marian_folder.is_marian(Path(source)):
        return _read_marian(Path(source), allow_keys)
    if Path(source).is_file() and argos_import.is_package(Path(source)):
        return _read_ctranslate2(Path(source), argos_import.read_package(Path(source), allow_keys))
    if Path(source).is_file() and is_vector_file(Path(source)):
        return _read_words(Path(source))
    if Path(source).is_file():
        return _read_file(Path(source), allow_keys)
    if ctranslate2_import.is_folder(Path(source)):
        return _read_ctranslate2(Path(source), ctranslate2_import.read_folder(Path(source), allow_keys))
    folder = HubFolder(Path(source), allowed_keys=allow_keys)
    settings = folder.settings("config.json")
    named = settings.content.get("model_type")
    if family is not None:
        settings.content["model_type"] = family
    elif not isinstance(named, str) or named not in KNOWN:
        known = unknown_name("model_type", named, KNOWN)
        raise ModelError(f"{settings.path}: {shortened(known)}; regard cannot import other families yet")
    family = family or cast("str", named)
    if family in translators.FAMILIES:
        return _read_translator(folder, settings, family, positions)
    if positions != "hf":
        raise UsageError(f"positions={positions!r} is for Marian models, and this one is of the family {family}")
    tokenizer = _read_tokenizer(folder, settings)
    tokens, notes = _token_ids(folder, settings, tokenizer)
    try:
        plan = FAMILIES[family](settings, tokens)
    except UsageError as error:  # a setting out of range
        raise ModelError(f"{settings.path}: {shortened(error)}") from error
    settings.finish()
    info: dict[str, Any] = {"context": plan.context, "frame": {"target": {"before": list(tokens.before)}}}
    if isinstance(plan.config, EncoderConfig):
        config, around, notes = with_pooling(plan.config, folder)
        plan = replace(plan, config=config)
        frame = {"before": list(tokens.before), "after": list(tokens.after)}
        info = {"context": plan.context, **around, "frame": {"source": frame}}
    elif template := _chat_template(folder):
        chat, note = chat_entry(template, tokens, tokenizer)
        info, notes = info | chat, [*notes, note]
    _check_sizes(folder.root, tokenizer, plan)
    table = _open_weights(folder, plan)
    info["imported"] = {"family": family, "source": folder.root.name, "files": folder.fingerprints()}
    return Imported(plan.config, tokenizer, info, folder.storage, family, table, folder, (*notes, *plan.notes))


def _read_translator(folder: HubFolder, settings: SettingsFile, family: str, positions: str) -> Imported:
    tokenizer = None if family == "marian" else _read_tokenizer(folder, settings)
    plan, (source, target), info = translators.read_translator(folder, settings, tokenizer, positions=positions)
    settings.finish()
    for side, rows in zip((source, target), plan.config.vocabularies, strict=True):
        if side.size > rows:
            raise ModelError(f"{folder.root}: a tokenizer has {side.size} tokens, but the model only {rows}")
    table = _open_weights(folder, plan)
    info["imported"] = {"family": family, "source": folder.root.name, "files": folder.fingerprints()}
    return Imported(plan.config, target, info, folder.storage, family, table, folder, tuple(plan.notes), source)


def _read_ctranslate2(path: Path, model: ctranslate2_import.CTranslate2Model) -> Imported:
    """Return what a folder of CTranslate2 or a package of Argos Translate has."""
    for tokenizer, rows in zip(reversed(model.tokenizers), reversed(model.plan.config.vocabularies), strict=False):
        if tokenizer.size > rows:
            raise ModelError(f"{path}: a tokenizer has {tokenizer.size} tokens, but the model only {rows}")
    table = make_table(path, model.plan)
    _check_weights(path, table, model.weights, model.plan)
    info = {**model.info, "imported": {"family": "ctranslate2", "source": path.resolve().name}}
    info["imported"]["files"] = model.weights.fingerprints()
    source, target = model.tokenizers
    separate = None if source is target else source
    return Imported(
        model.plan.config,
        target,
        info,
        model.weights.storage,
        "ctranslate2",
        table,
        model.weights,
        model.notes,
        separate,
    )


def _read_marian(source: Path, allow_keys: Collection[str]) -> Imported:
    """Read a model of Marian itself, `.npz` or `.bin`."""
    folder = marian_folder.open_folder(source, allow_keys=allow_keys)
    source_tokenizer, target_tokenizer, tokens, read_files = marian_folder.read_tokenizers(folder)
    search = marian_folder.read_search(folder.decoding)
    model = folder.model
    settings = SettingsFile(f"{model.path}: the settings", model.settings, allowed=allow_keys)
    try:
        plan = marian_original.make_plan(settings, tokens, model.shapes)
    except UsageError as error:  # a setting out of range
        raise ModelError(f"{model.path}: {shortened(error)}") from error
    settings.finish()
    weights = WeightSource(model.path, model.shapes, model.get, model.dtypes, (*folder.beside, *read_files))
    table = make_table(model.path, plan)
    _check_weights(model.path, table, weights, plan)
    info: dict[str, Any] = {
        "max_tokens": MARIAN_TOKENS,
        "frame": {"source": {"before": [], "after": [tokens.end]}, "target": {"before": []}},
        "search": search,
        "imported": {"family": "marian", "source": model.path.name, "files": weights.fingerprints()},
    }
    if len(source_tokenizer.codes) > 1:
        info["language_codes"] = {"tokens": source_tokenizer.codes, "source": None, "target": "before"}
    notes = ("Computed as Marian does. transformers and CTranslate2 compute other positions, and other translations.",)
    return Imported(
        plan.config, target_tokenizer, info, weights.storage, "marian", table, weights, notes, source_tokenizer
    )


def _read_words(path: Path) -> Imported:
    """Read a text file of word vectors."""
    plan, tokenizer, weights = read_word_vectors(path)
    info = {"imported": {"family": "words", "source": path.name, "files": weights.fingerprints()}}
    return Imported(
        plan.config, tokenizer, info, weights.storage, "words", make_table(path, plan), weights, tuple(plan.notes)
    )


def _read_file(path: Path, allow_keys: Collection[str]) -> Imported:
    """Read a model in one file, such as GGUF, whose format its content shows."""
    try:
        file = recognize(path)(path, allow_keys)
    except UsageError as error:  # a setting out of range
        raise ModelError(f"{path}: {shortened(error)}") from error
    plan, notes = file.plan, [*file.notes, *file.plan.notes]
    info: dict[str, Any] = {"context": plan.context, "frame": {"target": {"before": list(file.tokens.before)}}}
    if file.chat_template:
        chat, note = chat_entry(file.chat_template, file.tokens, file.tokenizer)
        info, notes = info | chat, [*notes, note]
    _check_sizes(path, file.tokenizer, plan)
    table = make_table(path, plan)
    _check_weights(path, table, file.weights, plan)
    info["imported"] = {"family": file.family, "source": path.name, "files": file.weights.fingerprints()}
    storage = file.weights.storage
    return Imported(plan.config, file.tokenizer, info, storage, file.family, table, file.weights, tuple(notes))


def import_model(
    source: str | Path,
    out: str | Path,
    *,
    storage: Storage | None = None,
    family: str | None = None,
    allow_keys: Collection[str] = (),
    check: bool = False,
    positions: str = "hf",
) -> Path:
    """Import a model into a new model folder and return it; the other arguments are those of `read`.

    `storage` is the type of the stored weights, by default that of the source. With `check`, transformers and the
    import read the same texts, and a difference is an error; the largest one goes into the model card.
    """
    from regard.models.folder.saving import write_folder
    from regard.models.folder.streamed_weights import write_weights

    if storage is not None and storage not in STORAGES:
        raise UsageError(unknown_name("storage", storage, STORAGES))
    out = Path(out)
    if out.exists() and not (out / "manifest.json").is_file():
        raise UsageError(f"{out} exists and is not a model folder: choose another name")
    if out.resolve() == Path(source).resolve():
        raise UsageError(f"{out} is the source itself: choose another name for the model folder")
    if check and Path(source).is_file():
        raise UsageError("transformers compares folders only: import this file without --check")
    imported = read(source, family=family, allow_keys=allow_keys, positions=positions)
    difference = None
    if check:
        from regard.interop.comparison import compare

        difference = compare(imported)
    chosen = cast("Storage", imported.storage if storage is None else storage)
    if storage is None and form_of_storage(chosen, imported.config.kind) != chosen:
        chosen = "float32"  # integers of rows would be rounded again, to integers in groups
    form = form_of_storage(chosen, imported.config.kind)
    return write_folder(
        out,
        imported.config,
        lambda path: write_weights(path, imported.table.ours, imported.weights(), form),
        storage=chosen,
        files=tokenizer_files(*imported.tokenizers),
        info=imported.info,
        card=write_card(imported, chosen, difference),
    )


def _read_tokenizer(folder: HubFolder, settings: SettingsFile) -> ImportedTokenizer:
    path = folder.path("tokenizer.json")
    if path is None:
        raise ModelError(
            f"{folder.root}: there is no tokenizer.json; save the tokenizer with transformers, which writes one"
        )
    vocabulary = settings.content.get("vocab_size")
    size = vocabulary if type(vocabulary) is int and vocabulary > 0 else 0
    limit = BYTES_PER_TOKEN[ImportedTokenizer.FILE] * size + EXTRA_BYTES_IMPORTED
    if path.stat().st_size > limit:
        raise ModelError(f"{path}: larger than {limit} bytes, which is too large for a tokenizer with {size} tokens")
    try:
        return ImportedTokenizer(path.read_bytes())
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _token_ids(folder: HubFolder, settings: SettingsFile, tokenizer: ImportedTokenizer) -> tuple[TokenIds, list[str]]:
    """Return the special tokens, and notes about what is not taken over.

    generation_config.json has precedence over config.json. The tokens before a text are those of tokenizer.json.
    """
    generation = folder.settings("generation_config.json", required=False)

    def ids(key: str) -> tuple[int, ...]:
        own, general = generation.take_tokens(key), settings.take_tokens(key)
        return own or general

    before, after = tokenizer.frame()
    _check_frame(folder, before)
    ends, start, pad = ids("eos_token_id"), ids("bos_token_id"), ids("pad_token_id")
    ends = ends or tuple(after[-1:])
    if not ends:
        raise ModelError(f"{settings.path}: there is no eos_token_id, the token that ends a text")
    if wrong := [token for token in (*ends, *start, *pad) if token >= tokenizer.size]:
        raise ModelError(f"{settings.path}: token {wrong[0]} is none of the {tokenizer.size} of the tokenizer")
    for key in ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "forced_bos_token_id"):
        generation.must_be(key, [])
        settings.must_be(key, [])
    for key in ("forced_eos_token_id", "forced_decoder_ids", "sequence_bias", "stop_strings"):
        generation.must_be(key)
    options = {key: generation.content[key] for key in GENERATION_OPTIONS if generation.content.get(key) is not None}
    generation.ignore(*GENERATION_HARMLESS, *GENERATION_OPTIONS)
    settings.ignore(*GENERATION_OPTIONS)  # as transformers 4 wrote them
    generation.finish()
    notes = []
    if options:
        listed = ", ".join(f"{key} {shortened(value)}" for key, value in options.items())
        notes.append(f"Its authors generate with these options, which are not defaults here: {listed}.")
    if after:
        notes.append("The tokenizer puts an end token after each text; a prompt here has none, so it can go on.")
    first, padding = (each[0] if each else None for each in (start, pad))
    around = tuple(before), tuple(after)
    return TokenIds(first, ends, padding, tokenizer.unknown, tokenizer.size, *around), notes


def _check_frame(folder: HubFolder, before: list[int]) -> None:
    """Raise ModelError if tokenizer_config.json contradicts the tokens before a text in tokenizer.json."""
    path = folder.path("tokenizer_config.json")
    if path is None or "add_bos_token" in folder.allowed_keys:
        return
    flag = read_json(path.resolve()).get("add_bos_token")
    if isinstance(flag, bool) and flag != bool(before):
        raise ModelError(
            f"{path}: add_bos_token is {str(flag).lower()}, but tokenizer.json puts {len(before)} tokens before a "
            "text; --allow-key add_bos_token takes what tokenizer.json says"
        )


def _chat_template(folder: HubFolder) -> str:
    """Return the chat template of a folder, a file of its own or in tokenizer_config.json; empty if there is none."""
    path = folder.path("chat_template.jinja")
    if path is not None:
        return path.read_bytes()[: MAX_CHARACTERS + 1].decode(errors="replace")
    path = folder.path("tokenizer_config.json")
    template = None if path is None else read_json(path.resolve()).get("chat_template")
    if isinstance(template, list):  # several with names
        named = (entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default")
        template = next(named, {}).get("template")
    return template if isinstance(template, str) else ""


def chat_entry(template: str, tokens: TokenIds, tokenizer: ImportedTokenizer) -> tuple[dict[str, Any], str]:
    """Return the entry of config.json for the chat template of a model, if it is a known one, and a note about it."""
    start, end = ("" if token is None else tokenizer.name(token) for token in (tokens.start, tokens.ends[0]))
    form = recognize_chat(template, start=start, end=end)
    if form is None or not is_chat_format(form.to_dict()):
        return {}, "Its chat template is none that regard knows, so the model continues texts, and does not chat."
    return {"chat": form.to_dict()}, "Its chat prompts are recognized: `regard generate --chat` talks to it."


def _open_weights(folder: HubFolder, plan: Plan) -> WeightTable:
    """Open the files of the weights and check names, shapes and types; copies of a weight must equal it."""
    folder.open_weights()
    folder.rename(plan.prefix)
    table = make_table(folder.root, plan)
    _check_weights(folder.root, table, folder, plan)
    for name, dtype in sorted(folder.dtypes.items()):
        if table.unused.fullmatch(name):
            del folder.dtypes[name]
        elif dtype not in DTYPES:
            raise ModelError(
                f"{folder.root}: the weight {shortened(repr(name))} is stored as {dtype}, and regard reads "
                f"{', '.join(DTYPES)}"
            )
    return table


def make_table(path: Path, plan: Plan) -> WeightTable:
    """Return the table of weights of a plan, with the shapes that its config asks for."""
    from regard.models.folder.loading import make_empty
    from regard.models.folder.weights_file import distinct_weights

    try:
        empty = make_empty(plan.config)
    except ValueError as error:  # settings that do not go together
        raise ModelError(f"{path}: {shortened(error)}") from error
    shapes = {name: tuple(weight.shape) for name, weight in distinct_weights(empty).items()}
    return WeightTable(plan.rows, ours=shapes, unused=plan.unused, excluded=plan.excluded)


def _check_weights(path: Path, table: WeightTable, source: HubFolder | WeightSource, plan: Plan) -> None:
    """Check names and shapes; copies of a weight must equal it."""
    table.check(path, {name: shape for name, shape in source.shapes.items() if name not in plan.copies})
    for copied, original in plan.copies.items():
        if copied in source.shapes and not torch.equal(source.get(copied), source.get(original)):
            raise ModelError(
                f"{path}: by its settings they are one matrix, but the weights {copied!r} and {original!r} differ; a "
                "checkpoint like this is damaged"
            )


def _check_sizes(path: Path, tokenizer: ImportedTokenizer, plan: Plan) -> None:
    if tokenizer.size > plan.config.vocabularies[-1]:
        sizes = f"the tokenizer has {tokenizer.size} tokens, but the model only {plan.config.vocabularies[-1]}"
        raise ModelError(f"{path}: {sizes}")
