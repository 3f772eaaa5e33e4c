"""`regard explore`: look inside models in the browser. The server runs on this machine and sends nothing elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared.model_options import Device, Threads, plain_warnings
from regard.errors import UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.serving.model_threads import ServedModel

PORT = 8790
DEFAULT_MODELS = ("fr-en", "fr-en-rnn", "lecture", "shakespeare")  # opened without arguments, if they are shipped
FORMS = {"image": "images", "series": "series", "sound": "recordings"}
MIN_KEY_CHARACTERS = 16
ALL_ADDRESSES = ("0.0.0.0", "::")
MAKE_KEY = 'python -c "import secrets; print(secrets.token_urlsafe())" > key.txt'


def explore_models(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL | TRACE.json | FILE",
            help="Model folders, names of shipped models, trace files, and images, CSV or WAV files as examples.",
            show_default="shipped models",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free port.")] = PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines can reach needs --key-file.")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="Name or address by which browsers reach this machine; may be repeated.")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="File with the key that every request must contain.")] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address without opening a browser.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write a site that needs no server: the browser runs the models."),
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="URL", help="Where the exported site will be published, for previews of links.")
    ] = "",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Explore models in the browser: attention weights, probabilities, and every number of a block.

    The server runs on this machine and sends nothing elsewhere.

    Examples:
      regard explore
      regard explore runs/mine jane.json
      regard explore runs/pictures cat.png
      regard explore runs/mine --export site
    """
    set_threads(threads)
    hosts, key = allowed_hosts(host, name or []), read_key(key_file, host)
    folders, traces, files = sort_arguments(what) if what else (default_folders(), {}, {})
    if export is not None:
        export_site(export, folders, traces, files, address)
        return

    from regard.serving.app import create_app
    from regard.serving.ballot import Ballot
    from regard.serving.limits import Limits
    from regard.serving.listener import is_loopback, listen, serve_until_interrupted
    from regard.serving.model_threads import ModelShelf, ServedModel

    limits = Limits()
    opened = [ServedModel(*item, device=device, queue_size=limits.queue) for item in folders.items()]
    others = [
        ServedModel(*item, device=device, queue_size=limits.queue) for item in other_shipped_models(folders).items()
    ]
    shelf = ModelShelf([*opened, *others], default=opened[0].name if opened else None)
    check_files(files, opened)
    ballot = None if is_loopback(host) else Ballot()  # votes need a server that others can reach
    app = create_app(shelf, traces=traces, files=files, limits=limits, hosts=hosts, key=key, ballot=ballot)
    socket = listen(host, port)
    actual_port = socket.getsockname()[1]
    if ballot is not None:
        ballot.address = vote_address(host, name or [], actual_port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{actual_port}/"
    if actual_port != port and port:
        typer.echo(f"regard: port {port} is in use; using port {actual_port}", err=True)
    typer.echo(address)
    typer.echo(f"limits: {limits}\nPress Ctrl-C to stop", err=True)
    if not no_browser:
        import webbrowser

        threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    def open_models() -> None:
        for model in opened:
            model.open()

    with plain_warnings():
        serve_until_interrupted(app, socket, begin=open_models)


def vote_address(host: str, names: list[str], port: int) -> str:
    """Return the address that voters open: by the first name, without the key."""
    reachable = names[0] if names else host
    return f"http://{f'[{reachable}]' if ':' in reachable else reachable}:{port}/vote"


def export_site(
    folder: Path, folders: dict[str, Path], traces: dict[str, bytes], files: dict[str, Path], address: str
) -> None:
    """Write the page as a site without a server; it offers the shipped models, too, which load when they are chosen."""
    import json
    from importlib.resources import files as resources

    from regard.serving.site.site import write_site

    if files:
        raise UsageError(f"{next(iter(files))}: models of images, series and sounds do not run in the browser")
    first_texts = json.loads(resources("regard.look.page").joinpath("first_texts.json").read_text("utf-8"))
    models = {**folders, **other_shipped_models(folders)}
    with plain_warnings():
        write_site(folder, models, traces=traces, first_texts=first_texts, address=address)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    typer.echo(f"{folder}: {size / 1e6:.0f} MB. Open {folder / 'index.html'}, or publish the folder")


def allowed_hosts(host: str, names: list[str]) -> list[str]:
    """Return the names that the Host header of a request may have."""
    from regard.serving.request_guard import LOOPBACK

    if host in ALL_ADDRESSES and not names:
        raise UsageError(
            f"--host {host} listens on every address of this machine: name the address or host name that browsers will "
            "use, for example --name 192.168.1.5"
        )
    return [*LOOPBACK, *([] if host in ALL_ADDRESSES else [host.lower()]), *map(str.lower, names)]


def read_key(path: Path | None, host: str) -> str | None:
    """Read the key from a file; UsageError if there is none and other machines can reach the host."""
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
    if len(key) < MIN_KEY_CHARACTERS or not key.isprintable() or " " in key:
        raise UsageError(
            f"--key-file {path}: a key is one line of at least {MIN_KEY_CHARACTERS} characters without spaces. "
            f"Make one with: {MAKE_KEY}"
        )
    return key


def sort_arguments(what: list[str]) -> tuple[dict[str, Path], dict[str, bytes], dict[str, Path]]:
    """Return the model folders, the traces (as JSON) and the other files, each under a unique name."""
    from regard.api.model_names import find_model
    from regard.serving.input_api import form_of

    folders: dict[str, Path] = {}
    traces: dict[str, bytes] = {}
    files: dict[str, Path] = {}
    for argument in what:
        path = Path(argument)
        if argument.endswith((".json", ".json.gz")) and not path.is_dir():
            traces[unique_name(path.name.removesuffix(".gz").removesuffix(".json"), traces)] = read_trace(path)
        elif path.is_file() and form_of(path) is not None:
            files[unique_name(path.name, files)] = path
        else:
            folder = find_model(argument)
            folders[unique_name(folder.resolve().name, folders)] = folder
    return folders, traces, files


def check_files(files: dict[str, Path], models: list[ServedModel]) -> None:
    """Raise UsageError if no model on the command line reads one of the files."""
    from regard.serving.input_api import form_of

    for name, path in files.items():
        if (form := form_of(path)) not in {model.reads for model in models}:
            raise UsageError(f"{name} is an example for a model that reads {FORMS[str(form)]}: name its folder, too")


def read_trace(path: Path) -> bytes:
    """Load and check a trace, and return it as the JSON that the page receives."""
    import json

    from regard.look.trace.file_format import read_any_trace

    return json.dumps(read_any_trace(path).to_dict(), allow_nan=False, separators=(",", ":")).encode()


def default_folders() -> dict[str, Path]:
    """Return the models that open without arguments."""
    from regard.api.model_names import SHIPPED, shipped_models

    return {name: SHIPPED / name for name in DEFAULT_MODELS if name in shipped_models()}


def other_shipped_models(folders: dict[str, Path]) -> dict[str, Path]:
    """Return the shipped models that are not in the arguments; the page can select them, which loads them."""
    from regard.api.model_names import SHIPPED, shipped_models

    return {name: SHIPPED / name for name in shipped_models() if name not in folders}


def unique_name(name: str, taken: Container[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate
