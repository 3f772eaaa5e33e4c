"""A bare CTranslate2 behind Starlette, as a peer: what one would write in an afternoon.

    python ctranslate2_server.py PORT FOLDER [WAIT]

WAIT is the milliseconds in which requests are collected into a batch of at most 32; without it, each is translated
alone. The folder is that of `regard export --to ct2`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import ctranslate2
import sentencepiece
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

PORT, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
WAIT = float(sys.argv[3]) / 1000 if len(sys.argv) > 3 else None
THREADS, BEAM, BATCH = 2, 4, 32

pieces = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / "sentencepiece.model"))
translator = ctranslate2.Translator(str(FOLDER), compute_type="int8", inter_threads=THREADS, intra_threads=1)
queue: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()


def translate_all(texts: list[str]) -> list[str]:
    sources = [pieces.encode(text, out_type=str) for text in texts]
    results = translator.translate_batch(sources, beam_size=BEAM, max_batch_size=BATCH)
    return [pieces.decode(result.hypotheses[0]) for result in results]


async def collect() -> None:
    """Collect texts for WAIT seconds after the first one; batches run in threads, two at a time."""
    running = asyncio.Semaphore(THREADS)

    async def run(batch: list[tuple[str, asyncio.Future[str]]]) -> None:
        try:
            for (_, done), text in zip(
                batch, await run_in_threadpool(translate_all, [q for q, _ in batch]), strict=True
            ):
                done.set_result(text)
        finally:
            running.release()

    tasks = set()
    while True:
        await running.acquire()
        batch = [await queue.get()]
        end = asyncio.get_running_loop().time() + (WAIT or 0)
        while len(batch) < BATCH and (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                batch.append(await asyncio.wait_for(queue.get(), left))
            except TimeoutError:
                break
        tasks.add(task := asyncio.ensure_future(run(batch)))
        task.add_done_callback(tasks.discard)


async def translate(request: Request) -> Response:
    q = (await request.json())["q"]
    texts = q if isinstance(q, list) else [q]
    if WAIT is None:
        results = await run_in_threadpool(translate_all, texts)
    else:
        futures = [asyncio.get_running_loop().create_future() for _ in texts]
        for item in zip(texts, futures, strict=True):
            queue.put_nowait(item)
        results = list(await asyncio.gather(*futures))
    return JSONResponse({"translatedText": results if isinstance(q, list) else results[0]})


async def health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def main() -> None:
    app = Starlette(routes=[Route("/translate", translate, methods=["POST"]), Route("/health", health)])
    server = uvicorn.Server(uvicorn.Config(app, port=PORT, log_level="warning", http="h11"))
    collector = asyncio.ensure_future(collect()) if WAIT is not None else None
    await server.serve()
    if collector is not None:
        collector.cancel()


asyncio.run(main())
