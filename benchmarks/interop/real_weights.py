"""Published models after an import: the same outputs and the same greedy texts as with transformers.

    python benchmarks/interop/real_weights.py DIR
    python benchmarks/interop/real_weights.py all-MiniLM-L6-v2 SmolLM2-135M-Instruct.Q4_1.gguf stories260K.bin

Each argument is a folder in the format of Hugging Face, a GGUF file, stories260K of llama2.c with tok512.bin beside
it, the folder of a model of Firefox Translations, or a folder that contains such models anywhere. Every model is
imported into a temporary folder; the time and the sizes are kept. It is compared with transformers in float32: its
tokens and outputs on the texts of `regard import --check`; of a language model also greedy texts, and the perplexity of
a text with the weights in float32 and in int8. For a GGUF file, transformers reads the same file (which needs gguf and
accelerate). stories260K writes the 200 tokens that its author published. Similarities of MiniLM are those of its
documentation. Models of Firefox translate some sentences; firefox_model.py compares them with Marian. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.timing import command, hardware, keep
from regard.interop import import_model, read
from regard.interop.comparison import TEXTS, compare
from regard.interop.marian_folder import is_marian
from regard.models.config import TransformerLMConfig

NEW_TOKENS = 32
TEXT = Path(__file__).parents[2] / "LICENSE"  # English that every checkout has
# SHA-256 of the text that test_all.py of llama2.c expects of stories260K: 200 greedy tokens, the start token first.
PUBLISHED_TEXT = "beeb5cb46785efee81a8545300b31e396b595e5ce6f3b77db201545501981d14"
PUBLISHED_TOKENS = 200
# The cosines that the documentation of sentence-transformers prints for all-MiniLM-L6-v2 and these sentences.
SENTENCES = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
PUBLISHED_COSINES = torch.tensor([[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]])
PORTUGUESE = ("O gato dorme no tapete.", "Ele comprou dois livros em Lisboa.", "Amanhã vai chover.")


def measure(source: Path, *, new_tokens: int = NEW_TOKENS) -> dict[str, Any]:
    """Return what a comparison of one model found."""
    imported = read(source)
    result: dict[str, Any] = {"family": imported.family, "source bytes": size_of(source)}
    with tempfile.TemporaryDirectory() as place:
        start = time.perf_counter()
        folder = import_model(source, Path(place) / "model")
        result |= {"import seconds": round(time.perf_counter() - start, 1), "folder bytes": size_of(folder)}
        if is_marian(source):
            translator = regard.load(folder, device="cpu")
            result["translations"] = {text: translator.translate(text).text for text in PORTUGUESE}
            return result
        if source.suffix == ".bin":
            written = regard.load(folder, device="cpu").write("", search=regard.Greedy(), max_tokens=PUBLISHED_TOKENS)
            result["published text"] = hashlib.sha256(written.encode()).hexdigest() == PUBLISHED_TEXT
            return result
        with reference(source) as hub:
            result["largest difference"] = compare(read(hub))
            if source.is_file():
                theirs = dict(read(hub).weights())
                result["weights"] = len(theirs)
                result["equal weights"] = sum(torch.equal(theirs[name], ours) for name, ours in imported.weights())
            if not isinstance(imported.config, TransformerLMConfig):
                embedder = regard.load(folder, device="cpu")
                if "minilm-l6" in str(source).lower().replace("_", "-"):
                    cosines = embedder.similarity(list(SENTENCES), list(SENTENCES))
                    result["largest difference of a published cosine"] = (
                        (cosines - PUBLISHED_COSINES).abs().max().item()
                    )
                return result
            result["greedy texts"] = len(TEXTS)
            result["equal greedy texts"] = equal_texts(hub, folder, new_tokens)
        text = TEXT.read_text(encoding="utf-8")[:4000]
        for dtype in ("float32", "int8"):
            writer = regard.load(folder, device="cpu", dtype=dtype)
            result[f"perplexity {dtype}"] = round(writer.perplexity(text).perplexity, 3)
    return result


@contextmanager
def reference(source: Path) -> Iterator[Path]:
    """Yield the folder that transformers opens: the source, or what transformers makes of a GGUF file."""
    if source.is_dir():
        yield source
        return
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = {"gguf_file": source.name, "local_files_only": True}
    read_model = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **options)
    if hasattr(read_model.config, "quantization_config"):
        del read_model.config.quantization_config
    fresh = type(read_model)(read_model.config)  # the one that was read cannot be saved
    fresh.load_state_dict(read_model.state_dict())
    with tempfile.TemporaryDirectory() as place:
        fresh.save_pretrained(place)
        AutoTokenizer.from_pretrained(source.parent, **options).save_pretrained(place)
        yield Path(place)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of the weights in a folder."""
    files = [path] if path.is_file() else [file for file in path.iterdir() if file.suffix in (".safetensors", ".bin")]
    return sum(file.stat().st_size for file in files)


def equal_texts(source: Path, folder: Path, new_tokens: int) -> int:
    """Return for how many prompts both write the same."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    writer = regard.load(folder, device="cpu")
    equal = 0
    for prompt in TEXTS:
        ids = tokenizer(prompt, return_tensors="pt")
        options = {"max_new_tokens": new_tokens, "do_sample": False, "repetition_penalty": 1.0}
        written = model.generate(**ids, **options)[0, ids["input_ids"].shape[1] :]
        expected = tokenizer.decode(written, skip_special_tokens=True)
        equal += writer.write(prompt, search=regard.Greedy(), max_tokens=new_tokens) == expected
    return equal


def find_models(place: Path) -> list[Path]:
    """Return the models in a folder and in the folders inside it, or the model itself."""
    if place.is_file() or is_marian(place) or (place / "config.json").is_file():
        return [place]
    inside = sorted(path for path in place.iterdir() if not path.is_symlink())
    files = [path for path in inside if path.suffix == ".gguf" or path.name == "stories260K.bin"]
    folders = [path for path in inside if path.is_dir()]
    return [*files, *(model for folder in folders for model in find_models(folder))]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS, help="of each greedy text")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    models = {}
    for source in (model for place in options.sources for model in find_models(place)):
        models[source.name] = measure(source, new_tokens=options.tokens)
        print(source.name, *(f"{name}: {value}" for name, value in models[source.name].items()), sep="\n  ")
    report = {"date": date.today().isoformat(), "command": command(), "hardware": hardware("cpu"), "models": models}
    keep(report, options.out)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
