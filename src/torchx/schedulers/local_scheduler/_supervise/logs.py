"""Writes the output of one attempt of one replica: two streams, their merge, and an index."""

import os
import select
import time

from .format import CONTINUED, LONGEST_LINE_BYTES, STREAM_END
from .journal import write_all

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    from .listeners import Poller

CHUNK_BYTES = 1 << 16
HELD_BYTES = 1 << 20
"""The start of a longer line is read back from its stream's file when its end arrives."""
PIPE_BYTES = 1 << 20


def log_names() -> "tuple[str, str, str, str]":
    """Returns the file names of one attempt: stdout, stderr, both, and the index."""
    return "stdout.log", "stderr.log", "combined.log", "combined.idx"


class Stamps:
    """Strictly increasing time stamps, whatever the clock does."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest = 0

    def next(self) -> int:
        """Returns nanoseconds since the epoch."""
        now = time.time_ns()
        self._latest = now if now > self._latest else self._latest + 1
        return self._latest


class Stream:
    """A pipe of a replica and the file its output is written to."""

    __slots__ = ("file_fd", "held", "kind", "lines", "offset", "pipe_fd", "size")

    def __init__(self, kind: int, pipe_fd: int, file_fd: int) -> None:
        self.kind = kind
        self.pipe_fd = pipe_fd
        self.file_fd = file_fd
        self.held: bytes | None = b""
        """Data after the last newline; ``None`` if it is so long that only the file has it."""
        self.lines = 0
        self.offset = 0
        """End of the last whole line in the stream's own file."""
        self.size = 0
        """End of that file."""


