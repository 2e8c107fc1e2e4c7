"""A small OpenAI-compatible server on the loopback: streams words, and misbehaves on request."""

import asyncio
import json
import threading
from contextlib import contextmanager, suppress

_ANSWERS = {
    "no such model": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "not http": b"hello\r\n",
    "cut off": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\ndata: {",
    "nothing": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: [DONE]\n\n",
    "not json": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: {oops\n\n",
    "long header": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
}


class FakeServer:
    """Counts requests and remembers their headers."""

    def __init__(self, tokens=5, usage=True, gate=False):
        self.tokens, self.usage = tokens, usage
        self.gate = asyncio.Semaphore(0) if gate else None
        self.bodies, self.heads, self.writers = [], [], []

    def let_one_go(self):
        """Let a gated server send its next chunk; from any thread."""
        self.loop.call_soon_threadsafe(self.gate.release)

    async def handle(self, reader, writer):
        self.writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.heads.append(head.decode())
        self.bodies.append(body)
        answer = _ANSWERS.get(body["model"])
        if body["model"] == "hang":
            await reader.read()  # until the client gives up
        elif answer is not None:
            writer.write(answer)
        else:
            await self._stream(writer, chat="messages" in body)
        with suppress(OSError):
            await writer.drain()
        writer.close()

    async def _stream(self, writer, chat):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(self.tokens):
            if self.gate is not None:
                await self.gate.acquire()
            choice = {"delta": {"content": f"w{i}"}} if chat else {"text": f"w{i}"}
            self._event(writer, {"choices": [choice]})
            await writer.drain()
        if self.usage:
            self._event(writer, {"choices": [], "usage": {"completion_tokens": 2 * self.tokens}})
        payload = b"data: [DONE]\n\n"
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(payload), payload))

    def _event(self, writer, event):
        payload = b"data: " + json.dumps(event).encode() + b"\r\n\r\n"
        writer.write(b"%x\r\n%s\r\n" % (len(payload), payload))


@contextmanager
def serving(**options):
    """The server's address and the server, in a thread of its own."""
    server, loop = FakeServer(**options), asyncio.new_event_loop()
    server.loop = loop
    listening = loop.run_until_complete(asyncio.start_server(server.handle, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/v1/completions", server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(_close(listening, server.writers))
        loop.close()


async def _close(listening, writers):
    """End what still runs, and give the loop the turns in which sockets are really closed."""
    listening.close()
    for writer in writers:
        writer.transport.abort()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)
