"""The shipped models: translations, scores, samples and alignments.

Numbers to the last bit are those of the plain modules, reached by `regard.load_model`, and of int8 weights. What
`regard.load` and the commands give is compared with a tolerance, since they may lay the weights out anew to be faster.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from comparison import checksum, exact, tensor_checksum, with_exact_numbers

import regard
from regard.cli import main

SHIPPED = Path(regard.__file__).parent / "shipped"
SENTENCES = (
    "Je t'aime.",
    "Le chat dort sur la table.",
    "Où est la gare ?",
    "Il ne faut pas vendre la peau de l'ours avant de l'avoir tué.",
    "Marie a vu la maison rouge de son frère hier soir.",
    "Nous aurions dû partir plus tôt.",
    "Combien coûte ce livre, s'il vous plaît ?",
    "Zblorgnix Quetzal habite à Plougastel.",  # unknown words are copied
    "123 + 456",  # nothing to translate
    "Il pleut. Prends ton parapluie ! Nous allons être en retard, dépêche-toi, et n'oublie pas de fermer la porte.",
)
TARGETS = ("I love you.", "The cat is asleep on the table.", "Where is the dog?")
PROMPTS = ("ROMEO:\n", "To be, or not to be", "")
TEXT = "First Citizen:\nBefore we proceed any further, hear me speak.\n"


def shipped_facts(*, short: bool) -> dict[str, Any]:
    """All facts; if `short`, without those of other ways to the same models: `regard.load` and the commands."""
    facts: dict[str, Any] = {}
    for name in ("fr-en", "fr-en-rnn"):
        facts[name] = translator_facts(plain_translator(name))
        facts[f"{name} as int8"] = greedy_facts(regard.load(name, device="cpu", dtype="int8"), SENTENCES[:5])
        if not short:
            facts[f"{name} by regard.load"] = greedy_facts(regard.load(name, device="cpu"), SENTENCES[:5])
    facts["shakespeare"] = writer_facts(plain_writer("shakespeare"))
    facts["shakespeare as int8"] = scored(regard.load("shakespeare", device="cpu", dtype="int8").score(TEXT))
    if not short:
        facts["shakespeare by regard.load"] = scored(regard.load("shakespeare", device="cpu").score(TEXT))
        facts["command line"] = command_facts()
    return facts


def plain_translator(name: str) -> regard.Translator:
    folder = SHIPPED / name
    tokenizer = regard.SubwordTokenizer((folder / "tokenizer.model").read_bytes())
    return regard.Translator(regard.load_model(folder), tokenizer, tokenizer, info=read_config(folder))


def plain_writer(name: str) -> regard.Writer:
    folder = SHIPPED / name
    tokenizer = regard.CharacterTokenizer((folder / "characters.json").read_bytes())
    return regard.Writer(regard.load_model(folder), tokenizer, info=read_config(folder))


def read_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def translator_facts(translator: regard.Translator) -> dict[str, Any]:
    sentences = list(SENTENCES)
    beam = translator.translate(sentences, beam=5, alternatives=3)
    drawn = regard.Sample(temperature=0.8, top_k=20, top_p=0.95, seed=7)
    forced = translator.score(sentences[:3], list(TARGETS))
    aligned = [translator.align(source, target) for source, target in zip(sentences, TARGETS, strict=False)]
    narrow = translator.translate(sentences[1], search=regard.Beam(width=4, length_penalty=0.6), alternatives=4)
    started = translator.translate(sentences[4], prefix="Yesterday", include=["red house"])
    return {
        "greedy": greedy_facts(translator, SENTENCES),
        "beam": [[translation_facts(best) for best in translation.alternatives] for translation in beam],
        "beam of 4": [translation_facts(best) for best in narrow.alternatives],
        "with a prefix and a phrase": translation_facts(started),
        "sampled": [
            [translation_facts(best) for best in translation.alternatives]
            for translation in translator.translate(sentences[:5], search=drawn, alternatives=2)
        ],
        "cut off": translation_facts(translator.translate(sentences[3], max_tokens=5)),
        "forced": [scored(text) for text in forced],
        "alignments": [alignment_facts(translation.alignment()) for translation in beam[:5]],
        "alignment of pieces": alignment_facts(beam[4].alignment("piece")),
        "forced alignments": [alignment_facts(alignment) for alignment in aligned],
        "alignment head": list(translator.alignment_head),
        "trace": trace_facts(translator, sentences[1]),
        "attention": [tensor_checksum(dict(translation.attention.layers)) for translation in beam],
    }


def greedy_facts(translator: Any, sentences: tuple[str, ...]) -> list[Any]:
    return [translation_facts(translation) for translation in translator.translate(list(sentences), beam=1)]


def translation_facts(translation: Any) -> dict[str, Any]:
    facts = {"text": translation.text, "score": exact(translation.score), "tokens": " ".join(translation.tokens)}
    return facts if translation.finished else facts | {"finished": False}


def alignment_facts(alignment: Any) -> dict[str, Any]:
    pairs = " ".join(f"{source}-{target}" for source, target in alignment.pairs)
    return {"pairs": pairs, "weights": tensor_checksum({"weights": alignment.weights})}


def trace_facts(face: Any, text: str, **options: Any) -> dict[str, str]:
    """A checksum of each part of a trace but its notes, which are prose."""
    trace = regard.look.trace_text(face, text, vectors=True, **options).to_dict()
    return {
        name: checksum(json.dumps(part, sort_keys=True).encode()) for name, part in trace.items() if name != "notes"
    }


def scored(text: Any) -> dict[str, Any]:
    return {"score": exact(text.score), "tokens": [exact(logp) for logp in text.logps]}


def writer_facts(writer: regard.Writer) -> dict[str, Any]:
    drawn = regard.Sample(temperature=0.9, top_p=0.9, min_p=0.02, seed=3)
    return {
        "greedy": [writer.write(prompt, search=regard.Greedy(), max_tokens=60) for prompt in PROMPTS],
        "beam": writer.write(PROMPTS[1], search=regard.Beam(width=3), max_tokens=30),
        "sampled": [writer.write(prompt, search=drawn, max_tokens=80) for prompt in PROMPTS],
        "sampled beyond the context": writer.write(PROMPTS[0], search=drawn, max_tokens=300),
        "until a stop": writer.write(PROMPTS[0], search=drawn, max_tokens=80, stop=["\n"]),
        "trace": trace_facts(writer, TEXT, max_tokens=5),
        "forced": scored(writer.score(TEXT)),
        "forced in windows": exact(writer.score(TEXT * 8, stride=64).score),
    }


def command_facts() -> dict[str, Any]:
    """What commands print as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.txt", Path(folder) / "target.txt"
        source.write_text("".join(f"{sentence}\n" for sentence in SENTENCES[:3]), encoding="utf-8")
        target.write_text("".join(f"{sentence}\n" for sentence in TARGETS), encoding="utf-8")
        cpu = ("--device", "cpu", "--json")
        translate, score = ("translate", str(source), *cpu), ("score", str(source), str(target), *cpu)
        sample = ("--sample", "--temperature", "0.7", "--top-k", "30", "--seed", "5")
        rules = ("--repetition-penalty", "1.3", "--no-repeat", "2", "--min-tokens", "9", "--beam", "2")
        text = ("generate", "ROMEO:", "--max-tokens", "40", *cpu)
        return {
            "translate": output_of(*translate, "-m", "fr-en", "-n", "3", "--attention"),
            "translate with a recurrent model": output_of(*translate, "-m", "fr-en-rnn", "--attention"),
            "translate with an ensemble": output_of(*translate, "-m", "fr-en", "-m", "fr-en"),
            "translate by sampling": output_of(*translate, "-m", "fr-en", *sample),
            "translate with rules": output_of(*translate, "-m", "fr-en", *rules),
            "translate in int8": output_of(*translate, "-m", "fr-en", "--dtype", "int8"),
            "score": output_of(*score, "-m", "fr-en"),
            "score a text": output_of("score", str(source), "-m", "shakespeare", *cpu),
            "generate": output_of(*text, "--temperature", "0.8", "--seed", "2", "-n", "2"),
            "generate without chance": output_of(*text, "--greedy"),
        }


def output_of(*arguments: str) -> list[Any]:
    """The JSON lines that `python -m regard ARGUMENTS` prints, in this process."""
    output, before = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), sys.argv
    sys.argv = ["regard", *arguments]
    try:
        with redirect_stdout(output):
            main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{' '.join(sys.argv)} ended with exit code {end.code}") from end
    finally:
        sys.argv = before
    output.seek(0)
    return [with_exact_numbers(json.loads(line)) for line in output]
