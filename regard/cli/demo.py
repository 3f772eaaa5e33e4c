"""`regard demo`: train a Transformer from nothing, French to English, and look at what it does.

E7, E8, E9, D16. The sentences come from the project's own grammar; those that are tested on are new to the model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.lectures import program

if TYPE_CHECKING:
    from rich.console import Console

    from regard.api.translator import Translator

JANE = "Jane visite l'Afrique en septembre"
SENTENCES = 1000  # of the test part


def show_demo(
    out: Annotated[Path, typer.Option(help="Folder of the run; a second time it is only shown.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Draws other training sentences and other first weights.")] = 1,
    steps: Annotated[int | None, typer.Option(help="Train for so many steps only, for a quick look.")] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Only write the demo corpus into this folder, as text files to train on.")
    ] = None,
) -> None:
    """Train a Transformer, French to English, in some minutes; translate with it and see where it looks."""
    from rich.console import Console
    from rich.markup import escape

    from regard.training.run.training_run import train

    console = Console(highlight=False)
    if corpus is not None:
        from regard.demo.corpus import write_demo

        write_demo(corpus, train=40_000, validation=1_000, test=2_000, seed=seed)
        folder = escape(str(corpus))
        console.print(
            f"the demo corpus is in {folder}: {program()} train {folder}/train.fr {folder}/train.en", soft_wrap=True
        )
        return
    console.print("[bold]Training a Transformer, French to English, on sentences of regard's own grammar[/bold]")
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
    found = translator.translate(JANE, beam=5)
    console.print(f"\n[bold]{JANE}[/bold]  →  [bold green]{escape(found.text)}[/bold green]\n")
    console.print(found.alignment())
    picture = found.plot(out / "alignment.png")
    console.print(f"\nThe same as a picture: {escape(str(picture))}\n\n[bold]Next[/bold]")
    for command, meaning in (
        (f'translate -m {out} -t "La petite fille aime les oranges."', "translate with the model you have trained"),
        (f"explore {out}", "look inside it in the browser"),
        ("train YOUR.fr YOUR.en", "train on your own parallel text; --dry-run says what it would do"),
        ("compare", "recurrent nets with and without attention against the Transformer, in one table"),
    ):
        console.print(f"  [bold cyan]{program()} {escape(command)}[/bold cyan]\n      {meaning}", soft_wrap=True)


def show_new_sentences(translator: Translator, console: Console) -> None:
    """BLEU on sentences that the model has never seen, and some of them."""
    from regard.demo.corpus import demo_pairs
    from regard.evaluation.bleu import corpus_bleu

    pairs = demo_pairs("test", SENTENCES)
    ours = [found.text for found in translator.translate([pair.source for pair in pairs], beam=1)]
    console.print(
        f"\n[bold]{SENTENCES:,} sentences that it has never seen[/bold]: {corpus_bleu(ours, [p.target for p in pairs])}"
    )
    for pair, text in list(zip(pairs, ours, strict=True))[:3]:
        mark = "[green]✓[/green]" if text == pair.target else "[red]✗[/red]"
        console.print(f"  {pair.source}\n  {mark} {text}", soft_wrap=True)
