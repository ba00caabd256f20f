"""Ports of this machine that lead to a port of a replica."""

import socket
import threading
from collections.abc import Callable
from typing import Protocol

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, TorchXError

logger = get_logger(__name__)

_CHUNK = 65536


class PortConnection(Protocol):
    """One connection to a port of a replica."""

    def receive(self) -> bytes:
        """What the other side says next; empty once it has closed the connection."""
        ...

    def send(self, data: bytes) -> None:
        """Says something."""
        ...

    def close(self) -> None:
        """Ends the connection; may be called again, also while another thread receives."""
        ...


class ForwardedPort:
    """A port of this machine, each connection to which is carried to the replica.

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
        """The number of the port here."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Carries connections from now on, in the background."""
        threading.Thread(target=self._serve, name="port", daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:  # where a listener cannot be shut down, closing it is enough
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
                # the other side may still be answering a client that only reads from now on
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
