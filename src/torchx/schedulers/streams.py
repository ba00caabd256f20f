"""Copies growing files into one."""

import io
import os
import threading

from torchx._files import write_all

_CHUNK_BYTES = 64_000
_POLL_S = 0.1


class Tee:
    """Copies what is appended to ``sources`` into ``out``, from a daemon thread.

    The bytes of one source keep their order; the order between sources is undefined.
    """

    def __init__(self, out: io.FileIO, *sources: str) -> None:
        assert sources, "a tee needs at least one source"
        self._out = out
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._sources: list[int] = []
        try:
            for source in sources:
                self._sources.append(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            self._close_sources()
            raise
        self._thread = threading.Thread(target=self._run, name="torchx-tee", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> int:
        """Writes to ``out`` itself, never inside a chunk that is being copied."""
        with self._lock:
            write_all(self._out.fileno(), data)
        return len(data)

    def close(self) -> None:
        """Copies what the sources hold by now and closes everything; may be called again."""
        self._stop.set()
        self._thread.join()
        self._close_sources()
        self._out.close()

    def _close_sources(self) -> None:
        while self._sources:
            os.close(self._sources.pop())

    def _run(self) -> None:
        while True:
            # read before the pass: what was written before `close()` is seen by this pass
            stopping = self._stop.is_set()
            copied = [self._copy(source) for source in self._sources]
            if any(copied):
                continue
            if stopping:
                return
            self._stop.wait(_POLL_S)

    def _copy(self, source: int) -> bool:
        try:
            data = os.read(source, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if data:
            self.write(data)
        return bool(data)
