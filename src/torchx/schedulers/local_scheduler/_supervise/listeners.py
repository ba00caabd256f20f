"""The supervisor's connections: clients that follow the job, signals, the lifeline."""

import _socket
import errno
import os
import select

from . import tree
from .format import KEEP
from .tree import signal

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_LAUNCHER_GONE = (
    "the process that launched this job ended, and the job with it; "
    "a job launched with `detach` goes on"
)


class Poller:
    """``epoll`` where there is one, ``poll`` elsewhere."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = None if self._epoll else select.poll()

    def add(self, fd: int) -> None:
        """Watches a file descriptor."""
        if self._epoll:
            self._epoll.register(fd, select.EPOLLIN)
        elif self._poll:
            self._poll.register(fd, select.POLLIN)

    def remove(self, fd: int) -> None:
        """Stops watching it."""
        try:
            if self._epoll:
                self._epoll.unregister(fd)
            elif self._poll:
                self._poll.unregister(fd)
        except (OSError, KeyError, ValueError):
            pass  # closed already, which removed it

    def wait(self, timeout_s: float | None) -> "list[int]":
        """Returns the descriptors that can be read, at the latest after the timeout."""
        if self._epoll:
            return [fd for fd, _ in self._epoll.poll(-1 if timeout_s is None else timeout_s)]
        assert self._poll is not None
        timeout_ms = None if timeout_s is None else timeout_s * 1000
        return [fd for fd, _ in self._poll.poll(timeout_ms)]


class Client:
    """A client that follows the job."""

    __slots__ = ("connection", "wants_logs")

    def __init__(self, connection: "_socket.socket") -> None:
        self.connection = connection
        self.wants_logs = False

    def tell(self) -> bool:
        """Sends one byte; returns ``False`` if the client is gone."""
        try:
            self.connection.send(b".")
        except BlockingIOError:
            pass  # it has not read earlier bytes yet, so it will wake anyway
        except OSError:
            return False
        return True


class Listeners:
    """Accepts requests to end the job, and wakes its followers.

    Args:
        stop: ends the job; takes the state and a message.
    """

    def __init__(self, poller: Poller, stop: "Callable[[str, str], None]") -> None:
        self._poller = poller
        self._stop = stop
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._clients: dict[int, Client] = {}
        self._listener: _socket.socket | None = None
        self._waits_for_room = False
        """True if there are more followers than descriptors left."""
        self._lifelines: list[int] = []
        self._detached = False
        self._guard_pid = os.getppid()

    def watch_signals(self) -> None:
        """Wakes the loop when a child ends, and ends the job on SIGTERM and SIGINT."""
        r, w = os.pipe()
        os.set_blocking(r, False)
        os.set_blocking(w, False)
        signal.set_wakeup_fd(w)
        self._on(r, self._signalled)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: None)

    def open(self, spec: "dict[str, Any]", lifeline_fd: int) -> None:
        """Opens the socket of the job and watches its launcher.

        Args:
            lifeline_fd: closed by the launcher, or by its end, to end the job.
        """
        os.chdir(str(spec["job_dir"]))  # a relative name keeps below the limit on socket paths
        listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        os.set_inheritable(listener.fileno(), False)
        listener.bind("sock")
        listener.listen(128)
        listener.setblocking(False)
        self._listener = listener
        self._on(listener.fileno(), self._accept)
        self._detached = not spec["attached"]
        self._lifelines.append(lifeline_fd)
        self._on(lifeline_fd, self._hear_launcher)
        try:
            pid = int(spec["launcher_pid"])
            pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            return
        if tree.start_ticks(pid) == spec["launcher_ticks"]:
            self._lifelines.append(pidfd)
            self._on(pidfd, self._launcher_gone)
        else:
            os.close(pidfd)

    def handle(self, fd: int) -> None:
        """Handles input on that descriptor."""
        handler = self._handlers.get(fd)
        if handler is not None:  # else it was closed after it was reported as readable
            handler(fd)

    def tell(self, events: bool) -> None:
        """Wakes followers of the logs; all others, too, if there were events."""
        for client in [*self._clients.values()]:
            if (events or client.wants_logs) and not client.tell():
                self._drop(client)

    def close(self) -> None:
        """Disconnects all followers."""
        for client in [*self._clients.values()]:
            self._drop(client)

    def _on(self, fd: int, handler: "Callable[[int], None]") -> None:
        self._handlers[fd] = handler
        self._poller.add(fd)

    def _off(self, fd: int) -> None:
        self._poller.remove(fd)
        self._handlers.pop(fd, None)

    # -- the launcher -----------------------------------------------------------------------

    def _hear_launcher(self, fd: int) -> None:
        try:
            said = os.read(fd, 64)
        except OSError:
            said = b""
        if not said:
            self._launcher_gone(fd)
        elif said.startswith(KEEP) and self._detached:
            for lifeline in self._lifelines:
                self._off(lifeline)

    def _launcher_gone(self, fd: int) -> None:
        self._off(fd)
        self._stop("CANCELLED", _LAUNCHER_GONE)

    # -- others -----------------------------------------------------------------------------

    def _accept(self, listener_fd: int) -> None:
        assert self._listener is not None
        try:
            fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # CPython's own
        except OSError as err:
            if err.errno in _NO_DESCRIPTORS:
                self._poller.remove(listener_fd)  # or it would be reported as readable forever
                self._waits_for_room = True
            elif err.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                raise
            return
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fileno=fd)
        connection.setblocking(False)
        self._clients[fd] = Client(connection)
        self._on(fd, self._hear)

    def _hear(self, fd: int) -> None:
        client = self._clients[fd]
        try:
            said = client.connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._drop(client)
            return
        for word in said.decode("ascii", "replace").split():
            if word == "cancel":
                self._stop("CANCELLED", "")
            client.wants_logs = client.wants_logs or word == "logs"
        client.tell()

    def _drop(self, client: Client) -> None:
        fd = client.connection.fileno()
        self._off(fd)
        del self._clients[fd]
        client.connection.close()
        if self._waits_for_room and self._listener is not None:
            self._waits_for_room = False
            self._poller.add(self._listener.fileno())

    # -- signals ----------------------------------------------------------------------------

    def _signalled(self, fd: int) -> None:
        try:
            numbers = os.read(fd, 4096)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            if os.getppid() != self._guard_pid:
                self._stop("FAILED", "the process that guards this job was killed")
            else:
                self._stop("CANCELLED", "the process that supervises this job was told to end")
