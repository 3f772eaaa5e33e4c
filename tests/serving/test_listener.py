"""Where a server listens, and that it ends when it is told, at whatever moment that is."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from regard.errors import UsageError
from regard.serving.listener import PORTS_TRIED, is_loopback, listen

WATCHDOG = 60  # seconds
PROGRAM = """
import signal, uvicorn
from regard.serving.listener import listen, serve_until_interrupted

def told():
    signal.raise_signal({number})

async def app(scope, receive, send):
    if {moment!r} == "started":
        told()

if {moment!r} == "loop":
    loop = uvicorn.Config.get_loop_factory
    uvicorn.Config.get_loop_factory = lambda config: (told(), loop(config))[1]
serve_until_interrupted(app, listen("127.0.0.1", 0), begin=told if {moment!r} == "begin" else lambda: None)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["begin", "loop", "started"])
def test_a_signal_at_any_moment_ends_it(moment: str, number: signal.Signals) -> None:
    """Before uvicorn listens for signals, while it makes its loop, and in its first call, as it starts up."""
    program = PROGRAM.format(number=int(number), moment=moment)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WATCHDOG)
    assert (ended.returncode, ended.stderr) == (128 + number, "")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_addresses_of_this_machine_alone(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "fe80::1", "box.example", "localhost.example", ""])
def test_addresses_that_others_may_reach(host: str) -> None:
    assert not is_loopback(host)


def test_the_port_of_a_server_that_has_just_ended_is_free() -> None:
    """Its connections linger in the system for a minute."""
    with listen("127.0.0.1", 0) as place:
        port = place.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            place.accept()[0].close()  # who closes first is who lingers
            assert client.recv(1) == b""
    with listen("127.0.0.1", port) as again:
        assert again.getsockname()[1] == port


@pytest.mark.parametrize(("first", "tried"), [(61_100, PORTS_TRIED), (65_530, 6)])
def test_when_all_ports_are_in_use(first: int, tried: int) -> None:
    """No more than so many are tried, and none above the last one that there is."""
    with contextlib.ExitStack() as taken:
        for port in range(first, first + tried):
            place = taken.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # another program has it already
                place.bind(("127.0.0.1", port))
                place.listen()
        with pytest.raises(UsageError, match=f"ports {first} to {first + tried - 1} are all in use"):
            listen("127.0.0.1", first)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("192.0.2.1", "cannot listen on 192.0.2.1, port 8790: "),  # no machine has this address
        ("", "--host : "),
        ("two..dots", "--host two..dots is not a valid host name: "),
        ("x" * 70, f"--host {'x' * 70} is not a valid host name: "),
    ],
)
def test_a_host_that_is_not_here(host: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        listen(host, 8790)
