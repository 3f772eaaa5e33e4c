"""An exported site with all shipped models, opened from a plain file server and from the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from regard.api.model_names import SHIPPED, shipped_models
from regard.serving.site.site import write_site

from ..conftest import serve
from .own_models import make_own_models

# Starts the worker of the site and asks it: what the page does in web/src/state/site.ts and web/src/engine/client.ts.
ASK = """async ([path, body]) => {
  if (!window.engine) {
    const source = await (await fetch("engine.js")).blob();
    window.engine = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    window.waiting = new Map();
    window.engine.onmessage = async ({ data }) => {
      if (data.kind === "file") {
        const content = new Uint8Array(await (await fetch(data.path)).arrayBuffer());
        window.engine.postMessage({ kind: "file", path: data.path, content, error: "" });
      } else if (data.kind !== "state") window.waiting.get(data.id)(data);
    };
    window.engine.postMessage({ kind: "start", models: window.regardSite.models });
  }
  const id = window.waiting.size;
  const begun = performance.now();
  const answer = await new Promise((resolve) => {
    window.waiting.set(id, resolve);
    window.engine.postMessage({ kind: "ask", id, path, body });
  });
  const ms = performance.now() - begun;
  return JSON.stringify({ ms, content: answer.content ?? null, error: answer.message ?? null });
}"""

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="session")
def own_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_own_models(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="session")
def site(own_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    first_texts = json.loads(files("regard.look.page").joinpath("first_texts.json").read_text("utf-8"))
    names = ["fr-en", *sorted({*shipped_models()} - {"fr-en"})]
    folder = tmp_path_factory.mktemp("exported") / "site"
    models = {**{name: SHIPPED / name for name in names}, **own_models}
    return write_site(folder, models, first_texts=first_texts)


@pytest.fixture(scope="session")
def site_address(site: Path) -> Iterator[str]:
    yield from serve(site)


@pytest.fixture
def ask(wide: Any, site_address: str) -> Ask:
    """Ask the models in the browser; returns the content, or the message of an error."""
    wide.page.goto(f"{site_address}/#tab=lab")

    def asked(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(wide.page.evaluate(ASK, [path, body]))
        return answer

    return asked
