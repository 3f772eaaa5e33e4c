"""Display of traces in notebooks: the explorer page in a frame, and a picture as fallback.

Jupyter, VS Code and Colab all support an iframe whose content is inline, so no extension is needed.
"""

from __future__ import annotations

import base64
from io import BytesIO

from regard.look.page.single_file import make_frame
from regard.look.pictures.traces import plot_trace
from regard.look.trace.trace import Trace


def display_trace(trace: Trace) -> dict[str, str]:
    """Return a trace as a MIME bundle: text, HTML and PNG."""
    bundle = {"text/plain": repr(trace), "text/html": make_frame([trace])}
    kind = "alignment" if trace.maps else "steps" if trace.steps else None
    if kind is not None:
        picture = BytesIO()
        plot_trace(trace, kind).savefig(picture, format="png", dpi=110)
        bundle["image/png"] = base64.b64encode(picture.getvalue()).decode()
    return bundle
