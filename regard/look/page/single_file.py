"""The page as one file: traces, style and script together, opened from a disk without a server.

H4. The page's own export (web/src/export.ts) writes the same. Its policy allows just this style and this script, by
their hashes, and nothing from elsewhere.
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
from regard.files import replace_file
from regard.look.trace.trace import Trace

HEIGHT = 760  # pixels, of the frame in a notebook

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


def write_page(path: str | Path, traces: Sequence[Trace], state: str = "") -> Path:
    """Write the page with these traces as one .html file.

    `state` is how it opens, as what stands behind the # of the page's address: "tab=heads&layer=1".
    """
    path = Path(path)
    if path.suffix not in (".html", ".htm"):
        raise UsageError(f"{path}: the name of a page ends in .html")
    replace_file(path, make_page(traces, state).encode())
    return path


def make_page(traces: Sequence[Trace], state: str = "") -> str:
    """The page with these traces as text."""
    if not traces:
        raise UsageError("a page without a server shows traces: give it at least one")
    state = state or (
        "" if traces[0].maps.keys() & {"cross", "rnn"} else "tab=heads" if traces[0].maps else "tab=decode"
    )
    script, style = (
        files("regard.look.page").joinpath("static", name).read_text("utf-8") for name in ("app.js", "app.css")
    )
    data = json.dumps({"traces": [trace.to_dict() for trace in traces], "state": state}, allow_nan=False)
    # A text inside <script> ends at the first </script, wherever it comes from.
    data = data.replace("<", "\\u003c")
    style_hash, script_hash = content_hash(style), content_hash(script)
    policy = f"default-src 'none'; img-src data: blob:; style-src '{style_hash}'; script-src '{script_hash}'"
    return PAGE.format(policy=policy, style=style, data=data, script=script)


def open_page(traces: Sequence[Trace], path: str | Path | None, state: str, show: bool) -> Path:
    """Write the page, by default as a temporary file, and open it in the browser."""
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="regard-")) / "explore.html"
    written = write_page(path, traces, state)
    if show:
        webbrowser.open(written.absolute().as_uri())
    return written


def make_frame(traces: Sequence[Trace]) -> str:
    """The page inside a frame, for notebooks: it needs nothing of theirs."""
    page = html.escape(make_page(traces), quote=True)
    return f'<iframe srcdoc="{page}" width="100%" height="{HEIGHT}" style="border: 0" title="regard"></iframe>'


def content_hash(content: str) -> str:
    """As a content security policy has it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
