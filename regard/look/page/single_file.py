"""The explorer page as a single HTML file with traces, style and script; it needs no server.

H4. The export button of the page (web/src/export/whole_page.ts) writes the same file. The content security policy
allows only this style and this script, by their hashes, and nothing from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import tempfile
import webbrowser
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from regard.errors import UsageError
from regard.look.trace.file_format import AnyTrace
from regard.look.trace.inputs.input_trace import InputTrace
from regard.system.files import replace_file

HEIGHT = 760  # of the frame in a notebook, in pixels

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>regard: look inside attention</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<script type="application/json" id="regard-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def write_page(path: str | Path, traces: Sequence[AnyTrace], state: str = "") -> Path:
    """Write the page with these traces as a single .html file.

    `state` is the view that it opens with, written as after the # of the page's address: "tab=heads&layer=1".
    """
    path = Path(path)
    if path.suffix not in (".html", ".htm"):
        raise UsageError(f"{path}: the name of a page must end in .html")
    replace_file(path, make_page(traces, state).encode())
    return path


def make_page(traces: Sequence[AnyTrace], state: str = "") -> str:
    """Return the page with these traces as HTML."""
    if not traces:
        raise UsageError("a page without a server needs at least one trace")
    state = state or first_view(traces[0])
    script, style = (
        files("regard.look.page").joinpath("static", name).read_text("utf-8") for name in ("app.js", "app.css")
    )
    data = json.dumps({"traces": [trace.to_dict() for trace in traces], "state": state}, allow_nan=False)
    # A browser ends a script element at the first </script, even inside JSON.
    data = data.replace("<", "\\u003c")
    style_hash, script_hash = content_hash(style), content_hash(script)
    policy = f"default-src 'none'; img-src data: blob:; style-src '{style_hash}'; script-src '{script_hash}'"
    return PAGE.format(policy=policy, style=style, data=data, script=script)


def first_view(trace: AnyTrace) -> str:
    """Return the state of the page in which a trace is shown first."""
    if isinstance(trace, InputTrace):
        return "tab=input"
    return "" if trace.maps.keys() & {"cross", "rnn"} else "tab=heads" if trace.maps else "tab=decode"


def open_page(traces: Sequence[AnyTrace], path: str | Path | None, state: str, show: bool) -> Path:
    """Write the page, by default to a temporary file, and open it in the browser."""
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="regard-")) / "explore.html"
    written = write_page(path, traces, state)
    if show:
        webbrowser.open(written.absolute().as_uri())
    return written


def make_frame(traces: Sequence[AnyTrace]) -> str:
    """Return the page as an iframe for notebooks."""
    page = html.escape(make_page(traces), quote=True)
    return f'<iframe srcdoc="{page}" width="100%" height="{HEIGHT}" style="border: 0" title="regard"></iframe>'


def content_hash(content: str) -> str:
    """Return the SHA-256 hash in the notation of a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
