"""Write the explorer as a site without a server: the page, the models as files, and recorded answers.

Over http the page fetches these files. A page that is opened from a disk may not fetch, so each file FILE has a copy
FILE.js, a script that hands the content to the page in base64 (web/src/state/site.ts).
"""

from __future__ import annotations

import base64
import html
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import ModelError, UsageError
from regard.models.folder.config_file import read_checked_config
from regard.serving.app import PAGE
from regard.serving.explorer_api import compute_trace, to_bytes
from regard.serving.limits import LIMITS
from regard.serving.model_threads import Face, ServedModel, describe
from regard.serving.request_bodies import TraceBody
from regard.serving.sequence_api import untrained_gradients
from regard.serving.site.browser_support import folder_files, why_not
from regard.system.files import replace_file

TITLE = "regard: look inside attention"
DESCRIPTION = (
    "Type a sentence and see how a translation model attends to it: every weight, every head, every number. "
    "The models run in your browser."
)
MARK = "regard-site.json"  # says that a folder was written here, so that it may be replaced
PICTURE = "picture.png"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "worker-src blob:; base-uri 'none'; form-action 'none'"
)
INDEX = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<meta name="description" content="{description}">
<meta property="og:type" content="website">
<meta property="og:title" content="{title}">
<meta property="og:description" content="{description}">
<meta property="og:image" content="{address}{picture}">
<meta name="twitter:card" content="summary_large_image">
<link rel="icon" href="favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="app.css">
</head>
<body>
<div id="page"><noscript>This page computes attention in the browser, so it needs JavaScript.</noscript></div>
<script src="site.js"></script>
<script src="app.js"></script>
</body>
</html>
"""


def write_site(
    folder: Path,
    models: Mapping[str, Path],
    *,
    traces: Mapping[str, bytes] | None = None,
    first_texts: Mapping[str, str],
    address: str = "",
) -> Path:
    """Write the site with these models, the first of which the page shows first; return the folder.

    `first_texts` has the text that the page opens with, by what `regard.load` returns for a model; its trace is
    recorded for the first model. `address` is where the site will be published, for the picture in previews of links.
    """
    traces = traces or {}
    loaded = {name: open_model(ServedModel(name, path)) for name, path in models.items()}
    site = Site(folder)
    site.begin()
    for path in sorted(PAGE.rglob("*")):
        if path.is_file() and path.name not in ("index.html", "build.json"):
            site.copy(path, path.relative_to(PAGE).as_posix())
    for name, trace in traces.items():
        site.write(f"traces/{name}.json", trace)
    answers = {"api/gradients {}": "answers/gradients.json"}  # of no model
    site.write("answers/gradients.json", to_bytes(untrained_gradients()))
    for number, (name, (served, face)) in enumerate(loaded.items()):
        for file in folder_files(served.folder):
            site.copy(served.folder / file, f"models/{name}/{file}")
        if number == 0 and served.face in first_texts:
            answers |= record_first_answer(site, served, face, first_texts[served.face])
    entries = [model_entry(served, default=i == 0) for i, (served, _) in enumerate(loaded.values())]
    content = {"models": entries, "traces": list(traces), "answers": answers}
    site.write_page(content, address)
    return folder


class Site:
    """The folder of a site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self) -> None:
        """Make an empty folder; UsageError if there is a folder that holds anything but an older site."""
        if self.folder.exists():
            if not self.folder.is_dir() or (any(self.folder.iterdir()) and not (self.folder / MARK).is_file()):
                raise UsageError(f"{self.folder}: exists and is no site of regard: choose another folder")
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        (self.folder / MARK).write_text('{"written by": "regard explore --export"}\n', encoding="utf-8", newline="\n")

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and its copy for pages that are opened from a disk."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
        if path.suffix not in (".css", ".svg", ".png") and name != "app.js":
            encoded = base64.b64encode(content).decode()
            replace_file(path.with_name(f"{path.name}.js"), f"regardFile({json.dumps(name)},{encoded!r});\n".encode())

    def copy(self, path: Path, name: str) -> None:
        self.write(name, path.read_bytes())

    def write_page(self, content: dict[str, Any], address: str) -> None:
        """Write index.html, and site.js with what the page has to know."""
        if address and not address.endswith("/"):
            address += "/"
        page = INDEX.format(
            policy=POLICY,
            title=html.escape(TITLE),
            description=html.escape(DESCRIPTION),
            address=html.escape(address, quote=True),
            picture=PICTURE,
        )
        (self.folder / "index.html").write_text(page, encoding="utf-8", newline="\n")
        script = json.dumps(content, allow_nan=False, separators=(",", ":"))
        (self.folder / "site.js").write_text(f"window.regardSite={script};\n", encoding="utf-8", newline="\n")


def open_model(served: ServedModel) -> tuple[ServedModel, Face]:
    """Load a model, which must be one that runs in the browser."""
    from regard.tasks.loading import load

    reason = why_not(served.folder, read_checked_config(served.folder / "config.json"))
    if reason is not None:
        raise ModelError(f"{served.name} cannot be exported: {reason}. `regard explore {served.name}` can show it")
    face = load(served.folder, device="cpu")
    served.about = describe(face, served.name)
    return served, face


def model_entry(served: ServedModel, *, default: bool) -> dict[str, Any]:
    return {
        "name": served.name,
        "kind": served.face,
        "architecture": served.kind,
        "reads": served.reads,
        "default": default,
        "about": served.about,
        "files": folder_files(served.folder),
    }


def record_first_answer(site: Site, served: ServedModel, face: Face, text: str) -> dict[str, str]:
    """Record the trace that the page opens with, and draw the picture for previews of links; return its request."""
    from regard.look.trace.trace import Trace

    body = TraceBody.model_validate({"model": served.name, "text": text})
    content = compute_trace(face, body, LIMITS)
    name = f"answers/{served.name}.json"
    site.write(name, content)
    trace = Trace.from_dict(json.loads(content))
    if trace.maps.keys() & {"cross", "rnn"}:
        trace.plot(site.folder / PICTURE)
    # As JavaScript writes it: `requestKey` in web/src/state/site.ts.
    request = json.dumps({"model": served.name, "text": text}, ensure_ascii=False, separators=(",", ":"))
    return {f"api/trace {request}": name}
