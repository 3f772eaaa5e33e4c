"""A trace in a notebook: the page in a frame, a picture for those who cannot show it.

Jupyter, VS Code and Colab all take a frame whose content is given with it, and need no loader for it.
"""

from __future__ import annotations

import base64
from io import BytesIO

from regard.look.page.single_file import make_frame
from regard.look.pictures.traces import plot_trace
from regard.look.trace.trace import Trace


def display_trace(trace: Trace) -> dict[str, str]:
    """A trace by the kinds of content that a notebook may choose from."""
    shown = {"text/plain": repr(trace), "text/html": make_frame([trace])}
    kind = "alignment" if trace.maps else "steps" if trace.steps else None
    if kind is not None:
        picture = BytesIO()
        plot_trace(trace, kind).savefig(picture, format="png", dpi=110)
        shown["image/png"] = base64.b64encode(picture.getvalue()).decode()
    return shown
