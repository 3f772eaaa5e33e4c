"""`regard plot attribution`: what each input token contributed to the output, beside the attention weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.plot.drawing import Output, write
from regard.cli.shared.model_options import DEFAULT_MODEL

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attribution(
    text: Annotated[str, typer.Argument(help="Text to translate, continue or classify.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help="Model folder or name of a shipped model.")
    ] = DEFAULT_MODEL,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="integrated_gradients, gradient_times_input or occlusion; may be repeated.", show_default="all three"
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Output to attribute instead of the model's own.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens that the model generates.")] = None,
    baseline: Annotated[str, typer.Option(help='What stands for "no token": mean or zero.')] = "mean",
    steps: Annotated[int, typer.Option(min=1, help="Steps of integrated gradients.")] = 64,
    output: Output = None,
) -> None:
    """Draw what each input token contributed to each output token, beside the attention weights (H4)."""

    def draw() -> Figure:
        from regard.look.attribution.attribution import attribute_all
        from regard.look.attribution.beside_attention import attention_beside
        from regard.look.attribution.methods import METHODS
        from regard.look.attribution.picture import attribution_plot
        from regard.tasks.loading import load

        face = load(model)
        found = attribute_all(
            face,
            text,
            methods=method or list(METHODS),
            baseline=baseline,
            steps=steps,
            target=target,
            max_tokens=max_tokens,
        )
        return attribution_plot(found, attention_beside(face, text, found[0]), title=found[0].output)

    write(draw, output, "attribution")
