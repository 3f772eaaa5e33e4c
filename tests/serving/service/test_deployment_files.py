"""What the files of deploy/ name exists: options, routes, metrics, ports, files, and what they name in each other."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from regard.api.model_names import SHIPPED
from regard.cli import app
from regard.cli.serve import PORT
from regard.serving.limits import SERVICE_LIMITS
from tests.serving.service.conftest import make_service

ROOT = Path(__file__).parents[3]
NAMES = ("Dockerfile", "Dockerfile.dockerignore", "compose.yaml", "nginx.conf", "kubernetes.yaml")
DOCKERFILE, IGNORED, COMPOSE, NGINX, KUBERNETES = ((ROOT / "deploy" / name).read_text("utf-8") for name in NAMES)
PAGE = (ROOT / "docs/use/deploy.md").read_text("utf-8")
SERVE = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]


def only(pattern: str, text: str) -> str:
    """Return the group of the pattern, which must have the same value wherever it occurs."""
    values = set(re.findall(pattern, text))
    assert len(values) == 1, f"{pattern}: {values}"
    return values.pop()


def options(arguments: str) -> dict[str, Any]:
    """Return the options of `regard serve` that the command line reads from the entry point and these arguments."""
    entry = re.findall(r'"([^"]*)"', only(r"\nENTRYPOINT \[(.*)\]", DOCKERFILE))
    assert entry[:2] == ["regard", "serve"]
    return SERVE.make_context("serve", entry[2:] + re.findall(r'"([^"]*)"', arguments)).params


IMAGE = options(only(r"\nCMD \[(.*)\]", DOCKERFILE))
REPLICA = options(only(r"\n  command: \[(.*)\]", COMPOSE))
POD = options(only(r"\n +args:\s+\[(.*)\]", KUBERNETES))


@pytest.mark.parametrize("run", [IMAGE, REPLICA, POD], ids=["image", "compose", "kubernetes"])
def test_servers_can_be_reached_and_need_a_key(run: dict[str, Any]) -> None:
    assert run["host"] == "0.0.0.0" and run["name"] == ["*"] and run["port"] == PORT
    assert run["key_file"] is not None and not run["no_key"]
    for model in run["models"]:
        assert (SHIPPED / model).is_dir() or model.partition("=")[2].startswith("/models/")


def test_ports() -> None:
    ports = [
        only(r"\nEXPOSE (\d+)", DOCKERFILE),
        only(r"http://127\.0\.0\.1:(\d+)/", DOCKERFILE + COMPOSE),
        only(r"server regard-\d:(\d+)", NGINX),
        only(r"containerPort: (\d+)", KUBERNETES),
        only(r"--publish \d+:(\d+)", PAGE),
    ]
    assert ports == [str(PORT)] * 5
    assert only(r"listen (\d+)", NGINX) == only(r'- "\d+:(\d+)"', COMPOSE)
    assert only(r'- "(\d+):\d+"', COMPOSE) == only(r"http://localhost:(\d+)/", PAGE)
    assert (
        set(re.findall(r"(?:port|targetPort): ([a-z]+)", KUBERNETES))
        == {"http"}
        == set(re.findall(r"name: (\w+), containerPort", KUBERNETES))
    )


def test_probes_and_metrics_are_routes_of_the_server(start: Callable[..., Any]) -> None:
    server = start(make_service({"fr-en": SHIPPED / "lecture"}))
    probes = {
        only(r"http://127\.0\.0\.1:\d+(/\w+)", DOCKERFILE),
        only(r"http://127\.0\.0\.1:\d+(/\w+)", COMPOSE),
        *re.findall(r"httpGet: {path: (/\w+),", KUBERNETES),
    }
    assert probes == {"/health", "/ready"}
    paths = {*probes, only(r"location = (/\w+)", NGINX)}
    assert {path: server.get(path).status for path in paths} == dict.fromkeys(paths, 200)
    metric = only(r"metric: {name: (\w+)}", KUBERNETES)
    assert f"\n{metric}{{" in server.get("/metrics").content.decode()
    assert only(r"seriesQuery: '(\w+)", PAGE) == metric


def test_files() -> None:
    for name in [*re.findall(r"\nCOPY (?!--from)(.*) \S+", DOCKERFILE)[0].split(), "regard"]:
        assert (ROOT / name).exists() and f"!{name}\n" in IGNORED
    build = only(r"\n +dockerfile: (\S+)", COMPOSE), only(r"docker build -f (\S+)", DOCKERFILE + PAGE)
    assert [(ROOT / name).is_file() for name in build] == [True, True]
    assert (ROOT / "deploy" / only(r"- (\S+):/etc/nginx/nginx.conf", COMPOSE)).is_file()
    extra = only(r"'\.\[(\w+)\]'", DOCKERFILE)
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"deploy/([\w.]+\.(?:yaml|conf))", COMPOSE + KUBERNETES + PAGE)) <= set(NAMES)
    assert "docs/use/deploy.md" in KUBERNETES


def test_folders_and_users() -> None:
    secret = only(r"\nsecrets:\n  (\w+):\n", COMPOSE)
    assert str(IMAGE["key_file"]) == str(REPLICA["key_file"]) == f"/run/secrets/{secret}"
    mounts = dict(re.findall(r"name: (\w+), mountPath: ([\w/]+)", KUBERNETES))
    assert set(re.findall(r"\n        - name: (\w+)\n", KUBERNETES.partition("volumes:")[2])) == set(mounts)
    key_file = only(r"--from-file=(\w+)=", PAGE)
    assert str(POD["key_file"]) == f"{mounts['keys']}/{key_file}"
    assert mounts["models"] == only(r"\nVOLUME (\S+)", DOCKERFILE)
    assert mounts["cache"] == only(r"XDG_CACHE_HOME=(\S+)", DOCKERFILE)
    assert only(r"runAs(?:User|Group): (\d+)", KUBERNETES) == only(r"\nUSER (\d+)", DOCKERFILE)
    for name in re.findall(r"(?:claimName|secretName): ([\w-]+)", KUBERNETES):
        assert f"`{name}`" in PAGE or f"secret generic {name} " in PAGE


def test_the_balancer_knows_the_replicas_and_their_limits() -> None:
    replicas = re.findall(r"\n  (regard-\d):\n    <<: \*replica", COMPOSE)
    assert replicas == re.findall(r"server (regard-\d):", NGINX) == sorted(set(re.findall(r"--wait (regard-\d)", PAGE)))
    assert int(only(r"client_max_body_size (\d+)m", NGINX)) * 2**20 == SERVICE_LIMITS.bytes
    assert int(only(r"proxy_read_timeout (\d+)s", NGINX)) > REPLICA["seconds"]
    assert "http_503 non_idempotent" in NGINX and "proxy_buffering off" in NGINX


def test_servers_have_time_for_their_requests_in_flight() -> None:
    assert int(only(r"stop_grace_period: (\d+)s", COMPOSE)) > REPLICA["drain"]
    pause = int(only(r'command: \["sleep", "(\d+)"\]', KUBERNETES))
    assert int(only(r"terminationGracePeriodSeconds: (\d+)", KUBERNETES)) > pause + POD["drain"]
    assert f"{pause} seconds (`preStop`)" in PAGE and f"`--drain` seconds ({POD['drain']:g})" in PAGE
    assert int(only(r'averageValue: "(\d+)"', KUBERNETES)) < POD["queue"]
