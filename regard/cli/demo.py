"""`regard demo`: train a French-to-English Transformer from scratch and show what it does.

E7, E8, E9, D16. The sentences come from regard's own grammar; the test sentences are not in the training data.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.lectures import program
from regard.cli.shared.model_options import Threads
from regard.machine import set_threads

if TYPE_CHECKING:
    from rich.console import Console

    from regard.api.translator import Translator

JANE = "Jane visite l'Afrique en septembre"
TEST_SENTENCES = 1000


def show_demo(
    out: Annotated[Path, typer.Option(help="Folder of the run; a finished run is not trained again.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the training sentences and of the initial weights.")] = 1,
    steps: Annotated[int | None, typer.Option(help="Train for only this many steps, for a quick try.")] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Only write the demo corpus to this folder, as text files.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Train a French-to-English Transformer in a few minutes, translate with it and show its attention.

    The training data comes from regard's own grammar; nothing is downloaded.

    Examples:
      regard demo
      regard demo --corpus corpus           write the training data to the folder `corpus`
    """
    set_threads(threads)
    from rich.console import Console
    from rich.markup import escape

    from regard.training.run.training_run import train

    console = Console(highlight=False)
    if corpus is not None:
        from regard.demo.corpus import write_demo

        write_demo(corpus, train=40_000, validation=1_000, test=2_000, seed=seed)
        folder = escape(str(corpus))
        console.print(
            f"The demo corpus is in {folder}. To train on it: {program()} train {folder}/train.fr {folder}/train.en",
            soft_wrap=True,
        )
        return
    console.print("[bold]Training a French-to-English Transformer on sentences from regard's own grammar[/bold]")
    overrides = {"training.seed": seed}
    if steps is not None:
        overrides |= {"training.steps": steps, "training.warmup": steps // 10}
    run = train(
        "demo",
        out=out,
        overrides=overrides,
        say=lambda text: typer.echo(text, err=True),
    )
    translator = run.load(device="cpu")
    show_new_sentences(translator, console)
    translation = translator.translate(JANE, beam=5)
    console.print(f"\n[bold]{JANE}[/bold]  →  [bold green]{escape(translation.text)}[/bold green]\n")
    console.print(translation.alignment())
    picture = translation.plot(out / "alignment.png")
    console.print(f"\nThe alignment as a picture: {escape(str(picture))}\n\n[bold]Next[/bold]")
    for command, meaning in (
        (
            f'translate -m {out} -t "La petite fille aime les oranges."',
            "translate with the model that you have trained",
        ),
        (f"explore {out}", "look inside it in the browser"),
        ("train YOUR.fr YOUR.en", "train on your own parallel text; --dry-run shows the plan without training"),
        ("compare", "compare recurrent networks with and without attention with the Transformer, in one table"),
    ):
        console.print(f"  [bold cyan]{program()} {escape(command)}[/bold cyan]\n      {meaning}", soft_wrap=True)


def show_new_sentences(translator: Translator, console: Console) -> None:
    """Print the BLEU on sentences that are not in the training data, and some of the translations."""
    from regard.demo.corpus import demo_pairs
    from regard.evaluation.bleu import corpus_bleu

    pairs = demo_pairs("test", TEST_SENTENCES)
    ours = [translation.text for translation in translator.translate([pair.source for pair in pairs], beam=1)]
    bleu = corpus_bleu(ours, [pair.target for pair in pairs])
    console.print(f"\n[bold]{TEST_SENTENCES:,} test sentences that are not in the training data[/bold]: {bleu}")
    for pair, text in list(zip(pairs, ours, strict=True))[:3]:
        mark = "[green]✓[/green]" if text == pair.target else "[red]✗[/red]"
        console.print(f"  {pair.source}\n  {mark} {text}", soft_wrap=True)
