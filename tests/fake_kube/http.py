"""A small HTTP/1.1 server for asyncio: requests in, answers or streams out."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

MAX_HEAD = 64 * 1024
_CLOCK: dict[str, float] = {}
"""How wrong the clock of this process is, by the name `ahead_s`."""
_WORDS = {200: "OK", 201: "Created", 404: "Not Found", 409: "Conflict", 410: "Gone"}


@dataclass
class Request:
    """One request; header names in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    raw_query: str = ""

    def json(self) -> Any:
        return json.loads(self.body or b"null")


@dataclass
class Reply:
    """A whole answer, or one with a stream of chunks."""

    code: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    stream: AsyncIterator[bytes] | None = None
    cut_after: int | None = None
    """Bytes of the stream after which the connection ends."""
    cut_cleanly: bool = False
    """The stream then ends as if that was all."""


class Dropped(Exception):
    """The connection is to be closed without an answer."""


def json_reply(document: object, code: int = 200) -> Reply:
    return Reply(code, json.dumps(document, separators=(",", ":")).encode())


Handler = Callable[[Request], Awaitable[Reply]]


async def serve(handler: Handler, host: str, port: int, tls: ssl.SSLContext | None) -> int:
    """Starts to serve and returns the port."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _exchange(handler, reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()  # the cluster ends, and asyncio would report it as an error
        finally:
            writer.close()

    server = await asyncio.start_server(
        connected, host, port, backlog=4096, limit=MAX_HEAD, ssl=tls
    )
    return int(server.sockets[0].getsockname()[1])


async def _exchange(
    handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """One request and its answer; ``False`` when the connection is done."""
    request = await _read(reader)
    if request is None:
        return False
    if request.path == "/_fake/clock":
        _CLOCK.update(request.json())
        await _write_whole(writer, json_reply({}))
        return True
    if request.path == "/_fake/reset":
        _CLOCK.clear()
    try:
        reply = await handler(request)
    except Dropped:
        writer.transport.abort()
        return False
    if reply.stream is None:
        await _write_whole(writer, reply)
        return request.headers.get("connection", "").lower() != "close"
    return await _write_stream(writer, reply, reply.stream, reader)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    body = b""
    if length := int(headers.get("content-length", 0)):
        body = await reader.readexactly(length)
    url = urlsplit(target)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    return Request(method, unquote(url.path), query, headers, body, url.query)


def _head(reply: Reply, extra: str) -> bytes:
    lines = [f"HTTP/1.1 {reply.code} {_WORDS.get(reply.code, 'Status')}"]
    lines.append(f"Content-Type: {reply.content_type}")
    now_s = time.time() + _CLOCK.get("ahead_s", 0.0)
    headers = {"Date": formatdate(now_s, usegmt=True), **reply.headers}
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join([*lines, extra]) + "\r\n\r\n").encode("latin-1")


async def _write_whole(writer: asyncio.StreamWriter, reply: Reply) -> None:
    writer.write(_head(reply, f"Content-Length: {len(reply.body)}") + reply.body)
    await writer.drain()


async def _write_stream(
    writer: asyncio.StreamWriter,
    reply: Reply,
    stream: AsyncIterator[bytes],
    reader: asyncio.StreamReader,
) -> bool:
    """Sends the stream until it ends, is cut, or the client hangs up; then it is ``False``."""
    writer.write(_head(reply, "Transfer-Encoding: chunked"))
    sending = asyncio.ensure_future(_send_chunks(writer, reply, stream))
    hung_up = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({sending, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            return sending.result()
        writer.transport.abort()
        return False
    finally:
        for task in (sending, hung_up):
            task.cancel()
        await asyncio.gather(sending, hung_up, return_exceptions=True)


async def _send_chunks(
    writer: asyncio.StreamWriter, reply: Reply, stream: AsyncIterator[bytes]
) -> bool:
    left = reply.cut_after
    async for chunk in stream:
        if left is not None and len(chunk) >= left:
            writer.write(_framed(chunk[:left]))
            break
        writer.write(_framed(chunk))
        if left is not None:
            left -= len(chunk)
        await writer.drain()
    else:
        left = None
    if left is not None and not reply.cut_cleanly:
        await _flushed(writer)
        writer.transport.abort()
        return False
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def _flushed(writer: asyncio.StreamWriter) -> None:
    """Hands everything to the system, so that an abrupt end comes after it."""
    await writer.drain()
    while writer.transport.get_write_buffer_size():
        await asyncio.sleep(0.001)


def _framed(chunk: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunk else b""