class ReplicaLog:
    """The log files of one attempt. Every method may raise ``OSError``, as on a full disk."""

    def __init__(self, folder: str, pipes: "tuple[int, int]", stamps: Stamps) -> None:
        self._stamps = stamps
        self._fds: list[int] = []
        try:
            for name in log_names():
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
                self._fds.append(os.open(f"{folder}/{name}", flags, 0o644))
        except OSError:
            self._close_files()
            raise
        out, err, self._combined_fd, self._index_fd = self._fds
        self.streams = (Stream(0, pipes[0], out), Stream(1, pipes[1], err))
        self._combined_end = 0
        self.open_pipes = 2
        self.exited = False

    def pump(self, stream: Stream) -> bool:
        """Reads the available data from the pipe; returns ``False`` once it is closed."""
        try:
            data = os.read(stream.pipe_fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self._close_pipe(stream)
            return False
        write_all(stream.file_fd, data)
        stream.size += len(data)
        cut = data.rfind(b"\n") + 1
        if not cut:
            self._hold(stream, data)
            return True
        end = stream.size - len(data) + cut
        if stream.held is None:
            self._write(stream, end, data.count(b"\n", 0, cut))
        else:
            whole = memoryview(data)[:cut]
            if stream.held:
                whole = memoryview(stream.held + bytes(whole))
            self._write(stream, end, data.count(b"\n", 0, cut), whole)
        stream.held = data[cut:]
        return True

    def close(self) -> None:
        """Closes everything and marks the log as complete."""
        if not self._fds:
            return
        try:
            for stream in self.streams:
                self._close_pipe(stream)
            self._index(STREAM_END, sum(s.lines for s in self.streams), 0)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes everything without writing: the log has no end mark."""
        for stream in self.streams:
            if stream.pipe_fd >= 0:
                os.close(stream.pipe_fd)
                stream.pipe_fd = -1
        self.open_pipes = 0
        self._close_files()

    def _close_pipe(self, stream: Stream) -> None:
        if stream.pipe_fd < 0:
            return
        os.close(stream.pipe_fd)
        stream.pipe_fd = -1
        self.open_pipes -= 1
        if self.open_pipes == 0:
            unended = [stream for stream in self.streams if stream.offset < stream.size]
            for one in unended:  # the very last line is kept without a newline
                self._write_unended(one, add_newline=one is not unended[-1])

    def _hold(self, stream: Stream, data: bytes) -> None:
        """Keeps the start of a line until its end arrives, or until it is too long."""
        if stream.held is not None:
            stream.held += data
            if len(stream.held) > HELD_BYTES:
                stream.held = None
        while stream.size - stream.offset > LONGEST_LINE_BYTES:
            self._write(stream, self._cut(stream), 0, mark=CONTINUED)

    def _cut(self, stream: Stream) -> int:
        """Returns the offset at which a long line is split: not within a UTF-8 character."""
        end = stream.offset + LONGEST_LINE_BYTES
        before = os.pread(stream.file_fd, 4, end - 3)
        # a continuation byte follows at most three others of its character
        back = next((k for k, byte in enumerate(before[::-1]) if byte & 0xC0 != 0x80), 0)
        return end - back

    def _write(
        self,
        stream: Stream,
        end: int,
        lines: int,
        data: "bytes | memoryview | None" = None,
        mark: bytes = b"",
    ) -> None:
        """Writes the stream's lines up to that offset to the merged log.

        Args:
            data: these lines, if they are in memory.
            mark: text written after them.
        """
        other = self.streams[1 - stream.kind]
        if other.pipe_fd < 0 and other.offset < other.size:
            self._write_unended(other, add_newline=True)
        if data is not None:
            self._combine(data)
        else:
            self._copy(stream, end)
        if mark:
            self._combine(mark)
        stream.lines += lines
        stream.offset = end
        self._index(stream.kind, stream.lines, stream.offset)

    def _write_unended(self, stream: Stream, add_newline: bool) -> None:
        """Writes the last line of a stream that has ended without a newline."""
        self._copy(stream, stream.size)
        if add_newline:
            self._combine(b"\n")
        stream.lines += 1
        stream.offset = stream.size
        self._index(stream.kind, stream.lines, stream.offset)

    def _copy(self, stream: Stream, end: int) -> None:
        at = stream.offset
        while at < end:
            part = os.pread(stream.file_fd, min(end - at, HELD_BYTES), at)
            if not part:
                return  # somebody else has truncated the file
            self._combine(part)
            at += len(part)

    def _combine(self, data: "bytes | memoryview") -> None:
        write_all(self._combined_fd, data)
        self._combined_end += len(data)

    def _index(self, kind: int, lines: int, offset: int) -> None:
        fields = (self._stamps.next(), kind, lines, offset, self._combined_end)
        write_all(self._index_fd, b"".join([n.to_bytes(8, "little") for n in fields]))

    def _close_files(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []


class Pumps:
    """Reads the pipes of all replicas into their logs, until one of them cannot be written."""

    def __init__(self, poller: "Poller") -> None:
        self.problem = ""
        """The reason why the logs cannot be written."""
        self.moved = False
        """True if something was written since this was reset."""
        self.stamps = Stamps()
        self._poller = poller
        self._pipes: dict[int, tuple[ReplicaLog, Stream]] = {}

    def __contains__(self, fd: int) -> bool:
        return fd in self._pipes

    def add(self, log: ReplicaLog) -> None:
        """Starts reading the pipes of this log."""
        for stream in log.streams:
            _enlarge_pipe(stream.pipe_fd)
            os.set_blocking(stream.pipe_fd, False)
            self._pipes[stream.pipe_fd] = (log, stream)
            self._poller.add(stream.pipe_fd)

    def pump(self, fd: int) -> None:
        """Reads the available data from a pipe."""
        log, stream = self._pipes[fd]
        self.moved = True
        if self.problem:
            self._drop(log)
            return
        try:
            if log.pump(stream):
                return
            self._ignore(fd)
            if log.exited and log.open_pipes == 0:
                log.close()
        except OSError as err:
            self._fail(log, err)

    def exited(self, log: ReplicaLog) -> None:
        """The first process of the attempt has ended: its log ends with the last pipe."""
        log.exited = True
        if log.open_pipes == 0:
            self.close(log)

    def close(self, log: ReplicaLog) -> None:
        """Reads the rest from the pipes and ends the log."""
        if self.problem:
            self._drop(log)
            return
        try:
            for stream in log.streams:
                fd = stream.pipe_fd
                if fd >= 0:
                    self._ignore(fd)
                    while log.pump(stream) and _readable(fd):
                        pass
            log.close()
        except OSError as err:
            self._fail(log, err)

    def _fail(self, log: ReplicaLog, err: OSError) -> None:
        """Drops further output, so that there is room for the job's last lines."""
        self.problem = self.problem or f"the logs cannot be written: {err.strerror}"
        self._drop(log)

    def _drop(self, log: ReplicaLog) -> None:
        for stream in log.streams:
            self._ignore(stream.pipe_fd)
        log.abandon()

    def _ignore(self, pipe_fd: int) -> None:
        if self._pipes.pop(pipe_fd, None):
            self._poller.remove(pipe_fd)


def _readable(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _enlarge_pipe(fd: int) -> None:
    """Enlarges a pipe's buffer for replicas with much output; the kernel may refuse."""
    try:
        import fcntl

        fcntl.fcntl(fd, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)
    except OSError:
        pass
