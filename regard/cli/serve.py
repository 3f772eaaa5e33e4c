"""`regard serve`: translate, write and embed over HTTP, for clients of LibreTranslate, DeepL and OpenAI."""

from __future__ import annotations

import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.explore import allowed_hosts
from regard.cli.shared.model_options import Device, Dtype, Threads
from regard.errors import UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.serving.keys import KeyRing

PORT = 8791
DEFAULT_MODELS = ("fr-en", "en-fr")


class Log(StrEnum):
    """Formats of the access log."""

    json = "json"
    text = "text"
    off = "off"


def serve_models(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]MODEL",
            help="Model folders and names of shipped models, each with a name for clients if it differs.",
            show_default="fr-en en-fr",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free port.")] = PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines can reach needs --key-file.")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None,
        typer.Option(help="Name or address by which clients reach this server; may be repeated; '*' allows any."),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="File with the keys of clients, one `NAME:KEY[:limit=TEXTS/min]` per line.")
    ] = None,
    no_key: Annotated[
        bool, typer.Option("--no-key", help="Let other machines use the server without a key, with --host.")
    ] = False,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="Origin whose web pages may use the server; may be repeated.")
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, show_default="5", help="Beam width of translations.")] = None,
    pivot: Annotated[
        bool, typer.Option(help="Translate through a second model if no model has the pair of languages.")
    ] = True,
    lazy: Annotated[bool, typer.Option("--lazy/--preload", help="Load a model when it is first used.")] = False,
    explore: Annotated[
        bool, typer.Option(help="Serve the explorer at /explore/, with models of its own that load on first use.")
    ] = True,
    queue: Annotated[int, typer.Option(min=1, help="Unfinished requests per model; more are refused.")] = 128,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit of a request.")] = 60.0,
    drain: Annotated[
        float, typer.Option(min=2, help="Seconds for running requests to finish when the server is stopped.")
    ] = 10.0,
    log: Annotated[Log, typer.Option(help="Format of the access log, on stderr.")] = Log.text,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Serve models over HTTP to existing clients: LibreTranslate's, DeepL's and OpenAI's.

    Requests of all clients are translated in batches. SIGHUP loads changed model folders and keys; SIGTERM finishes
    the running requests first.

    Examples:
      regard serve
      regard serve fr-en=runs/mine --dtype int8 --threads 2
      regard serve runs/mine --host 0.0.0.0 --name translate.example --key-file keys.txt
    """
    set_threads(threads)
    hosts, keys = allowed_hosts(host, name or []), read_key_ring(key_file, host, no_key)
    folders = name_folders(models or list(DEFAULT_MODELS))
    warnings.simplefilter("ignore", UserWarning)  # they quote the texts of clients

    from regard.serving.limits import ServiceLimits
    from regard.serving.listener import listen
    from regard.serving.model_threads import ModelShelf, ServedModel
    from regard.serving.service.app import create_service
    from regard.serving.service.draining_server import serve_until_stopped
    from regard.serving.service.hosted_models import HostedModel, HostedModels, LoadOptions
    from regard.serving.service.metrics import Metrics
    from regard.serving.service.service import Service

    limits, metrics, options = ServiceLimits(queue=queue, seconds=seconds), Metrics(), LoadOptions(device, dtype, beam)
    hosted = [HostedModel(*item, options, queue=queue, metrics=metrics) for item in folders.items()]
    service = Service(HostedModels(hosted, pivot=pivot), metrics, limits, keys)
    shelf = ModelShelf([ServedModel(*item, device=device) for item in folders.items()]) if explore else None
    app = create_service(service, hosts=hosts, origins=cors_origin or [], log=log.value, explorer=shelf)
    socket = listen(host, port, ports=1)
    typer.echo(f"http://{f'[{host}]' if ':' in host else host}:{socket.getsockname()[1]}/")
    typer.echo(f"limits: {limits}\nPress Ctrl-C to stop", err=True)
    serve_until_stopped(service, app, socket, begin=(lambda: None) if lazy else service.load, drain_seconds=drain)


def name_folders(models: list[str]) -> dict[str, Path]:
    """Return the model folders by their names; UsageError if a name occurs twice."""
    from regard.api.model_names import find_model

    folders: dict[str, Path] = {}
    for argument in models:
        name, separator, model = argument.partition("=")
        folder = find_model(model if separator else argument)
        name = name if separator else folder.resolve().name
        if name in folders:
            raise UsageError(f"two models have the name {name!r}: name one of them, as in other-name={folder}")
        folders[name] = folder
    return folders


def read_key_ring(path: Path | None, host: str, no_key: bool) -> KeyRing | None:
    """Read the key file; UsageError if there is none, other machines can reach the host, and this is not intended."""
    from regard.serving.keys import MAKE_KEY, KeyRing
    from regard.serving.listener import is_loopback

    if path is not None:
        if no_key:
            raise UsageError("--no-key and --key-file contradict each other: leave one out")
        return KeyRing.from_file(path)
    if is_loopback(host) or no_key:
        return None
    raise UsageError(
        f"--host {host} can be reached from other machines, so requests need a key: --key-file FILE, with a line "
        f"NAME:KEY for each client. Make a key with: {MAKE_KEY}. --no-key allows everyone instead"
    )
