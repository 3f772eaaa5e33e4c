"""A balancer as small as it can be: each request goes to the next replica that is ready.

A replica that answers 503 has not begun the request, so the next one gets it. A replica that dies during a request
costs that request: its client gets 502.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict

PROBE = b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
SECONDS = 60


class Balancer:
    """`ports` are those of the replicas; `running` has the ids of the requests that each of them works on."""

    def __init__(self, ports: list[int]) -> None:
        self.ports, self.turn = ports, 0
        self.running: dict[int, set[str]] = defaultdict(set)
        self.lost: list[str] = []  # ids of the requests that got 502
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(asyncio.start_server(self.handle, "127.0.0.1", 0))
        self.port = self.server.sockets[0].getsockname()[1]
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.server.close)
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def handle(self, client: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await client.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head.decode().splitlines()[1:-1])
        body = await client.readexactly(int(fields.get("content-length", 0)))
        request = head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + body
        writer.write(await self.answer(fields["x-request-id"], request))
        await writer.drain()
        writer.close()

    async def answer(self, request_id: str, request: bytes) -> bytes:
        """Return the first response that is not 503; the ports begin with the one whose turn it is."""
        self.turn = (self.turn + 1) % len(self.ports)
        for port in self.ports[self.turn :] + self.ports[: self.turn]:
            if status(await exchange(port, PROBE)) != 200:
                continue
            self.running[port].add(request_id)
            response = await exchange(port, request)
            self.running[port].discard(request_id)
            if response == b"":
                self.lost.append(request_id)
                return b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            if response is not None and status(response) != 503:
                return response
        return b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def exchange(port: int, request: bytes) -> bytes | None:
    """Return the response; None if there is no connection, nothing if it breaks before the response is complete."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return None
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return head + await reader.readexactly(length)
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        return b""
    finally:
        writer.close()


def status(response: bytes | None) -> int:
    return int(response.split(maxsplit=2)[1]) if response else 0
