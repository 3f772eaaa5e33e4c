"""A server that is told to end ends, at whatever moment it is told."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WATCHDOG = 60  # seconds
PROGRAM = """
import signal, uvicorn
from regard.serving.listening import listen, serve_until_told

def told():
    signal.raise_signal({number})

async def app(scope, receive, send):
    if {moment!r} == "started":
        told()

if {moment!r} == "loop":
    loop = uvicorn.Config.get_loop_factory
    uvicorn.Config.get_loop_factory = lambda config: (told(), loop(config))[1]
serve_until_told(app, listen("127.0.0.1", 0), begin=told if {moment!r} == "begin" else lambda: None)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["begin", "loop", "started"])
def test_a_signal_at_any_moment_ends_it(moment: str, number: signal.Signals) -> None:
    """Before uvicorn listens for signals, while it makes its loop, and in its first call, as it starts up."""
    program = PROGRAM.format(number=int(number), moment=moment)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WATCHDOG)
    assert (ended.returncode, ended.stderr) == (128 + number, "")
