"""The bridge network on which replicas find each other by name."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchx._docker import connect, translate_errors
from torchx._files import try_lock
from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, DockerRefused
from torchx.version import __version__

from ._request import LABEL_VERSION, NETWORK

if TYPE_CHECKING:
    from ._client import Daemon

_LOCK = "torchx_docker_network_lock"
_LOCK_S = 10

logger = get_logger(__name__)


def ensure_network(client: Any = None) -> None:
    """Creates the bridge network on which replicas find each other, unless it exists.

    Args:
        client: client of Docker's SDK; ``None`` for one from the environment.
    """
    if client is None:
        client = connect()
    with translate_errors(f"create network `{NETWORK}`"):
        if any(network.name == NETWORK for network in client.networks.list(names=[NETWORK])):
            return
        with _network_lock():
            try:
                client.networks.create(
                    name=NETWORK,
                    driver="bridge",
                    check_duplicate=True,
                    labels={LABEL_VERSION: __version__},
                )
            except Exception as err:
                # only a response of the daemon has this text
                if "already exists" not in str(err):
                    raise


def remove_network(daemon: "Daemon") -> None:
    """Removes our network if no container of ours is left that could use it."""
    try:
        with _network_lock():
            if daemon.containers():
                return
            found = daemon.api.networks(names=[NETWORK])
            ours = [n for n in found if n["Name"] == NETWORK and LABEL_VERSION in n["Labels"]]
            for network in ours:
                with translate_errors(f"remove network `{NETWORK}`"):
                    daemon.api.remove_network(network["Id"])
    except DockerRefused as err:  # a container of someone else uses it
        logger.debug("network `%s` is kept: %s", NETWORK, err)


@contextmanager
def _network_lock() -> Iterator[None]:
    """Lets one process in at a time: the daemon may create two networks of one name."""
    import tempfile

    path = os.path.join(tempfile.gettempdir(), _LOCK)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # another user's file can be locked, too
    except FileNotFoundError:
        fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + _LOCK_S
        while not try_lock(fd):
            if time.monotonic() >= deadline:
                msg = f"`{path}` is locked for {_LOCK_S} s: see who holds it with `fuser`"
                raise BackendUnavailable(msg)
            time.sleep(0.05)
        yield
    finally:
        os.close(fd)
