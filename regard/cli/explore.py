"""`regard explore`: look inside models, in the browser; the server is on this machine, and nothing leaves it."""

from __future__ import annotations

import threading
from collections.abc import Container
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shared.model_options import Device, plain_warnings
from regard.errors import UsageError

PORT = 8790
OPENED = ("fr-en", "fr-en-rnn", "shakespeare")  # without arguments; those of them that are shipped
LEAST_KEY = 16  # characters
EVERYWHERE = ("0.0.0.0", "::")
MAKE_KEY = 'python -c "import secrets; print(secrets.token_urlsafe())" > key.txt'


def explore_models(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL | TRACE.json",
            help="Model folders, names of shipped models, trace files.",
            show_default="shipped models",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 is any free port.")] = PORT,
    host: Annotated[str, typer.Option(help="An address that other machines reach needs --key-file.")] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="What others call this machine; may be given several times.")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="File with the key that every request must bring.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open nothing.")] = False,
    device: Device = "auto",
) -> None:
    """Look inside models in the browser: where they look, what they choose from, every number of a block.

    Example: regard explore runs/mine jane.json
    """
    hosts, key = allowed_hosts(host, name or []), read_key(key_file, host)
    folders, traces = sort_arguments(what) if what else (default_folders(), {})

    from regard.serving.app import create_app
    from regard.serving.limits import Limits
    from regard.serving.listener import listen, serve_until_interrupted
    from regard.serving.model_threads import ModelShelf, ServedModel

    limits = Limits()
    opened = [ServedModel(*one, device=device, places=limits.queue) for one in folders.items()]
    others = [ServedModel(*one, device=device, places=limits.queue) for one in shipped_beside(folders).items()]
    shelf = ModelShelf([*opened, *others], default=opened[0].name if opened else None)
    app = create_app(shelf, traces=traces, limits=limits, hosts=hosts, key=key)
    place = listen(host, port)
    taken = place.getsockname()[1]
    address = f"http://{f'[{host}]' if ':' in host else host}:{taken}/"
    if taken != port and port:
        typer.echo(f"regard: port {port} is in use, so it is {taken}", err=True)
    typer.echo(address)
    typer.echo(f"limits: {limits}\nCtrl-C ends it", err=True)
    if not no_browser:
        import webbrowser

        threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    def open_models() -> None:
        for model in opened:
            model.open()

    with plain_warnings():
        serve_until_interrupted(app, place, begin=open_models)


def allowed_hosts(host: str, names: list[str]) -> list[str]:
    """What may stand in the Host of a request."""
    from regard.serving.request_guard import LOOPBACK

    if host in EVERYWHERE and not names:
        raise UsageError(
            f"--host {host} listens at every address of this machine: say with --name which of them, or which name, "
            "browsers will use, for example --name 192.168.1.5"
        )
    return [*LOOPBACK, *([] if host in EVERYWHERE else [host.lower()]), *map(str.lower, names)]


def read_key(path: Path | None, host: str) -> str | None:
    """The key in a file; a host that others reach must have one."""
    from regard.serving.listener import is_loopback

    if path is None:
        if is_loopback(host):
            return None
        raise UsageError(
            f"--host {host} can be reached from other machines, so requests need a key: --key-file FILE. "
            f"Make one with: {MAKE_KEY}"
        )
    try:
        key = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--key-file {path}: {getattr(error, 'strerror', None) or 'not ASCII text'}") from error
    if len(key) < LEAST_KEY or not key.isprintable() or " " in key:
        raise UsageError(
            f"--key-file {path}: a key is one line of at least {LEAST_KEY} characters without spaces. "
            f"Make one with: {MAKE_KEY}"
        )
    return key


def sort_arguments(what: list[str]) -> tuple[dict[str, Path], dict[str, bytes]]:
    """The model folders and the traces, as JSON, that were named; each gets a name of its own."""
    from regard.api.model_names import find_model

    folders: dict[str, Path] = {}
    traces: dict[str, bytes] = {}
    for one in what:
        path = Path(one)
        if one.endswith((".json", ".json.gz")) and not path.is_dir():
            traces[unused(path.name.removesuffix(".gz").removesuffix(".json"), traces)] = read_trace(path)
        else:
            folder = find_model(one)
            folders[unused(folder.resolve().name, folders)] = folder
    return folders, traces


def read_trace(path: Path) -> bytes:
    """A trace as the page gets it, checked."""
    import json

    from regard.look.trace.trace import Trace

    return json.dumps(Trace.load(path).to_dict(), allow_nan=False, separators=(",", ":")).encode()


def default_folders() -> dict[str, Path]:
    """What opens when nothing is named."""
    from regard.api.model_names import SHIPPED, shipped_models

    return {name: SHIPPED / name for name in OPENED if name in shipped_models()}


def shipped_beside(folders: dict[str, Path]) -> dict[str, Path]:
    """Shipped models that were not named: they can be chosen on the page, and are loaded then."""
    from regard.api.model_names import SHIPPED, shipped_models

    return {name: SHIPPED / name for name in shipped_models() if name not in folders}


def unused(name: str, taken: Container[str]) -> str:
    """The name, with a number behind it where it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found
