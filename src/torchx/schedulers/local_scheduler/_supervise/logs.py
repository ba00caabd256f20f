"""Writes what one attempt of one replica prints: two streams, their merge, and an index."""

import os
import time
from _struct import pack  # the C part of ``struct``: nothing else of it is needed

from .journal import STREAM_END, write_all

CHUNK_BYTES = 1 << 16
LONGEST_LINE_BYTES = 1 << 20
"""Bound on what is held back for a line's end: longer lines may be split in ``combined.log``."""


def log_names() -> "tuple[str, str, str, str]":
    """File names of one attempt: stdout, stderr, both, and the index."""
    return "stdout.log", "stderr.log", "combined.log", "combined.idx"


class Stream:
    """One pipe of a replica and the file its bytes go to."""

    __slots__ = ("file_fd", "held", "kind", "lines", "offset", "pipe_fd")

    def __init__(self, kind: int, pipe_fd: int, file_fd: int) -> None:
        self.kind = kind
        self.pipe_fd = pipe_fd
        self.file_fd = file_fd
        self.held = b""
        """What came after the last newline."""
        self.lines = 0
        self.offset = 0
        """End of the last whole line in the stream's own file."""


class ReplicaLog:
    """The log files of one attempt. Every method may raise ``OSError``, on a full disk for one."""

    def __init__(self, folder: str, stdout_pipe: int, stderr_pipe: int) -> None:
        self._fds: list[int] = []
        try:
            for name in log_names():
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
                self._fds.append(os.open(os.path.join(folder, name), flags, 0o644))
        except OSError:
            self._close_files()
            raise
        out, err, self._combined_fd, self._index_fd = self._fds
        self.streams = [Stream(0, stdout_pipe, out), Stream(1, stderr_pipe, err)]
        self._combined_end = 0
        self._open_line: int | None = None
        """The stream whose unfinished line ends ``combined.log``."""
        self.open_pipes = 2

    def pump(self, stream: Stream) -> bool:
        """Takes what the pipe holds now; ``False`` once it is closed."""
        try:
            data = os.read(stream.pipe_fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self.end(stream)
            return False
        write_all(stream.file_fd, data)
        cut = data.rfind(b"\n") + 1
        if cut:
            whole = memoryview(data)[:cut]
            if stream.held:
                whole = memoryview(stream.held + bytes(whole))
            stream.held = data[cut:]
            self._write_lines(stream, whole, data.count(b"\n"), ended=True)
        else:
            stream.held += data
            if len(stream.held) >= LONGEST_LINE_BYTES:
                self._write_lines(stream, stream.held, 0, ended=False)
                stream.held = b""
        return True

    def end(self, stream: Stream) -> None:
        """Closes one pipe and writes its last line, which may lack a newline."""
        if stream.pipe_fd < 0:
            return
        os.close(stream.pipe_fd)
        stream.pipe_fd = -1
        self.open_pipes -= 1
        if stream.held:
            self._write_lines(stream, stream.held, 1, ended=False)
            stream.held = b""

    def close(self) -> None:
        """Closes everything and marks the log as complete."""
        if not self._fds:
            return
        try:
            for stream in self.streams:
                self.end(stream)
            self._index(STREAM_END, sum(s.lines for s in self.streams), 0)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes everything and writes nothing: the log stays without its end mark."""
        for stream in self.streams:
            if stream.pipe_fd >= 0:
                os.close(stream.pipe_fd)
                stream.pipe_fd = -1
        self.open_pipes = 0
        self._close_files()

    def _write_lines(
        self, stream: Stream, data: "bytes | memoryview", lines: int, ended: bool
    ) -> None:
        if self._open_line is not None and self._open_line != stream.kind:
            write_all(self._combined_fd, b"\n")
            self._combined_end += 1
        write_all(self._combined_fd, data)
        self._open_line = None if ended else stream.kind
        self._combined_end += len(data)
        stream.lines += lines
        stream.offset += len(data)
        self._index(stream.kind, stream.lines, stream.offset)

    def _index(self, kind: int, lines: int, offset: int) -> None:
        record = pack("<QQQQQ", time.time_ns(), kind, lines, offset, self._combined_end)
        write_all(self._index_fd, record)

    def _close_files(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []
