"""Forwards local ports to a port of a replica."""

import socket
import threading
from collections.abc import Callable
from typing import Protocol

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, TorchXError

logger = get_logger(__name__)

_CHUNK = 65536


class PortConnection(Protocol):
    """A connection to a port of a replica."""

    def receive(self) -> bytes:
        """Returns the next data; empty once the other side has closed the connection."""
        ...

    def send(self, data: bytes) -> None:
        """Sends data."""
        ...

    def close(self) -> None:
        """Closes the connection; may be called repeatedly, also while another thread receives."""
        ...


class ForwardedPort:
    """A local port whose connections are forwarded to the replica.

    Args:
        local: its number; 0 for any free one.
        address: the address that it listens on.
        connect: makes a connection to the port of the replica.
    """

    def __init__(self, local: int, address: str, connect: Callable[[], PortConnection]) -> None:
        self._connect = connect
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._listener = socket.create_server((address, local), family=family)
        except (OSError, OverflowError) as err:
            reason = getattr(err, "strerror", None) or str(err)
            msg = f"cannot listen on port {local} of {address}: {reason}; choose another one"
            raise InvalidInput(msg) from None

    @property
    def number(self) -> int:
        """The number of the local port."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Starts forwarding connections, in the background."""
        threading.Thread(target=self._serve, name="port", daemon=True).start()

    def close(self) -> None:
        """Accepts no more connections."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:  # if a listener cannot be shut down, closing it is enough
            pass
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client:
            try:
                remote = self._connect()
            except TorchXError as err:
                logger.error("no connection: %s", err)
                return
            back = threading.Thread(target=_copy_back, args=(remote, client), daemon=True)
            back.start()
            try:
                while data := client.recv(_CHUNK):
                    remote.send(data)
            except (OSError, TorchXError) as err:
                logger.debug("a forwarded connection ended: %s", err)
            finally:
                # the other side may still be sending to a client that has finished sending
                back.join(_LINGER_S)
                remote.close()


_LINGER_S = 30.0


def _copy_back(remote: PortConnection, client: socket.socket) -> None:
    try:
        while data := remote.receive():
            client.sendall(data)
    except TorchXError as err:
        logger.warning("a forwarded connection ended: %s", err)
    except OSError as err:
        logger.debug("a forwarded connection ended: %s", err)
    finally:
        try:
            client.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is closed already
            pass
