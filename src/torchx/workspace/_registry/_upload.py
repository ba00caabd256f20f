"""The upload of one blob, which resumes after interruptions."""

import contextlib
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from torchx._startup.lazy_logger import get_logger
from torchx.errors import RefusedByRegistry, TorchXError
from torchx.workspace._registry._blobs import Blob
from torchx.workspace._registry._request import Body, Interrupted, Request

if TYPE_CHECKING:
    from torchx.workspace._registry._http import Http, Reply

_AT_ONCE = 1 << 20
"""A blob up to this size is sent in one request."""
_SMALL_CHUNK = 5 << 20
"""Size of the pieces for a registry, or a proxy, that refuses a whole blob at once."""
_PROGRESS_S = 5

logger = get_logger(__name__)


class UploadLost(Exception):
    """The registry has lost the upload, or its position."""


class Upload:
    """An upload session: `PATCH` sends bytes, `GET` returns the position, `PUT` ends it.

    Args:
        location: URL of the session.
        arrived: returns True if the registry has the blob.
    """

    def __init__(
        self,
        blob: Blob,
        http: "Http",
        location: str,
        arrived: Callable[[], bool],
    ) -> None:
        self._blob = blob
        self._http = http
        self._location = location
        self._arrived = arrived
        self._doing = f"upload the layer `{blob.digest}`"
        self._offset = 0
        self._chunk = 0
        self._retries = http.retries
        self._was_interrupted = False

    def run(self) -> None:
        """Sends the blob and lets the registry check its digest."""
        if self._blob.size <= _AT_ONCE:
            self._finish(with_body=True)
            return
        while self._offset < self._blob.size:
            try:
                self._send_next()
                self._retries = self._http.retries
            except Interrupted as err:
                self._pause(err)
                self._ask_offset()
            except RefusedByRegistry as err:
                self._after_refusal(err)
        self._finish(with_body=False)

    def abandon(self) -> None:
        """Cancels the upload, which the registry would otherwise keep for days."""
        expected = frozenset({200, 202, 204, 404})
        request = Request("DELETE", self._location, self._doing, expected=expected)
        for _ in range(2):  # the first may use a connection that is being closed
            with contextlib.suppress(Interrupted, TorchXError):
                self._http.request_once(request)
                return

    def _send_next(self) -> None:
        start, size = self._offset, self._blob.size
        end = min(size, start + self._chunk) if self._chunk else size
        headers = {"Content-Type": "application/octet-stream"}
        if start or end < size:
            headers["Content-Range"] = f"{start}-{end - 1}"
        body = Body(end - start, lambda: self._blocks(start, end))
        expected = frozenset({200, 201, 202, 204, 416})
        request = Request("PATCH", self._location, self._doing, headers, body, expected)
        reply = self._http.request_once(request)
        if reply.status == 416:
            self._ask_offset()
            return
        self._follow(reply)
        taken = received_bytes(reply)
        self._offset = end if taken is None or taken < start else taken

    def _blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Yields the bytes from ``start`` to ``end``; logs the progress now and then."""
        said = time.monotonic()
        for block in self._blob.read_from(start):
            yield block[: end - start]
            start += len(block)
            if start >= end:
                return
            if time.monotonic() - said > _PROGRESS_S:
                said = time.monotonic()
                percent = 100 * start // self._blob.size
                logger.info("%s: %d %% sent", self._doing, percent, extra={"calm_text": ""})

    def _after_refusal(self, err: RefusedByRegistry) -> None:
        if err.status == 413 and (not self._chunk or self._chunk > _SMALL_CHUNK):
            self._chunk = _SMALL_CHUNK
            self._ask_offset()
        elif err.status in (400, 404) and self._offset:
            raise UploadLost(str(err)) from None
        else:
            raise err

    def _ask_offset(self) -> None:
        """Requests how many bytes the registry has.

        Raises:
            UploadLost: if it has forgotten the upload.
        """
        expected = frozenset({200, 202, 204, 400, 404, 405, 416})
        request = Request("GET", self._location, self._doing, expected=expected)
        reply = self._http.request(request)
        if reply.status >= 400:
            raise UploadLost(f"the registry cannot tell how much it has ({reply.status})")
        self._follow(reply)
        self._offset = received_bytes(reply) or 0
        if self._offset > self._blob.size:
            raise UploadLost("the registry has more than was sent")

    def _finish(self, *, with_body: bool) -> None:
        body = Body(self._blob.size, lambda: self._blob.read_from(0)) if with_body else None
        headers = {"Content-Type": "application/octet-stream"}
        while True:
            joint = "&" if urllib.parse.urlsplit(self._location).query else "?"
            url = f"{self._location}{joint}digest={urllib.parse.quote(self._blob.digest)}"
            expected = frozenset({200, 201, 204})
            request = Request("PUT", url, self._doing, headers, body, expected)
            try:
                self._http.request_once(request)
                return
            except RefusedByRegistry as err:
                # data of a broken request may have arrived after our query of the position
                if self._was_interrupted and err.status in (400, 404):
                    raise UploadLost(str(err)) from None
                raise
            except Interrupted as err:
                self._pause(err)
                if self._arrived():  # only the response was lost
                    return
                self._ask_offset()
                if self._offset != (0 if with_body else self._blob.size):
                    raise UploadLost(str(err)) from None

    def _pause(self, err: Interrupted) -> None:
        self._was_interrupted = True
        self._retries = self._http.pause(self._retries, self._doing, err)

    def _follow(self, reply: "Reply") -> None:
        location = reply.headers.get("Location")
        if location:
            self._location = self._http.absolute(location, reply.url)


def received_bytes(reply: "Reply") -> int | None:
    """Parses the received bytes from ``Range: 0-41``; ``None`` if not given."""
    match = re.fullmatch(r"(?:bytes=)?0-(\d+)", reply.headers.get("Range", "").strip())
    if not match:
        return None
    last = int(match[1])
    return last + 1 if last else 0  # registries report nothing as `0-0`
